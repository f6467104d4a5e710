"""Which addresses a port gets.

On a network whose subnets lie on segments an address depends on the host.  So a port made without a host and without an
asked address gets none yet (`ip_allocation: deferred`); the bind that names the host gives it.  An address once given
holds the port to the hosts of its segment, unless the rebind says which subnet it wants instead.
"""

from collections.abc import Sequence
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any, Final

from moorage_embedded.network.attributes import UNSET
from moorage_embedded.network.faults import NeutronFault, address_taken, bad, conflict, invalid, no_address
from moorage_embedded.network.request import NetworkCall
from moorage_embedded.network.store import Doc, Surroundings
from moorage_embedded.network.subnets import AUTOMATIC, in_pools, offset_in

FIXED_IPS_MAX = 5
RACES_MAX = 50

DEFERRED: Final = object()
ROUTER_INTERFACE = "network:router_interface"
"""The owner of a router's port in a network: it has the addresses that are asked for it and none by itself, on automatic subnets too."""


def automatic(subnet: Doc) -> bool:
    """A subnet whose addresses follow from the MAC."""
    return subnet["ipv6_address_mode"] in AUTOMATIC


def segments_of_host(around: Surroundings) -> set[str]:
    """The segments of the network that the host is wired to."""
    if around.agent is None or around.network is None:
        return set()
    wired = around.agent["configurations"]["bridge_mappings"]
    return {each["id"] for each in around.network["_segments"] if each["physical_network"] in wired}


def candidates(around: Surroundings, host: str, owner: str, asked: Sequence[dict[str, Any]] | None) -> Any:
    """The subnets a port may have addresses on, or DEFERRED while its host is unknown."""
    assert around.network is not None  # the caller has looked
    fits = [
        each
        for each in around.subnets
        if not each["service_types"] or any(owner.startswith(kind) for kind in each["service_types"] if kind)
    ]
    fits.sort(key=lambda each: (not each["service_types"], each["_order"]))
    if not any(each["segment_id"] for each in around.subnets):
        if around.subnets and not fits:
            raise _none_fits(around.network["id"], owner)
        return fits
    if host:
        wired = segments_of_host(around)
        reachable = [each for each in fits if each["segment_id"] is None or each["segment_id"] in wired]
        if not wired:
            text = (
                f"Host {host} is not connected to any segments on routed provider network '{around.network['id']}'. "
                " It should be connected to one."
            )
            raise conflict("HostNotConnectedToAnySegment", text)
        if not reachable:
            raise _none_fits(around.network["id"], owner)
        return reachable
    if asked:
        return _on_one_segment(fits, asked)
    return [each for each in fits if each["segment_id"] is None] or DEFERRED


def _none_fits(network: str, owner: str) -> NeutronFault:
    text = f"No valid service subnet for the given device owner, network {network}, service type {owner}."
    return conflict("IpAddressGenerationFailureNoMatchingSubnet", text)


def _on_one_segment(subnets: list[Doc], asked: Sequence[dict[str, Any]]) -> list[Doc]:
    segments = set()
    for each in asked:
        for subnet in subnets:
            if each.get("subnet_id") == subnet["id"] or (
                not each.get("subnet_id")
                and each.get("ip_address")
                and ip_address(each["ip_address"]) in ip_network(subnet["cidr"])
            ):
                segments.add(subnet["segment_id"])
                break
    if len(segments) > 1:
        text = "Cannot allocate addresses from different segments."
        raise NeutronFault(400, "FixedIpsSubnetsNotOnSameSegment", text)
    return [each for each in subnets if each["segment_id"] in segments] if segments else subnets


def give(call: NetworkCall, around: Surroundings, port: Doc, host: str, asked: Any) -> None:
    """Addresses of a new port, or of a deferred one that has just been given its host."""
    if asked == []:
        port["ip_allocation"] = "none"
        return
    wanted = None if asked is UNSET else asked
    subnets = candidates(around, host, port["device_owner"], wanted)
    if subnets is DEFERRED:
        port["ip_allocation"] = "deferred"
        return
    if wanted is not None:
        _check_count(wanted)
        for each in wanted:
            port["fixed_ips"].append(_allocate_requested(call, around, port, subnets, each))
        subnets = [
            each
            for each in subnets
            if automatic(each) and each["id"] not in {ip["subnet_id"] for ip in port["fixed_ips"]}
            if port["device_owner"] != ROUTER_INTERFACE
        ]
    else:
        for version in (4, 6):
            managed = [each for each in subnets if each["ip_version"] == version and not automatic(each)]
            if managed:
                port["fixed_ips"].append(_give_any(call, around, port, managed))
    port["fixed_ips"].extend(_give_automatic(call, port, each) for each in subnets if automatic(each))


def _check_count(wanted: Sequence[Any]) -> None:
    if len(wanted) > FIXED_IPS_MAX:
        raise invalid("Exceeded maximum amount of fixed ips per port")


def _give_any(call: NetworkCall, around: Surroundings, port: Doc, subnets: list[Doc]) -> dict[str, str]:
    for subnet in subnets:
        if (address := _next(call, subnet, port["id"])) is not None:
            return {"subnet_id": subnet["id"], "ip_address": address}
    assert around.network is not None  # the caller has looked
    raise no_address(around.network["id"])


def _next(call: NetworkCall, subnet: Doc, port: str) -> str | None:
    net = ip_network(subnet["cidr"])
    for _ in range(RACES_MAX):
        offset = call.store.take_offset(subnet["id"])
        if offset is None:
            return None
        address = str(net.network_address + offset)
        if call.store.note_address(subnet["id"], address, port):
            return address
    return None


def _allocate_requested(
    call: NetworkCall, around: Surroundings, port: Doc, subnets: list[Doc], asked: dict[str, Any]
) -> dict[str, str]:
    address = asked.get("ip_address")
    subnet = _requested_subnet(around, subnets, asked.get("subnet_id"), address)
    if address is None:
        if automatic(subnet):
            return _give_automatic(call, port, subnet)
        if (found := _next(call, subnet, port["id"])) is None:
            text = f"No more IP addresses available for subnet {subnet['id']}."
            raise conflict("IpAddressGenerationFailure", text)
        return {"subnet_id": subnet["id"], "ip_address": found}
    address = str(ip_address(address))
    net = ip_network(subnet["cidr"])
    if ip_address(address) not in net:
        raise NeutronFault(
            400, "InvalidIpForSubnet", f"IP address {address} is not a valid IP for the specified subnet."
        )
    if net.version == 4 and net.prefixlen < 31 and address in {str(net.network_address), str(net.broadcast_address)}:
        raise NeutronFault(
            400, "InvalidIpForSubnet", f"IP address {address} is not a valid IP for the specified subnet."
        )
    by_itself = automatic(subnet) and port["device_owner"] != ROUTER_INTERFACE
    if by_itself and address != derived(subnet, port["mac_address"]):
        text = (
            f"IPv6 address {address} cannot be directly assigned to a port on subnet {subnet['id']}"
            " as the subnet is configured for automatic addresses"
        )
        raise NeutronFault(400, "AllocationOnAutoAddressSubnet", text)
    call.store.cut_offset(subnet["id"], offset_in(net, address))
    if not call.store.note_address(subnet["id"], address, port["id"]):
        raise address_taken(address, subnet["id"])
    return {"subnet_id": subnet["id"], "ip_address": address}


def _requested_subnet(around: Surroundings, subnets: list[Doc], id: str | None, address: str | None) -> Doc:
    assert around.network is not None  # the caller has looked
    if id is not None:
        for each in subnets:
            if each["id"] == id:
                return each
        network = around.network["id"]
        raise invalid(f"Failed to create port on network {network}, because fixed_ips included invalid subnet {id}")
    if address is None:
        raise bad("Invalid input for fixed_ips. Reason: IP allocation requires subnet_id or ip_address.")
    for each in subnets:
        if ip_address(address) in ip_network(each["cidr"]):
            return each
    text = f"IP address {address} is not a valid IP for any of the subnets on the specified network."
    raise NeutronFault(400, "InvalidIpForNetwork", text)


def derived(subnet: Doc, mac: str) -> str:
    """The modified EUI-64 address of a MAC."""
    octets = bytearray(bytes.fromhex(mac.replace(":", "")))
    octets[0] ^= 2
    tail = int.from_bytes(bytes(octets[:3]) + b"\xff\xfe" + bytes(octets[3:]), "big")
    return str(IPv6Address(int(ip_network(subnet["cidr"]).network_address) + tail))


def _give_automatic(call: NetworkCall, port: Doc, subnet: Doc) -> dict[str, str]:
    address = derived(subnet, port["mac_address"])
    call.store.cut_offset(subnet["id"], offset_in(ip_network(subnet["cidr"]), address))
    if not call.store.note_address(subnet["id"], address, port["id"]):
        raise address_taken(address, subnet["id"])
    return {"subnet_id": subnet["id"], "ip_address": address}


def change(call: NetworkCall, around: Surroundings, port: Doc, host: str, asked: list[dict[str, Any]]) -> None:
    """Replace a port's addresses by the requested ones, keeping each that is requested again, on any segment: as in
    Neutron, the host's wiring is not checked for addresses that stay.

    Automatic ones stay in any case, unless their subnet is named with `delete_subnet`, as in Neutron.
    """
    assert around.network is not None  # the caller has looked
    _check_count(asked)
    leaving = {each.get("subnet_id") for each in asked if each.get("delete_subnet")}
    asked = [each for each in asked if each.get("subnet_id") not in leaving]
    kept: list[dict[str, str]] = []
    missing: list[dict[str, Any]] = []
    rest = list(port["fixed_ips"])
    for each in sorted(asked, key=lambda one: not one.get("ip_address")):
        match = next((ip for ip in rest if _matches(ip, each)), None)
        if match is None:
            missing.append(each)
        else:
            rest.remove(match)
            kept.append(match)
    unasked = {each["id"] for each in around.subnets if automatic(each)} - leaving
    staying = [each for each in rest if each["subnet_id"] in unasked]
    rest = [each for each in rest if each not in staying]
    subnets = candidates(around, host, port["device_owner"], missing + kept) if missing or kept else []
    take_back(call, around.subnets, port["id"], rest)
    kept = kept + staying
    port["fixed_ips"] = kept
    port["fixed_ips"] = kept + [_allocate_requested(call, around, port, subnets, each) for each in missing]
    seen = {
        each["subnet_id"] for each in (*port["fixed_ips"], *rest)
    }  # one that was taken away does not come back by itself
    port["fixed_ips"].extend(
        _give_automatic(call, port, each) for each in subnets if each["id"] in unasked and each["id"] not in seen
    )


def _matches(held: dict[str, str], asked: dict[str, Any]) -> bool:
    if asked.get("subnet_id") not in (None, held["subnet_id"]):
        return False
    address = asked.get("ip_address")
    return address is None or str(ip_address(address)) == held["ip_address"]


def not_compatible(host: str, port: str) -> NeutronFault:
    text = (
        f"Host {host} is not connected to a segment where the existing fixed_ips on port {port}"
        " will function given the routed network topology."
    )
    return conflict("HostNotCompatibleWithFixedIps", text)


def check_move(around: Surroundings, port: Doc, host: str) -> None:
    """Existing addresses must be right on the new host's segment."""
    reachable = {each["id"] for each in candidates(around, host, port["device_owner"], None)}
    if any(each["subnet_id"] not in reachable for each in port["fixed_ips"]):
        raise not_compatible(host, port["id"])


def take_back(call: NetworkCall, subnets: Sequence[Doc], port: str, fixed_ips: Sequence[dict[str, str]]) -> None:
    """Free addresses of one port; those of a pool may be handed out again."""
    by_id = {each["id"]: each for each in subnets}
    for each in fixed_ips:
        if call.store.forget_address(each["subnet_id"], each["ip_address"], port):
            _give_back(call, by_id.get(each["subnet_id"]), each["ip_address"])


def take_back_all(call: NetworkCall, subnets: Sequence[Doc], port: str) -> None:
    by_id = {each["id"]: each for each in subnets}
    for subnet, address in call.store.forget_addresses(port):
        _give_back(call, by_id.get(subnet), address)


def _give_back(call: NetworkCall, subnet: Doc | None, address: str) -> None:
    if subnet is not None and in_pools(subnet, address):
        offset = offset_in(ip_network(subnet["cidr"]), address)
        call.store.give_range(subnet["id"], offset, offset)


def note_inventories(call: NetworkCall, around: Surroundings, before: Doc | None, after: Doc) -> None:
    """Tell placement when an address on a segment is, or stops being, some other than a server's."""

    def foreign(port: Doc | None) -> set[str]:
        if port is None or port["device_owner"].startswith("compute:"):
            return set()
        return {each["ip_address"] for each in port["fixed_ips"]}

    changed = foreign(before) ^ foreign(after)
    if not changed:
        return
    on = {each["id"]: each["segment_id"] for each in around.subnets}
    for port in (before, after):
        for each in port["fixed_ips"] if port else ():
            if each["ip_address"] in changed and on.get(each["subnet_id"]):
                call.segments.add(on[each["subnet_id"]])
