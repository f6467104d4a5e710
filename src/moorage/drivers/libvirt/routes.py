"""Routers of the embedded network service on this host, as a plan: pure functions.  `routing.py` puts it into effect.

Each host routes for its own guests.  A router is a table of routes that what comes from its networks' bridges is looked up in, and nothing
else: its subnets as far as their bridges are here, the outside, its static routes; else a packet goes nowhere.

    floating address    DNAT to the guest and SNAT from it, on the host that has the guest; the outside is told by ARP who has it
    outside             under the external device's own address where it has one in that network; else the router's address is taken onto
                        the device, which is right where one host has such a device
    isolation           whatever comes from a bridge of ours, or goes to one, and is none of these, is not forwarded

Two networks of one host with overlapping subnets cannot both be routed, since an answer that comes back finds one of them: the first by
the names of their bridges is.  Networks that this host has no guests of (far_networks.py) are only routed into, each from its own router, so
their subnets may overlap.
"""

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from moorage.drivers.libvirt.far_networks import own_bridge_of
from moorage.drivers.libvirt.tunnels import ROUTED
from moorage.model.route_description import ExternalNetwork, FloatingAddress, RouterDescription

FIRST_TABLE, TABLES_MAX = 43_600, 400
RULE_PRIORITY, MARKED_PRIORITY = 1_045, 1_044
MARK = 0x20000000
"""Of packets that are looked up in the main table."""


@dataclass(frozen=True)
class RoutedPort:
    """A port of this host: its bridge, its addresses with their ranges, and what it was described to reach."""

    bridge: str
    cidrs: tuple[str, ...]
    floating: tuple[FloatingAddress, ...] = ()
    routers: tuple[RouterDescription, ...] = ()


@dataclass(frozen=True)
class Outside:
    """A device of this machine that leads to an external network; `addresses`: what the machine has there itself, with lengths of prefixes."""

    device: str
    addresses: tuple[str, ...] = ()

    def own(self, external: ExternalNetwork) -> str:
        """The machine's address in that network; empty for none."""
        if not external.cidr:
            return ""
        network = ipaddress.ip_network(external.cidr, strict=False)
        found = (each.partition("/")[0] for each in self.addresses)
        return next((each for each in found if ipaddress.ip_address(each) in network), "")


@dataclass(frozen=True)
class FarSide:
    """What of this host's routers is on other hosts."""

    bridges: frozenset[str] = frozenset()
    """Of networks that this host has no guests of."""
    arp_entries: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Bridge → address → MAC, of networks that this host has a tunnel of."""


NOTHING_FAR = FarSide()


@dataclass
class RoutePlan:
    """What is to be there; `routing.py` takes away what is not in it."""

    tables: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)
    """Router → the routes of its table, in the words of `ip route`."""
    rules: dict[str, str] = field(default_factory=dict)
    """Bridge → the router that what comes from it is for."""
    addresses: dict[str, str] = field(default_factory=dict)
    """Address that this host answers for outside → device."""
    chains: str = ""
    """Of our table of nftables."""
    arp_entries: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """Bridge → address → MAC."""
    forwarding: set[str] = field(default_factory=set)
    """Devices from which packets are forwarded."""
    troubles: list[str] = field(default_factory=list)


def planned(
    ports: Sequence[RoutedPort],
    outside: Mapping[str, Outside],
    own_addresses: Iterable[str] = (),
    far: FarSide = NOTHING_FAR,
) -> RoutePlan:
    """`ports`: all of this host. `outside`: physical network, or id of an external network → device. `own_addresses`: those that we put
    onto devices ourselves."""
    plan = RoutePlan()
    bridges, taken = _bridges(ports, plan)
    ours = set(own_addresses)
    external = {
        name: Outside(each.device, tuple(a for a in each.addresses if a.partition("/")[0] not in ours))
        for name, each in outside.items()
    }
    routers = {each.router: each for port in ports if port.bridge in taken for each in port.routers}
    dnat: list[str] = []
    source: list[str] = []
    accept: list[str] = []
    for port in ports:
        if port.bridge not in taken:
            continue
        for each in port.floating:
            out = _way_out(external, each.external)
            if out is None:
                plan.troubles.append(f"{each.address} is of a network that no device of this host leads to")
                continue
            plan.addresses[each.address] = out.device
            dnat.append(f"ip daddr {each.address} dnat to {each.fixed}")
            source.append(f'ip saddr {each.fixed} oifname "{out.device}" snat to {each.address}')
            source.append(f"ip saddr {each.fixed} ct status dnat oifname @bridges snat to {each.address}")
            accept.append(f'oifname "{port.bridge}" ip daddr {each.fixed} ct status dnat accept')
            accept.append(f'iifname "{port.bridge}" oifname "{out.device}" ip saddr {each.fixed} accept')
            plan.forwarding |= {out.device, port.bridge}
    for router in sorted(routers.values(), key=lambda each: each.router):
        _route(plan, _Ways(router, bridges, far), external, source, accept)
    if dnat:
        source.append("iifname @bridges oifname @bridges ct status dnat masquerade")
    every = sorted({*(each.bridge for each in ports), *far.bridges})
    if ports:
        marked = (
            [f"iifname @bridges oifname @bridges meta mark set meta mark or {ROUTED:#x}"] if plan.arp_entries else []
        )
        plan.chains = _sets(every, bridges) + _chains(dnat, source, marked, [*_bridged(every), *accept])
    return plan


@dataclass(frozen=True)
class _Ways:
    """Where a router's subnets are, as seen from this host."""

    router: RouterDescription
    bridges: Mapping[str, str]
    """Range → the bridge of this host's guests with it."""
    far: FarSide

    @property
    def here(self) -> dict[str, str]:
        """Range → bridge, of those that this host has guests of."""
        named = {each.cidr: own_bridge_of(each.network) for each in self.router.subnets}
        return {cidr: bridge for cidr, bridge in sorted(named.items()) if self.bridges.get(cidr) == bridge}

    @property
    def beyond(self) -> dict[str, str]:
        """And of those that it has none of."""
        named = {each.cidr: own_bridge_of(each.network) for each in self.router.subnets}
        return {cidr: bridge for cidr, bridge in sorted(named.items()) if bridge in self.far.bridges}


def _bridges(ports: Sequence[RoutedPort], plan: RoutePlan) -> tuple[dict[str, str], set[str]]:
    """Range → bridge, and the bridges whose ranges no other one has."""
    claimed: dict[str, str] = {}
    taken: set[str] = set()
    for bridge in sorted({each.bridge for each in ports if each.routers or each.floating}):
        ranges = {cidr for each in ports if each.bridge == bridge for cidr in each.cidrs if ":" not in cidr}
        if any(_overlap(mine, other) for mine in ranges for other in claimed):
            plan.troubles.append(f"{bridge} is not routed: another network of this host has the same addresses")
            continue
        claimed |= dict.fromkeys(ranges, bridge)
        taken.add(bridge)
    return claimed, taken


def _overlap(one: str, other: str) -> bool:
    return ipaddress.ip_network(one, strict=False).overlaps(ipaddress.ip_network(other, strict=False))


def _way_out(outside: Mapping[str, Outside], external: ExternalNetwork) -> Outside | None:
    return outside.get(external.network) or outside.get(external.physical_network or "")


def _route(plan: RoutePlan, ways: _Ways, outside: Mapping[str, Outside], source: list[str], accept: list[str]) -> None:
    router, connected = ways.router, ways.here
    if any(bridge in plan.rules for bridge in connected.values()):
        plan.troubles.append(
            f"router {router.router} shares a network with another one, which is the network's gateway"
        )
        return
    every = {**connected, **ways.beyond}
    routes: list[tuple[str, ...]] = [(cidr, "dev", bridge) for cidr, bridge in sorted(every.items())]
    out = None if router.external is None else _way_out(outside, router.external)
    if out is not None and router.external is not None:
        routes += _outward(router.external, out)
        _translate(plan, router, out, connected, source, accept)
        accept += [
            f'iifname "{out.device}" oifname "{bridge}" ct state established,related accept'
            for bridge in connected.values()
        ]
    for each in router.routes:
        by = next((device for cidr, device in every.items() if _inside(each.hop, cidr)), "")
        if by and ":" not in each.destination:
            routes.append((each.destination, "via", each.hop, "dev", by))
            inner = sorted({*connected.values()})
            accept += [f'iifname "{one}" oifname "{by}" ip daddr {each.destination} accept' for one in inner]
            back = sorted({*every.values()}) if by in inner else []
            accept += [f'iifname "{by}" oifname "{one}" ip saddr {each.destination} accept' for one in back]
    routes.append(("unreachable", "default", "metric", "4278198272"))
    plan.tables[router.router] = routes
    plan.rules |= dict.fromkeys(connected.values(), router.router)
    plan.forwarding |= {*connected.values()}
    plan.arp_entries |= {each: ways.far.arp_entries[each] for each in every.values() if each in ways.far.arp_entries}
    for cidr, bridge in sorted(connected.items()):
        accept += [
            f'iifname "{bridge}" ip saddr {cidr} oifname "{other}" ip daddr {other_cidr} accept'
            for other_cidr, other in sorted(every.items())
            if other != bridge
        ]


def _outward(external: ExternalNetwork, out: Outside) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = [(external.cidr, "dev", out.device)] if external.cidr else []
    if external.gateway and external.gateway != out.own(external):
        found.append(("default", "via", external.gateway, "dev", out.device, "onlink"))
    return found


def _translate(
    plan: RoutePlan,
    router: RouterDescription,
    out: Outside,
    connected: Mapping[str, str],
    source: list[str],
    accept: list[str],
) -> None:
    """Guests without a floating address, by the machine's own address outside or by the router's."""
    assert router.external is not None
    address = out.own(router.external)
    if not address and router.address and router.snat:
        address = router.address
        plan.addresses[address] = out.device
    plan.forwarding.add(out.device)
    if not router.snat or not address:
        return
    for cidr, bridge in sorted(connected.items()):
        source.append(f'ip saddr {cidr} oifname "{out.device}" snat to {address}')
        accept.append(f'iifname "{bridge}" oifname "{out.device}" ip saddr {cidr} accept')


def _inside(address: str, cidr: str) -> bool:
    return ":" not in address and ipaddress.ip_address(address) in ipaddress.ip_network(cidr, strict=False)


def _sets(bridges: Sequence[str], ranges: Iterable[str]) -> str:
    names = ", ".join(f'"{each}"' for each in bridges)
    made = f"  set bridges {{\n    type ifname; elements = {{ {names} }}\n  }}\n"
    inner = ", ".join(sorted(ranges))
    return made + (
        f"  set inside {{\n    type ipv4_addr; flags interval; elements = {{ {inner} }}\n  }}\n" if inner else ""
    )


def _bridged(bridges: Sequence[str]) -> list[str]:
    """Frames that stay on their bridge, where the kernel shows them here at all, are none of its business."""
    return [f'iifname "{each}" oifname "{each}" accept' for each in bridges]


def _chains(dnat: Sequence[str], source: Sequence[str], marked: Sequence[str], accept: Sequence[str]) -> str:
    # what was meant for a floating address goes to a guest of another router's: its own table does not know the way
    marks = [f"iifname @bridges ct status dnat ip daddr @inside meta mark set meta mark or {MARK:#x}"] if dnat else []
    forward = [
        *marked,
        "ct state established,related accept",
        *dict.fromkeys(accept),
        "iifname @bridges drop",
        "oifname @bridges drop",
    ]
    return (
        _chain("prerouting", "nat hook prerouting priority -100", dnat)
        + _chain("output", "nat hook output priority -100", dnat)
        + _chain("marking", "filter hook prerouting priority -90", marks)
        + _chain("postrouting", "nat hook postrouting priority 100", source)
        + _chain("forward", "filter hook forward priority 0", forward)
    )


def _chain(name: str, hook: str, rules: Sequence[str]) -> str:
    if not rules:
        return ""
    lines = "".join(f"    {each}\n" for each in rules)
    return f"  chain {name} {{\n    type {hook}; policy accept;\n{lines}  }}\n"
