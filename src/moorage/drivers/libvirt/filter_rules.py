"""One rule of a security group, and one set of addresses, in the words of nftables; what no word is for is refused with a reason."""

import re
from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_network
from typing import Literal

from moorage.model.port_description import FilterRule

TCP, UDP, ICMP, ICMPV6 = 6, 17, 1, 58
WITH_PORTS = frozenset({TCP, UDP, 33, 132, 136})
"""And DCCP, SCTP, UDP-Lite."""
ANY_PROTOCOL = 0
PORT_MAX, ICMP_MAX, PROTOCOL_MAX = 65_535, 255, 255
SET_ID = re.compile(r"[0-9a-f-]{1,64}")

Version = Literal[4, 6]


class Inexpressible(ValueError):
    """What was asked for has no words here; the text says why."""


def set_name(version: Version, id: str) -> str:
    """Raises Inexpressible."""
    if not SET_ID.fullmatch(id):
        raise Inexpressible(f"a set has the id {id[:70]!r}")
    return f"m{version}_{id.replace('-', '')}"


def networks(prefixes: Iterable[str]) -> tuple[list[IPv4Network], list[IPv6Network], list[str]]:
    """The smallest lists that mean the same, and what was no address or prefix."""
    four: list[IPv4Network] = []
    six: list[IPv6Network] = []
    bad: list[str] = []
    for each in prefixes:
        try:
            network = _network(each)
        except Inexpressible:
            bad.append(each)
        else:
            (four if isinstance(network, IPv4Network) else six).append(network)  # type: ignore[arg-type]
    return list(collapse_addresses(four)), list(collapse_addresses(six)), bad


def _network(text: str) -> IPv4Network | IPv6Network:
    try:
        if "%" not in text:
            return ip_network(text, strict=False)
    except ValueError:
        pass  # the refusal below says it
    raise Inexpressible(f"{text[:70]!r} is no address")


def listed(found: Iterable[IPv4Network | IPv6Network]) -> str:
    """As elements of a set; an address alone without its length."""
    return ", ".join(str(each.network_address) if each.num_addresses == 1 else str(each) for each in found)


def rule_line(rule: FilterRule, sets: frozenset[str]) -> str:
    """What it lets pass. `sets`: ids of those that there are; a rule about another one matches nobody. Raises Inexpressible."""
    matches = [_remote(rule, sets), *_protocol(rule)]
    return f"{' '.join(matches)} accept"


def _remote(rule: FilterRule, sets: frozenset[str]) -> str:
    side = "saddr" if rule.direction == "ingress" else "daddr"
    family = "ip" if rule.version == 4 else "ip6"
    if rule.members:
        name = set_name(rule.version, rule.members)
        if rule.members not in sets:
            raise Inexpressible(f"the set {rule.members} is not known")
        return f"{family} {side} @{name}"
    if not rule.prefix:
        return f"ether type {family}"
    network = _network(rule.prefix)
    if network.version != rule.version:
        raise Inexpressible(f"{rule.prefix} is not of IPv{rule.version}")
    return f"{family} {side} {network}" if network.prefixlen else f"ether type {family}"


def _protocol(rule: FilterRule) -> list[str]:
    protocol = rule.protocol
    if protocol is None or protocol == ANY_PROTOCOL:
        if rule.low is not None or rule.high is not None:
            raise Inexpressible("ports without a protocol")
        return []
    if not 0 < protocol <= PROTOCOL_MAX:
        raise Inexpressible(f"there is no protocol {protocol}")
    if protocol in (ICMP, ICMPV6):
        return _icmp(rule)
    matches = [f"meta l4proto {protocol}"]
    if rule.low is None and rule.high is None:
        return matches
    if protocol not in WITH_PORTS:
        raise Inexpressible(f"protocol {protocol} has no ports")
    low = 0 if rule.low is None else rule.low
    high = PORT_MAX if rule.high is None else rule.high
    if not 0 <= low <= high <= PORT_MAX:
        raise Inexpressible(f"{low} to {high} is no range of ports")
    return [*matches, f"th dport {low}" if low == high else f"th dport {low}-{high}"]


def _icmp(rule: FilterRule) -> list[str]:
    if rule.version == 4 and rule.protocol != ICMP:
        raise Inexpressible(f"protocol {rule.protocol} is not of IPv4")
    name = "icmp" if rule.version == 4 else "icmpv6"
    matches = [f"meta l4proto {ICMP if rule.version == 4 else ICMPV6}"]
    for field, value in (("type", rule.low), ("code", rule.high)):
        if value is None:
            continue
        if not 0 <= value <= ICMP_MAX:
            raise Inexpressible(f"there is no ICMP {field} {value}")
        matches.append(f"{name} {field} {value}")
    return matches
