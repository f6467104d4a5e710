"""What guests may say to this machine itself: the text of a part of a table of nftables.  Pure functions.

A machine answers for each of its addresses on all of its devices, so a guest could reach whatever listens here: ssh, the gateways of other
networks, the tunnels' port, by which frames come into any network.  So what comes from a bridge of ours is let in for what the host does for
guests on this bridge, and for nothing else.
"""

from collections.abc import Iterable, Mapping
from ipaddress import ip_address

from moorage.drivers.libvirt.dhcp import METADATA, METADATA_V6

PRIORITY = 0
NEIGHBOURS = "130, 131, 132, 133, 135, 136, 143"
"""Types of ICMPv6: listeners of multicast, routers and neighbours, of one link."""


def input_chains(bridges: Mapping[str, Iterable[str]], vlans: Iterable[str], ports: Iterable[int] = ()) -> str:
    """`bridges`: bridge of ours → the host's addresses for guests on it. `vlans`: bridges on which the host is nobody. `ports`: of TCP,
    which guests may reach at all addresses of the machine."""
    silent = sorted(vlans)
    if not bridges and not silent:
        return ""
    own = [(bridge, ip_address(each)) for bridge, found in sorted(bridges.items()) for each in sorted(set(found))]
    four = [f'"{bridge}" . {each}' for bridge, each in own if each.version == 4]
    six = [f'"{bridge}" . {each}' for bridge, each in own if each.version == 6]
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
        *(["iifname . ip6 daddr @own6 goto services"] if six else []),
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
        + _set("own6", "ipv6_addr", six)
        + _chain("services", services)
        + _chain("guests", guests)
        + _hook("input", input_rules)
        + _hook("forward", forward)
    )


def _set(name: str, kind: str, elements: list[str]) -> str:
    if not elements:
        return ""
    return f"  set {name} {{\n    type ifname . {kind}; elements = {{ {', '.join(elements)} }}\n  }}\n"


def _chain(name: str, rules: Iterable[str]) -> str:
    return f"  chain {name} {{\n" + "".join(f"    {each}\n" for each in rules) + "  }\n"


def _hook(hook: str, rules: list[str]) -> str:
    kind = f"type filter hook {hook} priority {PRIORITY}; policy accept;"
    return _chain(hook, [kind, *rules]) if rules else ""
