"""Which frames pass the taps of this host: two tables of nftables that are written anew as a whole, in one transaction.

    bridge moorage_filter_<8 characters of the host's owner>    what each tap may send (prerouting) and receive (postrouting)
    inet   the same name                                        what conntrack knows of a packet, as one bit of its mark

nftables knows no connections in the family `bridge` without a part of the kernel that not every kernel has.  So bridges of ours hand IP packets
to the family `inet` (br_netfilter, for each bridge, not for the machine), where answers get the mark that the tables of the bridge read.
Only answers pass by state: what began a connection is held against the rules with every packet, so a rule that goes ends what it allowed.

Frames between guests are in a zone of conntrack of their own for each bridge, since two networks may have the same addresses; what goes to the
bridge's own MAC or comes from the host is in zone 0, where routing and NAT are.  What one of a router's subnets says to another is in a zone of
that router: there and back it may go through different bridges, of which a host sees one.  So is what the outside says to them by IPv6, and they
to the outside, since the host that the outside sends it to may be another one.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv6Address, IPv6Network
from typing import Literal

from moorage.drivers.libvirt.described_ports import AddressSet
from moorage.drivers.libvirt.filter_rules import Inexpressible, listed, networks, rule_line, set_name
from moorage.model.port_description import AllowedAddresses, PacketRate, PortDescription, PortFilter

ANSWER = 0x4000_0000
"""The bit of the mark of packets that answer what was allowed."""
NOT_ANSWER = 0xFFFF_FFFF ^ ANSWER
ZONES, STATES, FRAMES = -300, -150, 100
"""Priorities: before conntrack; after it; in the bridge, after br_netfilter (0)."""
NEVER_ROUTED = "fe80::/10, ff00::/8"
NO_MAC = "00:00:00:00:00:00"
MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
ADDRESSES_PER_PORT_MAX = 1_000
BURST_S, BURST_LEAST, BURST_MOST = 0.1, 10, 1 << 31
"""Packets that may come at once, where nobody says how many: those of this time."""

RARP = 0x8035
"""With it QEMU says on what host a guest is now that was sent while it ran; switches and tunnels learn by it."""
DHCP_ASK, DHCP_ANSWER = "udp sport 68 udp dport 67", "udp sport 67 udp dport 68"
DHCPV6_ASK, DHCPV6_ANSWER = "udp sport 546 udp dport 547", "udp sport 547 udp dport 546"
LISTENER_QUERY, LISTENER_REPORT, LISTENER_DONE, LISTENER_REPORT_V2 = 130, 131, 132, 143
ROUTER_SOLICIT, ROUTER_ADVERT, NEIGHBOUR_SOLICIT, NEIGHBOUR_ADVERT, REDIRECT = 133, 134, 135, 136, 137
"""Types of ICMPv6."""
MAY_SEND = f"{{ {LISTENER_REPORT}, {LISTENER_DONE}, {ROUTER_SOLICIT}, {NEIGHBOUR_SOLICIT}, {LISTENER_REPORT_V2} }}"
MAY_RECEIVE = f"{{ {LISTENER_QUERY}, {LISTENER_REPORT}, {LISTENER_DONE}, {ROUTER_ADVERT}, {NEIGHBOUR_SOLICIT}, {NEIGHBOUR_ADVERT} }}"


@dataclass(frozen=True)
class FilteredTap:
    """A tap in a bridge, and what its port is to let pass; without a description it is closed."""

    tap: str
    bridge: str
    mac: str
    description: PortDescription | None = None


@dataclass(frozen=True)
class FilteredBridge:
    """A bridge with such taps."""

    mac: str
    zone: int


@dataclass(frozen=True)
class RoutedZone:
    """A router with several networks, as far as its bridges are here."""

    zone: int
    bridges: tuple[str, ...]
    subnets: tuple[str, ...]
    beyond: tuple[str, ...] = ()
    """Where its static routes lead."""
    is_open: bool = False
    """Whether the outside reaches its subnets of IPv6."""


@dataclass
class Ruleset:
    """What nft reads, and what of the descriptions is not in it."""

    text: str = ""
    troubles: list[str] = field(default_factory=list)

    def add(self, lines: Sequence[str]) -> None:
        self.text += "".join(f"{each}\n" for each in lines)


def ruleset(
    table: str,
    taps: Sequence[FilteredTap],
    bridges: Mapping[str, FilteredBridge],
    sets: Mapping[str, AddressSet],
    routed: Sequence[RoutedZone] = (),
) -> Ruleset:
    """All of both tables, over whatever was in them; without taps there are none afterwards."""
    made = Ruleset()
    for family in ("bridge", "inet"):
        made.add((f"table {family} {table}", f"delete table {family} {table}"))
    if taps:
        made.add((f"table bridge {table} {{",))
        _add_sets(made, taps, sets)
        for tap in taps:
            _add_tap(made, tap, frozenset(sets))
        made.add(_hook("sent", "prerouting", FRAMES, [_verdicts("iifname", taps, "from")]))
        made.add(_hook("received", "postrouting", FRAMES, [_verdicts("oifname", taps, "to")]))
        made.add(("}",))
        made.add((f"table inet {table} {{", *_states(bridges, routed), "}"))
    return made


def _verdicts(where: str, taps: Sequence[FilteredTap], prefix: str) -> str:
    entries = ", ".join(f'"{each.tap}" : jump {prefix}_{each.tap}' for each in taps)
    return f"{where} vmap {{ {entries} }}"


def _hook(name: str, hook: str, priority: int, lines: Sequence[str]) -> list[str]:
    return [
        f"  chain {name} {{",
        f"    type filter hook {hook} priority {priority}; policy accept;",
        *(f"    {each}" for each in lines),
        "  }",
    ]


def _chain(name: str, lines: Sequence[str]) -> list[str]:
    return [f"  chain {name} {{", *(f"    {each}" for each in lines), "  }"]


def _states(bridges: Mapping[str, FilteredBridge], routed: Sequence[RoutedZone]) -> list[str]:
    names = ", ".join(f'"{each}"' for each in sorted(bridges))
    zones = [
        f'iifname "{name}" ether daddr != {each.mac} ct zone set {each.zone}' for name, each in sorted(bridges.items())
    ]
    inner: list[str] = []
    ways: list[str] = []  # a packet is in the first zone that it is put into
    answers: list[str] = []
    for each in routed:
        inner += _of_router(each)
        whose = ", ".join(f'"{name}"' for name in each.bridges)
        among = _among(each)
        ways += [f"iifname {{ {whose} }} {one} jump routed_{each.zone}" for one in among]
        answers += [f"oifname {{ {whose} }} {one} jump routed_{each.zone}" for one in among]
        if each.is_open:
            ways.append(f"iifname != {{ {names} }} ip6 daddr @router6_{each.zone} jump routed_{each.zone}")
    marks = [
        f"meta mark set meta mark & {NOT_ANSWER:#010x}",
        f"ct direction reply ct state established meta mark set meta mark | {ANSWER:#010x}",
        f"ct state related meta mark set meta mark | {ANSWER:#010x}",
    ]
    return [
        *inner,
        *_chain("state", marks),
        *_hook("zones", "prerouting", ZONES, [*ways, *zones]),
        *(_hook("own_zones", "output", ZONES, answers) if answers else []),
        *_hook("bridged", "prerouting", STATES, [f"iifname {{ {names} }} jump state"]),
        *_hook("routed", "postrouting", STATES, [f"oifname {{ {names} }} jump state"]),
    ]


def _of_router(routed: RoutedZone) -> list[str]:
    """The sets of its addresses, and the chain that puts what passes it into its zone: what stays in a subnet does not."""
    four, six, _ = networks((*routed.subnets, *(one for one in routed.beyond if not one.endswith("/0"))))
    sets = _set(f"router_{routed.zone}", "ipv4_addr", listed(four)) if four else []
    sets += _set(f"router6_{routed.zone}", "ipv6_addr", listed(six)) if six else []
    inside: list[str] = []
    for cidr in routed.subnets:  # one by one: neighbouring ranges are not one
        own_four, own_six, _ = networks([cidr])
        inside += [f"ip saddr {one} ip daddr {one} return" for one in own_four]
        inside += [f"ip6 saddr {one} ip6 daddr {one} return" for one in own_six]
    if routed.is_open:
        inside += [f"ip6 {where} {{ {NEVER_ROUTED} }} return" for where in ("saddr", "daddr")]
    return [*sets, *_chain(f"routed_{routed.zone}", [*inside, f"ct zone set {routed.zone}"])]


def _among(routed: RoutedZone) -> list[str]:
    """What passes it."""
    own_four, own_six, _ = networks(routed.subnets)
    four, six = f"@router_{routed.zone}", f"@router6_{routed.zone}"
    ways = [f"ip saddr {four} ip daddr {four}"] if own_four else []
    if routed.is_open:
        return [*ways, f"ip6 saddr {six}", f"ip6 daddr {six}"]
    return [*ways, f"ip6 saddr {six} ip6 daddr {six}"] if own_six else ways


# ------------------------------------------------------------------------------------------------ sets


def _add_sets(made: Ruleset, taps: Sequence[FilteredTap], sets: Mapping[str, AddressSet]) -> None:
    """Those that rules name; both families of each, for a set may have addresses of both."""
    named = sorted(
        {
            rule.members
            for tap in taps
            if tap.description is not None and tap.description.filter is not None
            for rule in tap.description.filter.rules
            if rule.members in sets
        }
    )
    for id in named:
        four, six, bad = networks(sets[id].addresses)
        if bad:
            made.troubles.append(f"set {id}: {len(bad)} members are no addresses, the first is {bad[0][:70]!r}")
        try:
            made.add(
                [*_set(set_name(4, id), "ipv4_addr", listed(four)), *_set(set_name(6, id), "ipv6_addr", listed(six))]
            )
        except Inexpressible as refused:
            made.troubles.append(f"set {id[:70]!r}: {refused}")


def _set(name: str, kind: str, elements: str) -> list[str]:
    filled = [f"    elements = {{ {elements} }}"] if elements else []
    return [f"  set {name} {{", f"    type {kind}", "    flags interval", *filled, "  }"]


# ------------------------------------------------------------------------------------------------ taps


def _add_tap(made: Ruleset, tap: FilteredTap, sets: frozenset[str]) -> None:
    description = tap.description
    if description is None:
        question = f"ether saddr {tap.mac} ip saddr 0.0.0.0 {DHCP_ASK} accept"
        made.add(_chain(f"from_{tap.tap}", [question, "drop"]))
        made.add(_chain(f"to_{tap.tap}", [f"{DHCP_ANSWER} accept", "drop"]))
    elif not description.up:
        made.add(_chain(f"from_{tap.tap}", ["drop"]))
        made.add(_chain(f"to_{tap.tap}", ["drop"]))
    elif description.filter is None:
        made.add(_chain(f"from_{tap.tap}", [*_counted(description, "from"), *_marked(description), "accept"]))
        made.add(_chain(f"to_{tap.tap}", [*_counted(description, "to"), "accept"]))
    else:
        _add_filtered(made, tap, description, description.filter, sets)


def _counted(description: PortDescription, direction: Literal["from", "to"]) -> list[str]:
    """What is more than the port's rate of packets is dropped, before anything else is asked of it."""
    bandwidth = description.bandwidth
    if bandwidth is None:
        return []
    rate: PacketRate = bandwidth.egress_packets if direction == "from" else bandwidth.ingress_packets
    if not rate.limit_pps:
        return []
    burst = min(max(rate.burst_packets or int(rate.limit_pps * BURST_S), BURST_LEAST), BURST_MOST)
    return [f"limit rate over {rate.limit_pps}/second burst {burst} packets drop"]


def _marked(description: PortDescription) -> list[str]:
    """DSCP, in the header of each packet."""
    mark = None if description.bandwidth is None else description.bandwidth.dscp
    return [] if mark is None or not 0 <= mark < 64 else [f"ip dscp set {mark}", f"ip6 dscp set {mark}"]


def _add_filtered(
    made: Ruleset, tap: FilteredTap, description: PortDescription, wanted: PortFilter, sets: frozenset[str]
) -> None:
    sent: list[str] = []
    received: list[str] = []
    for rule in wanted.rules:
        try:
            (received if rule.direction == "ingress" else sent).append(rule_line(rule, sets))
        except Inexpressible as refused:
            made.troubles.append(f"port {description.port}: a rule is left out: {refused}")
    own = _own_addresses(made, description, wanted)
    macs = ", ".join(sorted(own))
    answers = [f"meta mark & {ANSWER:#010x} != 0 accept"] if wanted.stateful else []
    six = [each for _, of_six in own.values() for each in of_six]
    made.add(_chain(f"advert_{tap.tap}", _advertised(six)))
    made.add(
        _chain(
            f"rules_{tap.tap}",
            [
                f"{DHCP_ASK} accept",
                f"{DHCPV6_ASK} accept",
                # whatever port they come from: clients look at their own one
                "udp dport { 68, 546 } drop",
                f"icmpv6 type {MAY_SEND} accept",
                f"icmpv6 type {{ {ROUTER_ADVERT}, {REDIRECT} }} drop",
                f"icmpv6 type {NEIGHBOUR_ADVERT} goto advert_{tap.tap}",
                *answers,
                *dict.fromkeys(sent),
                "drop",
            ],
        )
    )
    before = [*_counted(description, "from"), *_marked(description)]
    made.add(_chain(f"from_{tap.tap}", [*before, *_not_spoofed(own, macs, f"rules_{tap.tap}"), "drop"]))
    made.add(
        _chain(
            f"to_{tap.tap}",
            [
                *_counted(description, "to"),
                f"ether daddr & 01:00:00:00:00:00 == 00:00:00:00:00:00 ether daddr != {{ {macs} }} drop",
                "ether type arp accept",
                f"{DHCP_ANSWER} accept",
                f"{DHCPV6_ANSWER} accept",
                f"icmpv6 type {MAY_RECEIVE} accept",
                *answers,
                *dict.fromkeys(received),
                "drop",
            ],
        )
    )


def _own_addresses(
    made: Ruleset, description: PortDescription, wanted: PortFilter
) -> dict[str, tuple[list[str], list[IPv6Network]]]:
    """MAC → the prefixes that may be sent from, IPv4 in words; each MAC has its own link-local address besides."""
    found: dict[str, tuple[list[str], list[IPv6Network]]] = {}
    for each in wanted.allowed or (AllowedAddresses(description.mac),):
        try:
            link_local = IPv6Network(link_local_of(each.mac))
        except ValueError:
            made.troubles.append(f"port {description.port}: {each.mac[:40]!r} is no MAC")
            continue
        four, six, bad = networks((*each.prefixes[:ADDRESSES_PER_PORT_MAX], str(link_local)))
        if bad:
            made.troubles.append(f"port {description.port}: {bad[0][:70]!r} is no address")
        if len(each.prefixes) > ADDRESSES_PER_PORT_MAX:
            made.troubles.append(f"port {description.port}: it has more than {ADDRESSES_PER_PORT_MAX} addresses")
        found[each.mac] = [listed([one]) for one in four], six
    if not found:
        made.troubles.append(f"port {description.port}: it has no MAC, and is closed")
        found[NO_MAC] = [], []
    return found


def link_local_of(mac: str) -> str:
    """By RFC 4291. Raises ValueError for what is no MAC."""
    if not MAC.fullmatch(mac):
        raise ValueError(mac)
    octets = bytearray.fromhex(mac.replace(":", ""))
    octets[0] ^= 2
    return str(IPv6Address(bytes([0xFE, 0x80, 0, 0, 0, 0, 0, 0, *octets[:3], 0xFF, 0xFE, *octets[3:]])))


def _not_spoofed(own: Mapping[str, tuple[list[str], list[IPv6Network]]], macs: str, then: str) -> list[str]:
    """Frames from its own MACs and addresses go on; so does what a guest sends before it has an address."""
    lines = [f"ether saddr != {{ {macs} }} drop"]
    for mac, (four, _) in own.items():
        addresses = listed(networks(("0.0.0.0", *four))[0])
        lines.append(f"ether saddr {mac} arp saddr ether {mac} arp saddr ip {{ {addresses} }} accept")
    lines += [
        "ether type arp drop",
        f"ether type {RARP:#06x} accept",
        f"ip saddr 0.0.0.0 {DHCP_ASK} accept",
        f"ip6 saddr :: icmpv6 type {MAY_SEND} accept",
    ]
    for mac, (four, six) in own.items():
        if four:
            lines.append(f"ether saddr {mac} ip saddr {{ {', '.join(four)} }} goto {then}")
        if six:
            lines.append(f"ether saddr {mac} ip6 saddr {{ {listed(six)} }} goto {then}")
    return lines


def _advertised(six: Sequence[IPv6Network]) -> list[str]:
    """A neighbour advertisement is about an address of its own: the 16 bytes after the first 8."""
    lines = []
    for each in six:
        mask, address = int(each.netmask), int(each.network_address)
        lines.append(f"@th,64,128 & {mask:#034x} == {address:#034x} accept")
    return [*dict.fromkeys(lines), "drop"]
