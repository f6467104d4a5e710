"""What a host with routers says of packets: the text of its table of nftables, of what `routes.py` has planned.  Pure functions.

Each VRF has a number, from 1.  What comes from its bridges begins connections in a zone of conntrack of the VRF's own, so that two guests with
one address may speak to one server from one port; answers are in zone 0, where translation keeps them apart.  The connection keeps the number
in its mark.  Whatever answers it, and whatever is for a floating address, has the number in the packet's mark, by which a rule finds the VRF's
table of routes: `iif` alone does not tell whom a packet from outside is for.  It is gone before the packet leaves the host, for a tunnel would
look its own way up by it.

So has whatever comes from a bridge, though `iif` would do for it.  ICMP errors (too big, time exceeded, unreachable) are looked up with the
mark of the packet that they are about (`fwmark_reflect`, routing.py), and with no device: of IPv4 not even their source is known then.  From
one router's guest to another one's, by a floating address, a packet has not its sender's mark; errors about it find the sender by the connection.
"""

from collections.abc import Iterable, Mapping, Sequence

from moorage.drivers.libvirt.dhcp import SERVICE_V6
from moorage.drivers.libvirt.routes import RoutePlan
from moorage.drivers.libvirt.tunnels import ROUTED

SHIFT, MASK = 19, 0x0FF8_0000
"""Of a VRF's number in the marks of packets and of connections."""
OTHERS = 0xFFFF_FFFF ^ MASK
FIRST_ZONE = 61_000
"""The zone of the number 0: above those of filters (described_ports.py)."""
ZONES = -299
"""After the filters' own (port_filter.py): a packet stays in the first zone that it is put into."""
WAYS, ANSWERS = -110, -150
"""Before translation, and after conntrack."""
FOUND = 90
"""Before translation, which asks the connection."""


def mark_of(number: int) -> int:
    return number << SHIFT


def chains_of(plan: RoutePlan, numbers: Mapping[str, int]) -> str:
    """`numbers`: of all VRFs of the plan."""
    if not plan.bridges:
        return ""
    names = ", ".join(f'"{each}"' for each in plan.bridges)
    used = sorted({numbers[vrf] for vrf in plan.vrfs.values()})
    dnat = [f"ip daddr {address} dnat to {fixed}" for address, (_, fixed) in plan.floating.items()]
    made = f"  set bridges {{\n    type ifname; elements = {{ {names} }}\n  }}\n"
    for number in used:
        made += _chain(f"from_{number}", f"ct mark set ct mark and {OTHERS:#010x} or {mark_of(number):#010x}")
        made += _chain(f"to_{number}", f"meta mark set meta mark and {OTHERS:#010x} or {mark_of(number):#010x}")
    for vrf, rules in sorted(plan.source.items(), key=lambda each: numbers[each[0]]):
        made += _chain(f"source_{numbers[vrf]}", *dict.fromkeys(rules))
    answers, floating = _answers(used), _floating(plan, numbers)
    arriving = [
        *_begun(plan, numbers),
        *_from_bridges(plan, numbers),
        *answers,
        *floating,
        *_from_outside(plan, numbers),
    ]
    return made + "".join(
        (
            _hook("zones", f"filter hook prerouting priority {ZONES}", _zones(plan, numbers)),
            _hook("ways", f"filter hook prerouting priority {WAYS}", arriving),
            _hook(
                "answers",
                f"route hook output priority {ANSWERS}",
                [*answers, *_errors_about_answers(plan, numbers), *floating],
            ),
            _hook("prerouting", "nat hook prerouting priority -100", [*_gateways(plan), *dnat]),
            _hook("output", "nat hook output priority -100", dnat),
            _hook("found", f"filter hook postrouting priority {FOUND}", _found(plan)),
            _hook("postrouting", "nat hook postrouting priority 100", _source(plan, numbers)),
            _hook("forward", "filter hook forward priority 0", _forward(plan)),
        )
    )


def _zones(plan: RoutePlan, numbers: Mapping[str, int]) -> list[str]:
    zones = _map(f'"{bridge}" : {FIRST_ZONE + numbers[vrf]}' for bridge, vrf in sorted(plan.vrfs.items()))
    if not plan.vrfs:
        return []
    return [
        "udp dport { 67, 547 } return",  # what all guests say alike, and a server answers by the device
        "ip daddr 224.0.0.0/4 return",
        "ip6 daddr ff00::/8 return",
        "ip6 saddr fe80::/10 return",
        f"ct original zone set iifname map {zones}",
    ]


def _begun(plan: RoutePlan, numbers: Mapping[str, int]) -> list[str]:
    whose = _map(f'"{bridge}" : jump from_{numbers[vrf]}' for bridge, vrf in sorted(plan.vrfs.items()))
    return [f"ct state new iifname vmap {whose}"] if plan.vrfs else []


def _from_bridges(plan: RoutePlan, numbers: Mapping[str, int]) -> list[str]:
    """The mark leads where the rule for the bridge leads; without one there is none."""
    rules = []
    for family, of_family in (("ipv4", plan.four), ("ipv6", plan.six)):
        whose = _map(f'"{bridge}" : jump to_{numbers[vrf]}' for bridge, vrf in sorted(of_family.rules.items()))
        rules += [f"meta nfproto {family} iifname vmap {whose}"] if of_family.rules else []
    return rules


def _errors_about_answers(plan: RoutePlan, numbers: Mapping[str, int]) -> list[str]:
    """They are for the guest behind the floating address; its answer has the mark of the router's guest that asked."""
    whose = _map(f"{address} : goto to_{numbers[vrf]}" for address, (vrf, _) in sorted(plan.floating.items()))
    return [f"ct state related ct direction original ct original ip daddr vmap {whose}"] if plan.floating else []


def _answers(numbers: Sequence[int]) -> list[str]:
    whose = _map(f"{mark_of(each):#010x} : goto to_{each}" for each in numbers)
    return [f"ct direction reply ct mark and {MASK:#010x} vmap {whose}"] if numbers else []


def _floating(plan: RoutePlan, numbers: Mapping[str, int]) -> list[str]:
    whose = _map(f"{address} : goto to_{numbers[vrf]}" for address, (vrf, _) in sorted(plan.floating.items()))
    return [f"ip daddr vmap {whose}"] if plan.floating else []


def _from_outside(plan: RoutePlan, numbers: Mapping[str, int]) -> list[str]:
    """IPv6, which is not translated."""
    rules = []
    for device in sorted({each for each, _ in plan.prefixes}):
        mine = {cidr: numbers[vrf] for (at, cidr), vrf in sorted(plan.prefixes.items()) if at == device}
        whose = _map(f"{cidr} : goto to_{number}" for cidr, number in mine.items())
        rules.append(f'iifname "{device}" ip6 daddr vmap {whose}')
    return rules


def _found(plan: RoutePlan) -> list[str]:
    """What goes to guests keeps its mark, for the error that nobody has the address comes later; firewall.py takes it away before a tunnel."""
    outside = ", ".join(f'"{each}"' for each in sorted((plan.four.forwarding | plan.six.forwarding) - {*plan.bridges}))
    ours = ("iifname @bridges", "ct state related") if outside and plan.vrfs else ()
    return [f"oifname {{ {outside} }} {each} meta mark set meta mark and {OTHERS:#010x}" for each in ours]


def _source(plan: RoutePlan, numbers: Mapping[str, int]) -> list[str]:
    whose = _map(
        f"{mark_of(numbers[vrf]):#010x} : jump source_{numbers[vrf]}"
        for vrf in sorted(plan.source, key=lambda each: numbers[each])
    )
    rules = [f"ct mark and {MASK:#010x} vmap {whose}"] if any(plan.source.values()) else []
    # who has no address outside is seen as the gateway of whom it speaks to
    speaks = {each: _speaks_as(plan, each) for each in plan.bridges if plan.floating}
    senders = _map(f'"{bridge}" : {address}' for bridge, address in speaks.items() if address)
    if not any(speaks.values()):
        return rules
    return [*rules, f"iifname @bridges oifname @bridges ct status dnat snat ip to oifname map {senders}"]


def _speaks_as(plan: RoutePlan, bridge: str) -> str:
    own = [each for each in plan.gateways.get(bridge, ()) if ":" not in each]
    return own[0] if own else plan.services.get(bridge, "")


def _gateways(plan: RoutePlan) -> list[str]:
    """A router answers at all of its addresses: those of its other networks, too (host_input.py has each network's own)."""
    four, six = [], []
    for bridge, vrf in sorted(plan.vrfs.items()):
        others = [each for each, other in sorted(plan.vrfs.items()) if other == vrf and each != bridge]
        own = {*plan.gateways.get(bridge, ())}
        for gateway in sorted({one for each in others for one in plan.gateways.get(each, ())} - own):
            if ":" in gateway:
                six.append(f'"{bridge}" . {gateway} : {SERVICE_V6}')
            elif bridge in plan.services:
                four.append(f'"{bridge}" . {gateway} : {plan.services[bridge]}')
    rules = [f"dnat ip to iifname . ip daddr map {_map(four)}"] if four else []
    return rules + ([f"dnat ip6 to iifname . ip6 daddr map {_map(six)}"] if six else [])


def _forward(plan: RoutePlan) -> list[str]:
    """Frames that stay on their bridge, where the kernel shows them here at all, are none of its business.  Only answers pass by state: what
    began a connection is held against the rules with every packet, so a router or a floating address that goes ends what it carried."""
    bridged = [f'iifname "{each}" oifname "{each}" accept' for each in plan.bridges]
    marked = [f"oifname @bridges meta mark set meta mark or {ROUTED:#x}"] if plan.arp_entries else []
    return [
        *marked,
        "ct direction reply ct state established accept",
        "ct state related accept",
        *bridged,
        *dict.fromkeys(plan.accept),
        "iifname @bridges drop",
        "oifname @bridges drop",
    ]


def _map(entries: Iterable[str]) -> str:
    return f"{{ {', '.join(entries)} }}"


def _chain(name: str, *rules: str) -> str:
    return f"  chain {name} {{\n" + "".join(f"    {each}\n" for each in rules) + "  }\n"


def _hook(name: str, hook: str, rules: Sequence[str]) -> str:
    return _chain(name, f"type {hook}; policy accept;", *rules) if rules else ""
