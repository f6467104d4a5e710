"""Routers of the embedded network service on this host, as a plan: pure functions.  `routing.py` puts it into effect.

Each host routes for its own guests.  A router is a table of routes that what comes from its networks' bridges is looked up in, and nothing
else: its subnets as far as their bridges are here, the outside, its static routes; else a packet goes nowhere.  `route_chains.py` has what is
said of packets: which router answers are for, zones of conntrack, translation, isolation.

    floating address    DNAT to the guest and SNAT from it, on the host that has the guest; the outside is told by ARP who has it
    outside, IPv4       under the external device's own address where it has one in that network; else the router's address is taken onto
                        the device, which is right where one host has such a device
    outside, IPv6       nothing is translated: the outside has a route to the router's address, which one host has
    isolation           whatever comes from a bridge of ours, or goes to one, and is none of these, is not forwarded

Networks may have the same addresses: each router is a VRF, and so is a bridge without a router.  A VRF
has a number, by which its table of routes, its zone of conntrack, and marks of packets and connections are known.
"""

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from moorage.drivers.libvirt.far_networks import own_bridge_of
from moorage.model.route_description import ExternalNetwork, FloatingAddress, RoutedSubnet, RouterDescription

FIRST_TABLE, TABLES_MAX = 43_600, 400
PLAIN_MAX = 300
"""Tables that bridges without a router take: routers find one."""
RULE_PRIORITY, MARKED_PRIORITY = 1_045, 1_044
NOWHERE = ("unreachable", "default", "metric", "4278198272")


@dataclass(frozen=True)
class RoutedPort:
    """A port of this host: its bridge, its addresses with their ranges, and what it was described to reach."""

    bridge: str
    cidrs: tuple[str, ...]
    floating: tuple[FloatingAddress, ...] = ()
    routers: tuple[RouterDescription, ...] = ()
    gateways: tuple[str, ...] = ()
    """Addresses of the bridge's guests' gateways, for which this host answers."""


@dataclass(frozen=True)
class Outside:
    """A device of this machine that leads to an external network; `addresses`: what the machine has there itself, with lengths of prefixes."""

    device: str
    addresses: tuple[str, ...] = ()

    def own(self, cidr: str) -> str:
        """The machine's address in that range; empty for none."""
        if not cidr:
            return ""
        network = ipaddress.ip_network(cidr, strict=False)
        found = (each.partition("/")[0] for each in self.addresses)
        return next((each for each in found if ipaddress.ip_address(each) in network), "")


@dataclass(frozen=True)
class FarSide:
    """What of this host's routers is on other hosts."""

    bridges: frozenset[str] = frozenset()
    """Of networks that this host has no guests of."""
    arp_entries: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Bridge → address → MAC, of networks that this host has a tunnel of; of both families."""


NOTHING_FAR = FarSide()


@dataclass
class FamilyPlan:
    """Of IPv4, or of IPv6."""

    tables: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)
    """VRF → the routes of its table, in the words of `ip route`."""
    rules: dict[str, str] = field(default_factory=dict)
    """Bridge → the router that what comes from it is for."""
    forwarding: set[str] = field(default_factory=set)
    """Devices from which packets are forwarded."""


@dataclass
class RoutePlan:
    """What is to be there; `routing.py` takes away what is not in it."""

    four: FamilyPlan = field(default_factory=FamilyPlan)
    six: FamilyPlan = field(default_factory=FamilyPlan)
    vrfs: dict[str, str] = field(default_factory=dict)
    """Bridge → the VRF that its addresses are of."""
    bridges: list[str] = field(default_factory=list)
    """All of this host, and those of networks that it routes into."""
    addresses: dict[str, str] = field(default_factory=dict)
    """Address that this host answers for outside → device."""
    floating: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Floating address → the VRF and the address that it stands for."""
    prefixes: dict[tuple[str, str], str] = field(default_factory=dict)
    """External device and range of IPv6 → the VRF that what comes from there to there is for."""
    source: dict[str, list[str]] = field(default_factory=dict)
    """VRF → in whose name its guests speak."""
    accept: list[str] = field(default_factory=list)
    """What is forwarded."""
    arp_entries: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """Bridge → address → MAC, of both families."""
    gateways: dict[str, list[str]] = field(default_factory=dict)
    """Bridge of this host's guests → their gateways, of both families."""
    services: dict[str, str] = field(default_factory=dict)
    """Bridge → the host's own address on it (bridge_tables.py)."""
    troubles: list[str] = field(default_factory=list)

    @property
    def tables(self) -> set[str]:
        """VRFs with routes."""
        return {*self.four.tables, *self.six.tables}


def planned(
    ports: Sequence[RoutedPort],
    outside: Mapping[str, Outside],
    own_addresses: Iterable[str] = (),
    far: FarSide = NOTHING_FAR,
) -> RoutePlan:
    """`ports`: all of this host. `outside`: physical network, or id of an external network → device. `own_addresses`: those that we put
    onto devices ourselves."""
    plan = RoutePlan(bridges=sorted({*(each.bridge for each in ports), *far.bridges}))
    ours = set(own_addresses)
    external = {
        name: Outside(each.device, tuple(a for a in each.addresses if a.partition("/")[0] not in ours))
        for name, each in outside.items()
    }
    ranges: dict[str, set[str]] = {}
    for port in ports:
        ranges.setdefault(port.bridge, set()).update(port.cidrs)
        known = plan.gateways.setdefault(port.bridge, [])
        known += [each for each in port.gateways if each not in known]
    routers = sorted(
        {each.router: each for port in ports for each in port.routers}.values(), key=lambda one: one.router
    )
    claimed = [ways for router in routers if _claim(plan, ways := _Ways(router, ranges, far))]
    for port in ports:
        for each in port.floating:
            _float(plan, port.bridge, each, external)
    _share_outside(plan, claimed, external)
    for ways in claimed:
        _route_four(plan, ways, external)
        _route_six(plan, ways, external)
    _separate_bridges(plan, ranges)
    return plan


@dataclass(frozen=True)
class _Ways:
    """Where a router's subnets are, as seen from this host."""

    router: RouterDescription
    ranges: Mapping[str, set[str]]
    """Bridge of this host's guests → their ranges."""
    far: FarSide

    def near(self, subnets: Iterable[RoutedSubnet]) -> dict[str, str]:
        """Range → bridge, of those that this host has guests of."""
        named = {each.cidr: own_bridge_of(each.network) for each in subnets}
        return {cidr: bridge for cidr, bridge in sorted(named.items()) if cidr in self.ranges.get(bridge, ())}

    def beyond(self, subnets: Iterable[RoutedSubnet]) -> dict[str, str]:
        """And of those that it has none of."""
        named = {each.cidr: own_bridge_of(each.network) for each in subnets}
        return {cidr: bridge for cidr, bridge in sorted(named.items()) if bridge in self.far.bridges}


def _claim(plan: RoutePlan, ways: _Ways) -> bool:
    """A network's gateway is one router: of several, the first by their ids. Whether it is this one, in all its networks."""
    router = ways.router
    mine = {*ways.near(router.subnets).values(), *ways.near(router.subnets6).values()}
    if any(bridge in plan.vrfs for bridge in mine):
        plan.troubles.append(
            f"router {router.router} shares a network with another one, which is the network's gateway"
        )
        return False
    plan.vrfs |= dict.fromkeys(sorted(mine), router.router)
    return True


def _float(plan: RoutePlan, bridge: str, floating: FloatingAddress, outside: Mapping[str, Outside]) -> None:
    vrf = plan.vrfs.get(bridge)
    if vrf is None:  # its router is switched off
        return
    out = _way_out(outside, floating.external)
    if out is None:
        plan.troubles.append(f"{floating.address} is of a network that no device of this host leads to")
        return
    address, fixed = floating.address, floating.fixed
    plan.addresses[address] = out.device
    plan.floating[address] = vrf, fixed
    plan.source.setdefault(vrf, []).extend(
        (
            f'ip saddr {fixed} oifname "{out.device}" snat to {address}',
            f"ip saddr {fixed} ct status dnat oifname @bridges snat to {address}",
        )
    )
    plan.accept.append(f'oifname "{bridge}" ip daddr {fixed} ct status dnat accept')
    plan.accept.append(f'iifname "{bridge}" oifname "{out.device}" ip saddr {fixed} accept')
    plan.four.forwarding |= {out.device, bridge}


def _way_out(outside: Mapping[str, Outside], external: ExternalNetwork | None) -> Outside | None:
    if external is None:
        return None
    return outside.get(external.network) or outside.get(external.physical_network or "")


def _route_four(plan: RoutePlan, ways: _Ways, outside: Mapping[str, Outside]) -> None:
    router, connected = ways.router, ways.near(ways.router.subnets)
    every = {**connected, **ways.beyond(router.subnets)}
    routes = _connected(every, plan.gateways, six=False)
    out = _way_out(outside, router.external)
    if out is not None and router.external is not None:
        routes += _outward(router.external.cidr, router.external.gateway, out)
        _translate(plan, router, out, connected)
    routes += _static(plan, router, connected, every, "ip")
    plan.four.tables[router.router] = [*routes, NOWHERE]
    plan.four.rules |= dict.fromkeys(connected.values(), router.router)
    plan.four.forwarding |= {*connected.values()}
    _join(plan, ways.far, connected, every, "ip")


def _route_six(plan: RoutePlan, ways: _Ways, outside: Mapping[str, Outside]) -> None:
    """What of the outside comes by the router's address, on the host that has it, is for any of its subnets, there or on other hosts."""
    router, connected = ways.router, ways.near(ways.router.subnets6)
    every = {**connected, **ways.beyond(router.subnets6)}
    if not every:
        return
    routes = _connected(every, plan.gateways, six=True)
    out = _way_out(outside, router.external)
    if out is not None and router.external is not None and router.external.cidr6:
        routes += _outward(router.external.cidr6, router.external.gateway6, out)
        plan.six.forwarding.add(out.device)
        if router.address6:
            plan.addresses[router.address6] = out.device
        for cidr, bridge in sorted(every.items()):
            if plan.prefixes.get((out.device, cidr)) != router.router:
                continue  # nor does it speak to the outside: answers would go to whom they are not for
            plan.accept.append(f'iifname "{out.device}" oifname "{bridge}" ip6 daddr {cidr} accept')
            if cidr in connected:
                plan.accept.append(f'iifname "{bridge}" oifname "{out.device}" ip6 saddr {cidr} accept')
    routes += _static(plan, router, connected, every, "ip6")
    plan.six.tables[router.router] = [*routes, NOWHERE]
    plan.six.rules |= dict.fromkeys(connected.values(), router.router)
    plan.six.forwarding |= {*connected.values()}
    _join(plan, ways.far, connected, every, "ip6")


def _share_outside(plan: RoutePlan, claimed: Sequence[_Ways], outside: Mapping[str, Outside]) -> None:
    """Ranges of IPv6 are not translated, and tenants choose them: what comes from outside is for the router that had the range first, and not
    for the one whose id is smaller, which a tenant makes routers for until it is. An address scope of the operator's decides before that."""
    claims = []
    for ways in claimed:
        router = ways.router
        out = _way_out(outside, router.external)
        if out is None or router.external is None or not router.external.cidr6:
            continue
        reached = {*ways.near(router.subnets6), *ways.beyond(router.subnets6)}
        claims += [
            (each.since, router.router, each.cidr, out.device)
            for each in router.subnets6
            if each.cidr in reached and each.outside
        ]
    for _, router_id, cidr, device in sorted(claims):
        if any(at == device and _overlap(cidr, other) for at, other in plan.prefixes):
            plan.troubles.append(f"{cidr} of router {router_id} is not reached from outside: another one has it")
        else:
            plan.prefixes[device, cidr] = router_id


def _static(
    plan: RoutePlan, router: RouterDescription, connected: Mapping[str, str], every: Mapping[str, str], family: str
) -> list[tuple[str, ...]]:
    """The router's own routes, of this family."""
    routes: list[tuple[str, ...]] = []
    for each in router.routes:
        cidr, by = next((one for one in every.items() if _inside(each.hop, one[0])), ("", ""))
        if not by or (":" in each.destination) is not (family == "ip6"):
            continue
        source = _preferred_source(cidr, plan.gateways.get(by, ()))
        routes.append((each.destination, "via", each.hop, "dev", by, *source))
        inner = sorted({*connected.values()})
        plan.accept += [f'iifname "{one}" oifname "{by}" {family} daddr {each.destination} accept' for one in inner]
        back = sorted({*every.values()}) if by in inner else []
        plan.accept += [f'iifname "{by}" oifname "{one}" {family} saddr {each.destination} accept' for one in back]
    return routes


def _join(plan: RoutePlan, far: FarSide, connected: Mapping[str, str], every: Mapping[str, str], family: str) -> None:
    plan.arp_entries |= {each: far.arp_entries[each] for each in every.values() if each in far.arp_entries}
    for cidr, bridge in sorted(connected.items()):
        plan.accept += [
            f'iifname "{bridge}" {family} saddr {cidr} oifname "{other}" {family} daddr {other_cidr} accept'
            for other_cidr, other in sorted(every.items())
            if other != bridge
        ]


def _outward(cidr: str, gateway: str, out: Outside) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = [(cidr, "dev", out.device)] if cidr else []
    if gateway and gateway != out.own(cidr):
        found.append(("default", "via", gateway, "dev", out.device, "onlink"))
    return found


def _translate(plan: RoutePlan, router: RouterDescription, out: Outside, connected: Mapping[str, str]) -> None:
    """Guests without a floating address, by the machine's own address outside or by the router's."""
    assert router.external is not None
    address = out.own(router.external.cidr)
    if not address and router.address and router.snat:
        address = router.address
        plan.addresses[address] = out.device
    plan.four.forwarding.add(out.device)
    if not router.snat or not address:
        return
    source = plan.source.setdefault(router.router, [])
    for cidr, bridge in sorted(connected.items()):
        source.append(f'ip saddr {cidr} oifname "{out.device}" snat to {address}')
        source.append(f"ip saddr {cidr} ct status dnat oifname @bridges snat to {address}")
        plan.accept.append(f'iifname "{bridge}" oifname "{out.device}" ip saddr {cidr} accept')


def _separate_bridges(plan: RoutePlan, ranges: Mapping[str, set[str]]) -> None:
    """A bridge without a router is a VRF for itself: answers of the host find it so. Where there are very many, those whose addresses another
    one has too come first: others are answered at the host's own address on their bridge, and at no other one of the machine."""
    four = {bridge: sorted(each for each in cidrs if ":" not in each) for bridge, cidrs in ranges.items()}
    equal = overlapping(four)
    for bridge in sorted(ranges, key=lambda each: (each not in equal, each)):
        if bridge in plan.vrfs or (bridge not in equal and len(plan.tables) >= PLAIN_MAX):
            continue
        plan.vrfs[bridge] = bridge
        six = sorted(ranges[bridge] - {*four[bridge]})
        for family, cidrs, is_six in ((plan.four, four[bridge], False), (plan.six, six, True)):
            if cidrs or not is_six:
                routes = _connected(dict.fromkeys(cidrs, bridge), plan.gateways, six=is_six)
                family.tables[bridge] = [*routes, NOWHERE]
                family.rules[bridge] = bridge


def _connected(every: Mapping[str, str], gateways: Mapping[str, Iterable[str]], *, six: bool) -> list[tuple[str, ...]]:
    """Range → bridge. The host is the gateway of its own guests' bridges: local in this table, and in none that it uses itself."""
    found: list[tuple[str, ...]] = []
    for bridge in sorted({*every.values()}):
        found += [("local", each, "dev", bridge) for each in gateways.get(bridge, ()) if (":" in each) is six]
    return found + [
        (cidr, "dev", bridge, *_preferred_source(cidr, gateways.get(bridge, ())))
        for cidr, bridge in sorted(every.items())
    ]


def _preferred_source(cidr: str, gateways: Iterable[str]) -> tuple[str, ...]:
    """Of ICMP errors there: the gateway's address, not the bridge's own, whose rule (bridge_tables.py) comes before the mark's. For IPv6 the
    kernel takes an address of the device that the packet came by."""
    own = next((each for each in gateways if ":" not in each and _inside(each, cidr)), "")
    return ("src", own) if own else ()


def overlapping(ranges: Mapping[str, Iterable[str]]) -> set[str]:
    """Bridges, some of whose ranges of IPv4 overlap one of another bridge. Prefixes are in one another or apart, so a single pass in their
    order finds them: a host may have thousands of networks, and asks at each boot."""
    holders: dict[tuple[int, int], set[str]] = {}
    for bridge, cidrs in ranges.items():
        for cidr in cidrs:
            network = ipaddress.ip_network(cidr, strict=False)
            key = int(network.network_address), -int(network.broadcast_address)
            holders.setdefault(key, set()).add(bridge)
    found: set[str] = set()
    around: list[tuple[int, set[str]]] = []
    for (first, last), mine in sorted(holders.items()):
        while around and around[-1][0] < first:
            around.pop()
        if len(mine) > 1:
            found |= mine
        for _, theirs in around:
            if len(theirs) > 1 or theirs != mine:
                found |= mine if len(theirs) > 1 else mine | theirs
        around.append((-last, mine))
    return found


def _overlap(one: str, other: str) -> bool:
    return ipaddress.ip_network(one, strict=False).overlaps(ipaddress.ip_network(other, strict=False))


def _inside(address: str, cidr: str) -> bool:
    return ipaddress.ip_address(address) in ipaddress.ip_network(cidr, strict=False)
