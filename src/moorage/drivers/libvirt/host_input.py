"""What guests may say to this machine itself: the text of a part of a table of nftables.  Pure functions.

A machine answers for each of its addresses on all of its devices, so a guest could reach whatever listens here: ssh, the gateways of other
networks, the tunnels' port, by which frames come into any network.  So what comes from a bridge of ours is let in for what the host does for
guests on this bridge, and for nothing else.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from moorage.drivers.libvirt.dhcp import METADATA, METADATA_V6, SERVICE_V6

PRIORITY = 0
BEFORE_TRANSLATION = -101
"""Of floating addresses (route_chains.py)."""
NEIGHBOURS = "130, 131, 132, 133, 135, 136, 143"
"""Types of ICMPv6: listeners of multicast, routers and neighbours, of one link."""


@dataclass(frozen=True)
class OwnAddresses:
    """What the host is for the guests on one bridge: its own address there, and the gateways for which it answers."""

    service: str = ""
    gateways: tuple[str, ...] = ()

    def translated(self) -> Iterable[tuple[str, str]]:
        """Gateway → the address that stands for it."""
        for each in self.gateways if self.service else ():
            yield each, SERVICE_V6 if ":" in each else self.service


def input_chains(bridges: Mapping[str, OwnAddresses], vlans: Iterable[str], ports: Iterable[int] = ()) -> str:
    """`bridges`: bridge of ours → what the host is there. `vlans`: bridges on which the host is nobody. `ports`: of TCP, which guests may
    reach at all addresses of the machine."""
    silent = sorted(vlans)
    if not bridges and not silent:
        return ""
    four = [f'"{bridge}" . {each.service}' for bridge, each in sorted(bridges.items()) if each.service]
    reached = sorted(set(ports))
    guests = [
        "ct direction reply ct state established accept",
        "ct state related accept",
        f"icmpv6 type {{ {NEIGHBOURS} }} accept",
        "icmp type echo-request accept",  # a router answers at all of its addresses, and they are the machine's
        "icmpv6 type echo-request accept",
        "ip daddr 255.255.255.255 udp dport 67 accept",
        "ip6 daddr ff02::1:2 udp dport 547 accept",
        *([f"tcp dport {{ {', '.join(map(str, reached))} }} accept"] if reached else []),
        f"ip daddr {METADATA} tcp dport 80 accept",
        f"ip6 daddr {METADATA_V6} tcp dport 80 accept",
        *(["iifname . ip daddr @own goto services"] if four else []),
        "ip6 daddr fe80::/10 goto services",
        "drop",
    ]
    services = [
        "udp dport { 53, 67, 547 } accept",
        "tcp dport 53 accept",
        "drop",
    ]
    whose = ", ".join(f'"{each}" : jump guests' for each in sorted(bridges))
    input_rules = [f"iifname vmap {{ {whose} }}"] if bridges else []
    input_rules += [f'iifname "{each}" drop' for each in silent]
    forward = [f'iifname "{each}" oifname != "{each}" drop' for each in silent]
    return (
        _set("own", "ipv4_addr", four)
        + _chain("services", services)
        + _chain("guests", guests)
        + _hook("input", input_rules)
        + _hook("forward", forward)
        + _translation(bridges)
    )


def _translation(bridges: Mapping[str, OwnAddresses]) -> str:
    """What a guest says to its gateway is for the host's own address on its bridge: the gateway's is on no device of the machine."""
    every = [(bridge, *each) for bridge, own in sorted(bridges.items()) for each in own.translated()]
    four = [f'"{bridge}" . {gateway} : {own}' for bridge, gateway, own in every if ":" not in gateway]
    six = [f'"{bridge}" . {gateway} : {own}' for bridge, gateway, own in every if ":" in gateway]
    rules = [f"dnat ip to iifname . ip daddr map {{ {', '.join(four)} }}"] if four else []
    rules += [f"dnat ip6 to iifname . ip6 daddr map {{ {', '.join(six)} }}"] if six else []
    if not rules:
        return ""
    return _chain("gateways", [f"type nat hook prerouting priority {BEFORE_TRANSLATION}; policy accept;", *rules])


def _set(name: str, kind: str, elements: list[str]) -> str:
    if not elements:
        return ""
    return f"  set {name} {{\n    type ifname . {kind}; elements = {{ {', '.join(elements)} }}\n  }}\n"


def _chain(name: str, rules: Iterable[str]) -> str:
    return f"  chain {name} {{\n" + "".join(f"    {each}\n" for each in rules) + "  }\n"


def _hook(hook: str, rules: list[str]) -> str:
    kind = f"type filter hook {hook} priority {PRIORITY}; policy accept;"
    return _chain(hook, [kind, *rules]) if rules else ""
