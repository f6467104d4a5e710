"""Subnets: a range of addresses on a network, perhaps on one of its segments."""

import time
from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from itertools import pairwise
from typing import Any, TypeAlias

from moorage_embedded.network import address_scopes, networks, subnet_pools, validators
from moorage_embedded.network.attributes import REQUIRED, UNSET, Attr, admin, for_create, for_update, read_only
from moorage_embedded.network.faults import NeutronFault, bad, conflict, forbidden, invalid, not_found
from moorage_embedded.network.networks import COMMON, NAME
from moorage_embedded.network.ownership import needed
from moorage_embedded.network.request import NetworkCall, touched
from moorage_embedded.network.store import Doc

Net: TypeAlias = IPv4Network | IPv6Network
MODES = ("slaac", "dhcpv6-stateful", "dhcpv6-stateless")
MULTICAST = (ip_network("224.0.0.0/4"), ip_network("ff00::/8"))
LOOPBACK = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
LINK_LOCAL = (ip_network("169.254.0.0/16"), ip_network("fe80::/10"))
AUTOMATIC = ("slaac", "dhcpv6-stateless")

_POOL = validators.keyed({"start": validators.is_address, "end": validators.is_address})
_ROUTE = validators.keyed({"destination": validators.is_subnet, "nexthop": validators.is_address})
ATTRS: dict[str, Attr] = COMMON | {
    "name": NAME,
    "network_id": Attr(validators.is_uuid, REQUIRED, put=False),
    "ip_version": Attr(validators.one_of(4, 6), REQUIRED, validators.to_int, put=False),
    "cidr": Attr(validators.optional(validators.is_subnet), UNSET, put=False),
    "subnetpool_id": Attr(validators.optional(validators.text(36)), UNSET, put=False),
    "use_default_subnetpool": Attr(validators.is_bool, False, validators.to_bool, put=False),
    "prefixlen": Attr(validators.within(0, 128), UNSET, validators.to_int, put=False),
    "gateway_ip": Attr(validators.optional(validators.is_address), UNSET, validators.to_address),
    "allocation_pools": Attr(validators.listed(_POOL, 1_000), UNSET),
    "dns_nameservers": Attr(validators.listed(validators.is_address, 5, unique=True), UNSET, validators.none_to_list),
    "host_routes": Attr(validators.listed(_ROUTE, 20, unique=True), UNSET, validators.none_to_list),
    "enable_dhcp": Attr(validators.is_bool, True, validators.to_bool),
    "ipv6_ra_mode": Attr(validators.one_of(*MODES, None), None, put=False),
    "ipv6_address_mode": Attr(validators.one_of(*MODES, None), None, put=False),
    "service_types": Attr(validators.listed(validators.text(), 100), UNSET, may_post=admin, may_put=admin),
    "dns_publish_fixed_ip": Attr(validators.is_bool, False, validators.to_bool),
    "segment_id": Attr(validators.optional(validators.is_uuid), None, may_post=admin, may_put=admin, may_read=admin),
    "router:external": read_only(),
}


def offset_in(net: Net, address: str) -> int:
    return int(ip_address(address)) - int(net.network_address)


def in_pools(subnet: Doc, address: str) -> bool:
    number = int(ip_address(address))
    return any(
        int(ip_address(pool["start"])) <= number <= int(ip_address(pool["end"])) for pool in subnet["allocation_pools"]
    )


def create(call: NetworkCall, bodies: list[Any]) -> list[Doc]:
    return [_make(call, for_create("subnet", body, ATTRS, call.who)) for body in bodies]


def _make(call: NetworkCall, said: dict[str, Any]) -> Doc:
    network = needed(call, "network", said["network_id"], "subnet", lock=True)
    networks.check_mtu(network["id"], network["mtu"], [said["ip_version"]])
    call.charge(said["project_id"], "subnet")
    siblings = call.store.children("subnet", network["id"])
    pool_id, cidr = _cidr_of(call, said)
    net = ip_network(cidr, strict=False)
    if net.version != said["ip_version"]:
        raise invalid(f"cidr '{cidr}' does not match the ip_version '{said['ip_version']}'")
    _check_range(net, said["enable_dhcp"], () if call.who.admin else call.settings.forbidden_ranges)
    for each in siblings:
        if each["ip_version"] == net.version and ip_network(each["cidr"]).overlaps(net):
            raise invalid(
                f"Requested subnet with cidr: {net} for network: {network['id']} overlaps with another subnet"
            )
    _check_modes(said)
    gateway = _default_gateway(net) if said["gateway_ip"] is UNSET else said["gateway_ip"]
    if gateway is not None:
        _check_gateway(net, gateway)
    subnet = call.born(said["project_id"]) | {
        name: said[name]
        for name in ("name", "network_id", "ip_version", "enable_dhcp", "ipv6_ra_mode", "ipv6_address_mode",
                     "description", "tags", "dns_publish_fixed_ip", "segment_id")
    }  # fmt: skip
    subnet |= {
        "cidr": str(net),
        "gateway_ip": gateway,
        "subnetpool_id": pool_id,
        "dns_nameservers": said["dns_nameservers"] if said["dns_nameservers"] is not UNSET else [],
        "host_routes": said["host_routes"] if said["host_routes"] is not UNSET else [],
        "service_types": said["service_types"] if said["service_types"] is not UNSET else [],
        "router:external": network["router:external"],
        "allocation_pools": _pools(net, gateway, said["allocation_pools"]),
        "revision_number": 1,
        "_order": time.time_ns(),
    }
    _join_segment(call, network, subnet, siblings)
    call.store.add("subnet", subnet, parent=network["id"])
    call.store.reset_ranges(subnet["id"], _ranges(net, subnet["allocation_pools"], ()))
    network["subnets"].append(subnet["id"])
    if pool_id is not None:
        address_scopes.scope_network(call, network)
    call.store.put("network", touched(network))
    return subnet


def _cidr_of(call: NetworkCall, said: dict[str, Any]) -> tuple[str | None, str]:
    cidr = None if said["cidr"] is UNSET else said["cidr"]
    if said["subnetpool_id"] not in (UNSET, None) or said["use_default_subnetpool"]:
        prefixlen = None if said["prefixlen"] is UNSET else said["prefixlen"]
        return subnet_pools.carve(call, said["subnetpool_id"], said["ip_version"], cidr, prefixlen)
    if cidr is None:
        raise bad("Bad subnets request: a subnetpool must be specified in the absence of a cidr.")
    if said["prefixlen"] is not UNSET:
        raise bad("Bad subnets request: prefixlen can only be given with a subnetpool.")
    return None, cidr


def _check_range(net: Net, dhcp: bool, forbidden: Iterable[str]) -> None:
    """With Neutron's sentences. It takes multicast, loopback and 0.0.0.0 without DHCP; no host could route them."""
    if net.prefixlen == 0:
        raise invalid("0 is not allowed as CIDR prefix length")
    if net.network_address == ip_address("::"):
        raise invalid("IPv6 subnet '::' is not supported")
    only = " if enable_dhcp is True" if dhcp else ""
    if any(net.overlaps(each) for each in MULTICAST if each.version == net.version):
        raise invalid(f"Multicast IP subnet is not supported{only}")
    if any(net.overlaps(each) for each in LOOPBACK if each.version == net.version):
        raise invalid(f"Loopback IP subnet is not supported{only}")
    if net.network_address == ip_address("0.0.0.0"):
        raise invalid(f"First IP '0.0.0.0' of network is not supported{only}.")
    if any(net.overlaps(each) for each in LINK_LOCAL if each.version == net.version):
        raise invalid(f"Subnet {net} has link-local addresses, as that of the metadata service")
    for each in map(ip_network, forbidden):
        if each.version == net.version and each.overlaps(net):
            raise invalid(f"Subnet {net} has addresses of {each}, which the operator of this cloud forbids")


def _check_modes(said: dict[str, Any]) -> None:
    ra, mode = said["ipv6_ra_mode"], said["ipv6_address_mode"]
    if (ra or mode) and said["ip_version"] == 4:
        raise invalid("ipv6_ra_mode and ipv6_address_mode can only be set when ip_version is 6")
    if ra and mode and ra != mode:
        raise invalid(f"ipv6_ra_mode set to '{ra}' with ipv6_address_mode set to '{mode}' is not valid")
    if (ra or mode) and not said["enable_dhcp"]:
        raise bad(
            "Bad subnets request: ipv6_ra_mode or ipv6_address_mode cannot be set when enable_dhcp is set to False."
        )


def _default_gateway(net: Net) -> str:
    return str(net[1] if net.num_addresses > 2 else net[0])


def _check_gateway(net: Net, gateway: str) -> None:
    address = ip_address(gateway)
    if address.version != net.version:
        raise invalid(f"gateway_ip '{gateway}' does not match the ip_version '{net.version}'")
    if net.version == 4 and net.prefixlen < 31 and address in {net.network_address, net.broadcast_address}:
        raise invalid("Gateway is not valid on subnet")


def _check_gateway_unused(call: NetworkCall, subnet: Doc) -> None:
    for address, port, owner in call.store.addresses_of(subnet["id"]):
        if address == subnet["gateway_ip"] and owner.startswith("network:router_interface"):
            text = f"Current gateway ip {address} already in use by port {port}. Unable to update."
            raise conflict("GatewayIpInUse", text)


def _pools(net: Net, gateway: str | None, said: Any) -> list[dict[str, str]]:
    if said is UNSET:
        return _default_pools(net, gateway)
    spans = []
    for pool in said:
        start, end = ip_address(pool["start"]), ip_address(pool["end"])
        if start.version != net.version or end.version != net.version or int(start) > int(end):
            raise NeutronFault(400, "InvalidAllocationPool", f"The allocation pool {start}-{end} is not valid.")
        if start not in net or end not in net:
            text = f"The allocation pool {start}-{end} spans beyond the subnet cidr {net}."
            raise NeutronFault(400, "OutOfBoundsAllocationPool", text)
        if gateway is not None and int(start) <= int(ip_address(gateway)) <= int(end):
            text = f"Gateway ip {gateway} conflicts with allocation pool {start}-{end}."
            raise conflict("GatewayConflictWithAllocationPools", text)
        spans.append((int(start), int(end), f"{start}-{end}", {"start": str(start), "end": str(end)}))
    spans.sort(key=lambda span: span[0])
    for one, two in pairwise(spans):
        if two[0] <= one[1]:
            text = f"Found overlapping allocation pools: {one[2]} {two[2]} for subnet {net}."
            raise conflict("OverlappingAllocationPools", text)
    return [span[3] for span in spans]


def _default_pools(net: Net, gateway: str | None) -> list[dict[str, str]]:
    first, last = int(net.network_address), int(net.broadcast_address)
    if net.prefixlen < net.max_prefixlen - 1:
        first += 1
        last -= 1 if net.version == 4 else 0
    spans = [(first, last)]
    if gateway is not None and ip_address(gateway) in net:
        number = int(ip_address(gateway))
        spans = [(first, number - 1), (number + 1, last)]
    kind = type(net.network_address)
    return [{"start": str(kind(low)), "end": str(kind(high))} for low, high in spans if low <= high]


def _ranges(net: Net, pools: Iterable[dict[str, str]], held: Iterable[str]) -> list[tuple[int, int]]:
    """Free ranges: the pools without the addresses that are held."""
    taken = sorted(offset_in(net, address) for address in held)
    ranges = []
    for pool in pools:
        low, high = offset_in(net, pool["start"]), offset_in(net, pool["end"])
        for offset in taken:
            if low <= offset <= high:
                ranges.append((low, offset - 1))
                low = offset + 1
        ranges.append((low, high))
    return [(low, high) for low, high in ranges if low <= high]


def _join_segment(call: NetworkCall, network: Doc, subnet: Doc, siblings: list[Doc]) -> None:
    """All subnets of a network are on segments, or none is."""
    if "network:routed" in subnet["service_types"]:
        return
    others = [each for each in siblings if "network:routed" not in each["service_types"] and each["id"] != subnet["id"]]
    on_segments = bool(subnet["segment_id"])
    if any(bool(each["segment_id"]) != on_segments for each in others):
        text = (
            f"All of the subnets on network '{network['id']}'"
            " must either all be associated with segments or all not associated with any segment."
        )
        raise NeutronFault(400, "SubnetsNotAllAssociatedWithSegments", text)
    if not on_segments:
        return
    if subnet["segment_id"] not in {each["id"] for each in network["_segments"]}:
        segment = call.store.get("segment", subnet["segment_id"])
        if segment is None:
            raise not_found("segment", subnet["segment_id"])
        text = f"The subnet's network id, '{network['id']}', doesn't match the network_id of segment, '{segment['network_id']}'."
        raise NeutronFault(400, "NetworkIdsDontMatch", text)
    network["l2_adjacency"] = False
    call.segments.add(subnet["segment_id"])


def update(call: NetworkCall, subnet: Doc, body: Any) -> Doc:
    changes = for_update("subnet", body, ATTRS, call.who)
    if not call.who.writes(subnet["project_id"]):
        network = call.store.get("network", subnet["network_id"])
        if network is None or not call.who.writes(network["project_id"]):
            raise forbidden("update_subnet")
    net = ip_network(subnet["cidr"])
    gateway = changes.get("gateway_ip", subnet["gateway_ip"])
    if gateway != subnet["gateway_ip"]:
        _check_gateway_unused(call, subnet)
        if gateway is not None:
            _check_gateway(net, gateway)
    if "segment_id" in changes and changes["segment_id"] != subnet["segment_id"]:
        _move_segment(call, subnet, changes["segment_id"])
    if "allocation_pools" in changes:
        changes["allocation_pools"] = _pools(net, gateway, changes["allocation_pools"])
        held = [address for address, _, _ in call.store.addresses_of(subnet["id"])]
        call.store.reset_ranges(subnet["id"], _ranges(net, changes["allocation_pools"], held))
    elif gateway != subnet["gateway_ip"] and gateway is not None:
        _pools(net, gateway, subnet["allocation_pools"])  # refuses a gateway inside a pool
    if subnet["segment_id"]:
        call.segments.add(subnet["segment_id"])
    return subnet | changes


def _move_segment(call: NetworkCall, subnet: Doc, segment: str | None) -> None:
    if subnet["segment_id"]:
        text = "A subnet that is already associated with a segment cannot have its segment association changed."
        raise NeutronFault(400, "SubnetSegmentAssociationChangeNotAllowed", text)
    network = call.store.get("network", subnet["network_id"], lock=True)
    assert network is not None  # a subnet goes with its network
    if len(network["_segments"]) > 1:
        text = (
            f"The network '{network['id']}' has multiple segments,"
            " it is only possible to associate an existing subnet with a segment on networks with a single segment."
        )
        raise NeutronFault(400, "NoUpdateSubnetWhenMultipleSegmentsOnNetwork", text)
    subnet["segment_id"] = segment
    _join_segment(call, network, subnet, [])
    call.store.put("network", touched(network))
