"""The nftables ruleset of port filters: the whole text, and each rule against a model of its meaning."""

import os
import random
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from moorage.drivers.libvirt.described_ports import AddressSet
from moorage.drivers.libvirt.filter_rules import Inexpressible, networks, rule_line
from moorage.drivers.libvirt.port_filter import FilteredBridge, FilteredTap, RoutedZone, link_local_of, ruleset
from moorage.model.ids import PortId
from moorage.model.port_description import (
    AllowedAddresses,
    FilterRule,
    PacketRate,
    PortBandwidth,
    PortDescription,
    PortFilter,
)

GOLDEN = Path(__file__).parent.parent / "golden" / "port_filter.nft"
GROUP = "aaaaaaaa-0000-4000-8000-00000000000a"
SETS = {GROUP: AddressSet(1, ("10.0.0.7", "10.0.1.0/24", "fd00::7"))}
SEEDS = 100


def port(number: int, wanted: PortFilter | None, **more: object) -> FilteredTap:
    mac = f"02:00:00:00:00:{number:02x}"
    described = PortDescription(PortId(f"port-{number}"), 1, mac=mac, filter=wanted, **more)  # type: ignore[arg-type]
    return FilteredTap(f"tap{number}", "mrgone", mac, described)


def test_the_whole_ruleset() -> None:
    rules = (
        FilterRule("egress", 4),
        FilterRule("egress", 6),
        FilterRule("ingress", 4, members=GROUP),
        FilterRule("ingress", 6, members=GROUP),
        FilterRule("ingress", 4, 6, 80, 90, prefix="192.0.2.0/24"),
        FilterRule("ingress", 4, 1, 8, 0),
        FilterRule("ingress", 6, 58, 128),
        FilterRule("ingress", 4, 112),
    )
    own = AllowedAddresses("02:00:00:00:00:01", ("10.0.0.1", "fd00::1"))
    pair = AllowedAddresses("02:00:00:00:01:01", ("10.0.0.128/25", "fd00::/64"))
    taps = [
        port(1, PortFilter((own, pair), rules), bandwidth=PortBandwidth(dscp=26)),
        port(2, PortFilter((AllowedAddresses("02:00:00:00:00:02", ("10.0.0.2",)),), rules[:1], stateful=False)),
        port(3, None),
        port(4, None, up=False),
        FilteredTap("tap5", "mrgtwo", "02:00:00:00:00:05"),
    ]
    bridges = {"mrgone": FilteredBridge("fa:16:3f:00:00:01", 16), "mrgtwo": FilteredBridge("fa:16:3f:00:00:02", 17)}
    made = ruleset("moorage_filter_test", taps, bridges, SETS)
    assert made.troubles == []
    if os.environ.get("MOORAGE_BLESS"):
        GOLDEN.write_text(made.text)
    assert made.text == GOLDEN.read_text()


@pytest.mark.parametrize(
    ("rate", "line"),
    [
        (PacketRate(2_000, 50), "limit rate over 2000/second burst 50 packets drop"),
        (PacketRate(2_000), "limit rate over 2000/second burst 200 packets drop"),
        (PacketRate(1), "limit rate over 1/second burst 10 packets drop"),
    ],
)
def test_packets_are_counted_before_anything_else(rate: PacketRate, line: str) -> None:
    bridges = {"mrgone": FilteredBridge("fa:16:3f:00:00:01", 16)}
    for wanted in (None, PortFilter()):
        limits = PortBandwidth(dscp=26, egress_packets=rate)
        lines = ruleset("t", [port(1, wanted, bandwidth=limits)], bridges, SETS).text.splitlines()
        assert lines[lines.index("  chain from_tap1 {") + 1].strip() == line
        assert "limit" not in lines[lines.index("  chain to_tap1 {") + 1]
        limits = PortBandwidth(ingress_packets=rate)
        lines = ruleset("t", [port(1, wanted, bandwidth=limits)], bridges, SETS).text.splitlines()
        assert lines[lines.index("  chain to_tap1 {") + 1].strip() == line


def test_without_taps_there_are_no_tables() -> None:
    made = ruleset("t", [], {}, SETS)
    assert made.text.splitlines() == [
        "table bridge t", "delete table bridge t", "table inet t", "delete table inet t",
    ]  # fmt: skip


def test_what_is_routed_between_networks_is_one_connection_there_and_back() -> None:
    zone = RoutedZone(
        20, ("mrgone", "mrgtwo"), ("10.0.1.0/24", "10.0.2.0/24"), ("10.0.2.128/25", "10.9.0.0/16", "0.0.0.0/0")
    )
    made = ruleset("t", [port(1, None)], {"mrgone": FilteredBridge("fa:16:3f:00:00:01", 16)}, {}, [zone])
    inner = made.text.partition("table inet t {\n")[2]
    assert inner.startswith(
        """\
  set router_20 {
    type ipv4_addr
    flags interval
    elements = { 10.0.1.0/24, 10.0.2.0/24, 10.9.0.0/16 }
  }
  chain routed_20 {
    ip saddr 10.0.1.0/24 ip daddr 10.0.1.0/24 return
    ip saddr 10.0.2.0/24 ip daddr 10.0.2.0/24 return
    ct zone set 20
  }
"""
    )
    first, second = inner.partition("type filter hook prerouting priority -300; policy accept;\n")[2].splitlines()[:2]
    assert first.strip() == ('iifname { "mrgone", "mrgtwo" } ip saddr @router_20 ip daddr @router_20 jump routed_20')
    assert second.strip() == 'iifname "mrgone" ether daddr != fa:16:3f:00:00:01 ct zone set 16'
    own = inner.partition("type filter hook output priority -300; policy accept;\n")[2].splitlines()[0]
    assert own.strip() == first.strip().replace("iifname", "oifname"), "so is what the host answers for a gateway"


def zones_of(*subnets: str, is_open: bool = False) -> str:
    zone = RoutedZone(20, ("mrgone",), subnets, is_open=is_open)
    made = ruleset("t", [port(1, None)], {"mrgone": FilteredBridge("fa:16:3f:00:00:01", 16)}, {}, [zone])
    return made.text.partition("table inet t {\n")[2]


def test_subnets_next_to_one_another_are_two() -> None:
    zones = zones_of("10.0.0.0/24", "10.0.1.0/24", "fd00::/64", "fd00:0:0:1::/64")
    assert "elements = { 10.0.0.0/23 }" in zones
    for each in ("ip saddr 10.0.0.0/24 ip daddr 10.0.0.0/24", "ip6 saddr fd00:0:0:1::/64 ip6 daddr fd00:0:0:1::/64"):
        assert f"    {each} return\n" in zones
    assert 'iifname { "mrgone" } ip6 saddr @router6_20 ip6 daddr @router6_20 jump routed_20' in zones
    assert "/23 ip daddr" not in zones


def test_what_the_outside_says_by_ipv6_is_one_connection_too() -> None:
    zones = zones_of("fd00::/64", is_open=True)
    assert "router_20" not in zones
    for each in (
        'iifname { "mrgone" } ip6 saddr @router6_20',
        'iifname { "mrgone" } ip6 daddr @router6_20',
        'iifname != { "mrgone" } ip6 daddr @router6_20',
    ):
        assert f"    {each} jump routed_20\n" in zones
    assert "    ip6 daddr { fe80::/10, ff00::/8 } return\n" in zones


@pytest.mark.parametrize(
    "rule",
    [
        FilterRule("ingress", 6, prefix="fe80::1%x"),
        FilterRule("ingress", 4, prefix="fd00::/64"),
        FilterRule("ingress", 4, prefix="10.0.0.0/24 accept; drop"),
        FilterRule("ingress", 4, 1000),
        FilterRule("ingress", 4, -1),
        FilterRule("ingress", 4, 6, 70_000, 70_001),
        FilterRule("ingress", 4, 6, 9, 3),
        FilterRule("ingress", 4, 47, 1, 2),
        FilterRule("ingress", 4, None, 1, 2),
        FilterRule("ingress", 4, 1, 256),
        FilterRule("ingress", 4, 58, 1),
        FilterRule("ingress", 4, members="x; drop"),
        FilterRule("ingress", 4, members="unknown"),
    ],
)
def test_unsupported_rules_are_left_out_and_logged(rule: FilterRule) -> None:
    with pytest.raises(Inexpressible):
        rule_line(rule, frozenset(SETS))
    bad = port(1, PortFilter((AllowedAddresses("02:00:00:00:00:01", ("10.0.0.1",)),), (rule, FilterRule("egress", 4))))
    good = port(2, PortFilter((AllowedAddresses("02:00:00:00:00:02", ("10.0.0.2",)),), (FilterRule("ingress", 4, 6),)))
    made = ruleset("t", [bad, good], {"mrgone": FilteredBridge("fa:16:3f:00:00:01", 16)}, SETS)
    assert len(made.troubles) == 1
    assert "ether type ip meta l4proto 6 accept" in made.text
    assert "ether type ip accept" in made.text


def test_a_port_whose_mac_is_none_is_closed() -> None:
    made = ruleset(
        "t", [port(1, PortFilter((AllowedAddresses("no mac", ("10.0.0.1",)),), (FilterRule("egress", 4),)))], {}, {}
    )
    assert len(made.troubles) == 2
    assert "ether saddr != { 00:00:00:00:00:00 } drop" in made.text
    assert "no mac" not in made.text


def test_link_local_addresses() -> None:
    assert link_local_of("fa:16:3e:77:05:0a") == "fe80::f816:3eff:fe77:50a"
    for bad in ("", "fa:16:3e:77:05", "fa:16:3e:77:05:0a:00", "zz:16:3e:77:05:0a"):
        with pytest.raises(ValueError, match=f"^{bad}$"):
            link_local_of(bad)


# ------------------------------------------------------------------------------------------------ against a model

ADDRESSES = ("10.0.0.7", "10.0.1.9", "10.0.2.1", "192.0.2.1", "fd00::7", "fd00::8", "2001:db8::1")
PREFIXES = {
    4: ("", "0.0.0.0/0", "10.0.0.0/16", "10.0.0.7", "192.0.2.0/24"),
    6: ("", "::/0", "fd00::/64", "fd00::7/128"),
}
Packet = tuple[str, int, int, int]
"""Address of the other side, protocol, port or ICMP type, ICMP code."""


def a_rule(dice: random.Random) -> FilterRule:
    version = dice.choice((4, 6))
    protocol = dice.choice((None, 0, 6, 17, 132, 1 if version == 4 else 58, 47))
    low = high = None
    if protocol in (6, 17, 132) and dice.random() < 0.7:
        low, high = sorted(dice.choices((0, 1, 53, 80, 443, 65_535), k=2))
    elif protocol in (1, 58) and dice.random() < 0.7:
        low, high = dice.choice((0, 3, 8)), dice.choice((None, 0, 1))
    remote = {"members": GROUP} if dice.random() < 0.3 else {"prefix": dice.choice(PREFIXES[version])}
    return FilterRule(dice.choice(("ingress", "egress")), version, protocol, low, high, **remote)  # type: ignore[arg-type]


def means(rule: FilterRule, packet: Packet) -> bool:
    """The rule as the Network API describes it."""
    address, protocol, number, code = packet
    other = ip_address(address)
    if other.version != rule.version:
        return False
    if rule.members and not any(other in ip_network(each) for each in SETS[GROUP].addresses):
        return False
    if rule.prefix and other not in ip_network(rule.prefix):
        return False
    if not rule.protocol:
        return True
    if protocol != rule.protocol:
        return False
    if rule.protocol in (1, 58):
        return rule.low in (None, number) and rule.high in (None, code)
    return rule.low is None or rule.high is None or rule.low <= number <= rule.high


def lets(line: str, direction: str, packet: Packet) -> bool:
    """The line as nftables reads it: all matches hold."""
    address, protocol, number, code = packet
    other = ip_address(address)
    words = line.split()
    assert words.pop() == "accept"
    while words:
        match words:
            case ["ether", "type", family, *words]:
                holds = family == ("ip" if other.version == 4 else "ip6")
            case ["ip" | "ip6" as family, side, what, *words]:
                assert side == ("saddr" if direction == "ingress" else "daddr")
                holds = family == ("ip" if other.version == 4 else "ip6")
                if what.startswith("@"):
                    assert what == f"@m{4 if family == 'ip' else 6}_{GROUP.replace('-', '')}"
                    four, six, _ = networks(SETS[GROUP].addresses)
                    holds = holds and any(other in each for each in (*four, *six))
                else:
                    holds = holds and other in ip_network(what)
            case ["meta", "l4proto", wanted, *words]:
                holds = int(wanted) == protocol
            case ["th", "dport", wanted, *words]:
                low, _, high = wanted.partition("-")
                holds = int(low) <= number <= int(high or low)
            case ["icmp" | "icmpv6", field, wanted, *words]:
                holds = int(wanted) == (number if field == "type" else code)
            case _:
                raise AssertionError(words)
        if not holds:
            return False
    return True


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_rule_passes_the_packets_it_describes(seed: int) -> None:
    dice = random.Random(seed)
    rule = a_rule(dice)
    line = rule_line(rule, frozenset(SETS))
    for _ in range(60):
        packet = (
            dice.choice(ADDRESSES), dice.choice((1, 6, 17, 47, 58, 132)), dice.choice((0, 1, 3, 8, 53, 80, 443, 65_535)),
            dice.choice((0, 1)),
        )  # fmt: skip
        assert lets(line, rule.direction, packet) == means(rule, packet), (rule, line, packet)


@pytest.mark.parametrize("seed", range(20))
def test_lists_are_shortened_and_mean_the_same(seed: int) -> None:
    dice = random.Random(seed)
    listed = [f"10.0.{dice.randrange(4)}.{dice.randrange(256)}/{dice.choice((24, 28, 31, 32))}" for _ in range(40)]
    four, six, bad = networks([*listed, "fd00::1", "nothing"])
    assert bad == ["nothing"]
    assert [str(each) for each in six] == ["fd00::1/128"]
    assert not any(one.overlaps(other) for one in four for other in four if one is not other), (
        "nftables refuses overlaps"
    )
    before = [ip_network(each, strict=False) for each in listed]
    for _ in range(200):
        address = ip_address(f"10.0.{dice.randrange(5)}.{dice.randrange(256)}")
        assert any(address in each for each in before) == any(address in each for each in four)
