"""What lies behind ports, for the hosts that route for them: routers, external networks, floating addresses.  A part of port_descriptions.py.

Everything is read for all ports of a host at once, so the number of queries does not grow with them.  A router's address of IPv6 outside, which is
the way to all its guests, is told to one host: the first by name that has any of them.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from moorage.model.ids import NetworkId
from moorage.model.port_description import arp_set_id
from moorage.model.route_description import (
    ArpEntry,
    ExternalNetwork,
    FloatingAddress,
    RoutedSubnet,
    RouterDescription,
    StaticRoute,
    SubnetHints,
)
from moorage_embedded.network.binding import TUNNELS
from moorage_embedded.network.routers import GATEWAY, INTERFACE
from moorage_embedded.network.store import Doc, NetworkStore

NS_PER_S = 1_000_000_000
ARP_ENTRIES_MAX = 20_000
"""Of one network; those beyond them are reached from their own network alone, and the log says so."""

_log = logging.getLogger(__name__)


@dataclass
class Reached:
    """From the ports of one host."""

    floating: dict[str, tuple[FloatingAddress, ...]] = field(default_factory=dict)
    """By port."""
    routers: dict[str, tuple[RouterDescription, ...]] = field(default_factory=dict)
    """By subnet."""
    arp_entries: dict[str, list[ArpEntry]] = field(default_factory=dict)
    """By `arp_set_id`."""


def reached_from(store: NetworkStore, host: str, ports: Sequence[Doc]) -> Reached:
    subnets = sorted({each["subnet_id"] for port in ports for each in port["fixed_ips"]})
    ids = sorted(port["id"] for port in ports)
    floating = store.many("floatingip", where={"key": ids}) if ids else []
    inside = store.many("port", where={"subnet": subnets, "owner": [INTERFACE]}) if subnets else []
    routers = sorted({each["device_id"] for each in inside})
    if not floating and not routers:
        return Reached()
    interfaces = store.many("port", where={"device": routers, "owner": [INTERFACE, GATEWAY]}) if routers else []
    networks = {each["floating_network_id"] for each in floating}
    networks |= {each["network_id"] for each in interfaces if each["device_owner"] == GATEWAY}
    outside = _external(store, networks)
    described = _routers(store, routers, interfaces, outside)
    bound = _bound(store, interfaces, described)
    described = {name: _for_host(host, each, bound) for name, each in described.items()}
    found = Reached(arp_entries=_arp_entries(host, described, bound))
    for each in floating:
        outer = outside.get(each["floating_network_id"])
        if outer is not None and each["fixed_ip_address"]:
            told = FloatingAddress(each["floating_ip_address"], each["fixed_ip_address"], outer.described)
            found.floating[each["port_id"]] = tuple(
                sorted((*found.floating.get(each["port_id"], ()), told), key=lambda one: one.address)
            )
    for each in inside:
        router = described.get(each["device_id"])
        if router is None:
            continue
        for subnet in {one["subnet_id"] for one in each["fixed_ips"]}:
            found.routers[subnet] = (*found.routers.get(subnet, ()), router)
    return found


def hints_of(store: NetworkStore, ports: Sequence[Doc]) -> dict[str, tuple[SubnetHints, ...]]:
    """What guests are told of their ports' subnets, by port."""
    on = {port["id"]: sorted({each["subnet_id"] for each in port["fixed_ips"]}) for port in ports}
    ids = sorted({each for mine in on.values() for each in mine})
    hints = {
        each["id"]: SubnetHints(
            each["id"],
            tuple(each["dns_nameservers"]),
            tuple((route["destination"], route["nexthop"]) for route in each["host_routes"]),
        )
        for each in (store.many("subnet", where={"id": ids}) if ids else ())
    }
    return {port: tuple(hints[each] for each in mine if each in hints) for port, mine in on.items()}


class _Outer(NamedTuple):
    """An external network, and its address scope of IPv6."""

    described: ExternalNetwork
    scope6: str | None


def _external(store: NetworkStore, networks: Iterable[str]) -> dict[str, _Outer]:
    found = {}
    for network in store.many("network", where={"id": sorted(networks)}):
        subnets = store.children("subnet", network["id"])
        four, six = (_first(each for each in subnets if each["ip_version"] == version) for version in (4, 6))
        described = ExternalNetwork(
            network["id"],
            next((each["physical_network"] for each in network["_segments"] if each["physical_network"]), ""),
            *four,
            *six,
        )
        found[network["id"]] = _Outer(described, network["ipv6_address_scope"])
    return found


def _first(subnets: Iterable[Doc]) -> tuple[str, str]:
    """Range and gateway of one of them, always the same; empty for none."""
    first = min(subnets, key=lambda each: str(each["cidr"]), default=None)
    return ("", "") if first is None else (first["cidr"], first["gateway_ip"] or "")


def _routers(
    store: NetworkStore, ids: Sequence[str], interfaces: Sequence[Doc], outside: Mapping[str, _Outer]
) -> dict[str, RouterDescription]:
    on = sorted(
        {
            each["subnet_id"]
            for interface in interfaces
            if interface["device_owner"] == INTERFACE
            for each in interface["fixed_ips"]
        }
    )
    subnets = {each["id"]: each for each in store.many("subnet", where={"id": on})} if on else {}
    inner = sorted({each["network_id"] for each in subnets.values()})
    networks = {each["id"]: each for each in store.many("network", where={"id": inner})} if inner else {}
    found = {}
    for router in store.many("router", where={"id": list(ids)}) if ids else ():
        if not router["admin_state_up"]:
            continue
        mine = [each for each in interfaces if each["device_id"] == router["id"]]
        outside_since = max((_since(each) for each in mine if each["device_owner"] == GATEWAY), default=0)
        info = router["external_gateway_info"]
        outer = None if info is None else outside.get(info["network_id"])
        inside: dict[int, list[RoutedSubnet]] = {4: [], 6: []}
        for interface in mine:
            if interface["device_owner"] == INTERFACE:
                for each in interface["fixed_ips"]:
                    subnet, network = subnets[each["subnet_id"]], networks[interface["network_id"]]
                    told = RoutedSubnet(
                        network["id"], subnet["cidr"], each["ip_address"], _tunnel(network), network["mtu"]
                    )
                    if subnet["ip_version"] == 6:
                        closed = outer is not None and network["ipv6_address_scope"] != outer.scope6
                        told = replace(told, since=max(_since(interface), outside_since), outside=not closed)
                    inside[subnet["ip_version"]].append(told)
        gateway = [
            each for interface in mine if interface["device_owner"] == GATEWAY for each in interface["fixed_ips"]
        ]
        addresses = [each["ip_address"] for each in gateway]
        found[router["id"]] = RouterDescription(
            router["id"],
            tuple(sorted(inside[4], key=lambda each: each.cidr)),
            None if outer is None else outer.described,
            next((each for each in addresses if ":" not in each), ""),
            bool(info and info["enable_snat"]),
            tuple(StaticRoute(each["destination"], each["nexthop"]) for each in router["routes"]),
            tuple(sorted(inside[6], key=lambda each: each.cidr)),
            next((each for each in addresses if ":" in each), ""),
        )
    return found


def _since(port: Doc) -> int:
    """When it was made, in nanoseconds since 1970, as well as its times are known."""
    made = datetime.fromisoformat(port["created_at"])
    return int(made.timestamp()) * NS_PER_S


def _tunnel(network: Doc) -> int | None:
    """The number that its tunnels have; None where it is not one network in tunnels."""
    segments = network["_segments"]
    if len(segments) != 1 or segments[0]["network_type"] not in TUNNELS or segments[0]["physical_network"]:
        return None
    number: int | None = segments[0]["segmentation_id"]
    return number


class _Bound(NamedTuple):
    """An address of a port that is bound to a host."""

    network: str
    address: str
    mac: str
    host: str


def _tunnelled(router: RouterDescription) -> set[str]:
    return {each.network for each in router.all_subnets if each.segmentation_id is not None}


def _bound(
    store: NetworkStore, interfaces: Sequence[Doc], described: Mapping[str, RouterDescription]
) -> Sequence[_Bound]:
    """In networks of routers whose guests other hosts than their own send to, in order."""
    wanted = {name for name, each in described.items() if each.is_open or len(_tunnelled(each)) > 1}
    subnets = {
        each["subnet_id"]
        for interface in interfaces
        if interface["device_id"] in wanted and interface["device_owner"] == INTERFACE
        for each in interface["fixed_ips"]
    }
    return [_Bound(*each) for each in store.bound_addresses(sorted(subnets))] if subnets else []


def _for_host(host: str, router: RouterDescription, bound: Sequence[_Bound]) -> RouterDescription:
    """Its address outside is for one host: whoever is sent something by it knows the way to all guests."""
    networks = {each.network for each in router.all_subnets}
    first = min((each.host for each in bound if each.network in networks), default="")
    return router if host == first or not router.address6 else msgspec.structs.replace(router, address6="")


def _arp_entries(
    host: str, described: Mapping[str, RouterDescription], bound: Sequence[_Bound]
) -> dict[str, list[ArpEntry]]:
    """Of networks that routers of several networks are in, and by IPv6 of those that the outside reaches, as far as somebody else than this
    host has ports there.

    The host's own ports are among them, so it knows them still while they are on their way to another one.
    """
    joined = {one for each in described.values() if len(_tunnelled(each)) > 1 for one in _tunnelled(each)}
    opened = {one for each in described.values() if each.is_open for one in _tunnelled(each)}
    rows = [each for each in bound if each.network in joined or (each.network in opened and ":" in each.address)]
    if all(each.host == host for each in rows):
        return {}
    found: dict[str, list[ArpEntry]] = {}
    counts: dict[str, int] = {}
    for each in rows:
        counts[each.network] = counts.get(each.network, 0) + 1
        if counts[each.network] <= ARP_ENTRIES_MAX:
            id = arp_set_id(NetworkId(each.network), each.address)
            found.setdefault(id, []).append(ArpEntry(each.address, each.mac))
    for network, count in counts.items():
        if count > ARP_ENTRIES_MAX:
            _log.error("network %s has %d neighbours, of which hosts are told %d", network, count, ARP_ENTRIES_MAX)
    return found
