"""The kernel configuration of a host with routers, exactly; that it works is in tests/hypervisor/test_guest_routes.py."""

import random
from dataclasses import replace
from ipaddress import ip_network
from unittest.mock import patch

from msgspec import structs

from moorage.drivers.libvirt.route_chains import chains_of
from moorage.drivers.libvirt.routes import NOWHERE, PLAIN_MAX, FarSide, Outside, RoutedPort, overlapping, planned
from moorage.model.ids import NetworkId
from moorage.model.route_description import (
    ExternalNetwork,
    FloatingAddress,
    RoutedSubnet,
    RouterDescription,
    StaticRoute,
)

PUBLIC = ExternalNetwork(NetworkId("public"), "physnet1", "203.0.113.0/24", "203.0.113.1")
ROUTER = RouterDescription(
    "router",
    (RoutedSubnet(NetworkId("a"), "10.0.1.0/24", "10.0.1.1"), RoutedSubnet(NetworkId("b"), "10.0.2.0/24", "10.0.2.1")),
    PUBLIC,
    "203.0.113.2",
    True,
    (StaticRoute("10.9.0.0/16", "10.0.2.9"),),
)
FLOATING = FloatingAddress("203.0.113.50", "10.0.1.5", PUBLIC)
PORTS = [
    RoutedPort("mrga", ("10.0.1.0/24", "fd00::/64"), (FLOATING,), (ROUTER,), ("10.0.1.1",)),
    RoutedPort("mrgb", ("10.0.2.0/24",), (), (ROUTER,), ("10.0.2.1",)),
]
ALONE = RoutedPort("mrgc", ("10.0.3.0/24",), gateways=("10.0.3.1",))
DOOR = {"physnet1": Outside("eth1")}
NUMBERS = {"router": 1, "other": 2, "mrgz": 3, "mrgc": 4}
CHAINS = """\
  set bridges {
    type ifname; elements = { "mrga", "mrgb" }
  }
  chain from_1 {
    ct mark set ct mark and 0xf007ffff or 0x00080000
  }
  chain to_1 {
    meta mark set meta mark and 0xf007ffff or 0x00080000
  }
  chain source_1 {
    ip saddr 10.0.1.5 oifname "eth1" snat to 203.0.113.50
    ip saddr 10.0.1.5 ct status dnat oifname @bridges snat to 203.0.113.50
    ip saddr 10.0.1.0/24 oifname "eth1" snat to 203.0.113.2
    ip saddr 10.0.1.0/24 ct status dnat oifname @bridges snat to 203.0.113.2
    ip saddr 10.0.2.0/24 oifname "eth1" snat to 203.0.113.2
    ip saddr 10.0.2.0/24 ct status dnat oifname @bridges snat to 203.0.113.2
  }
  chain zones {
    type filter hook prerouting priority -299; policy accept;
    udp dport { 67, 547 } return
    ip daddr 224.0.0.0/4 return
    ip6 daddr ff00::/8 return
    ip6 saddr fe80::/10 return
    ct original zone set iifname map { "mrga" : 61001, "mrgb" : 61001 }
  }
  chain ways {
    type filter hook prerouting priority -110; policy accept;
    ct state new iifname vmap { "mrga" : jump from_1, "mrgb" : jump from_1 }
    meta nfproto ipv4 iifname vmap { "mrga" : jump to_1, "mrgb" : jump to_1 }
    ct direction reply ct mark and 0x0ff80000 vmap { 0x00080000 : goto to_1 }
    ip daddr vmap { 203.0.113.50 : goto to_1 }
  }
  chain answers {
    type route hook output priority -150; policy accept;
    ct direction reply ct mark and 0x0ff80000 vmap { 0x00080000 : goto to_1 }
    ct state related ct direction original ct original ip daddr vmap { 203.0.113.50 : goto to_1 }
    ip daddr vmap { 203.0.113.50 : goto to_1 }
  }
  chain prerouting {
    type nat hook prerouting priority -100; policy accept;
    dnat ip to iifname . ip daddr map { "mrga" . 10.0.2.1 : 169.254.64.1, "mrgb" . 10.0.1.1 : 169.254.64.2 }
    ip daddr 203.0.113.50 dnat to 10.0.1.5
  }
  chain output {
    type nat hook output priority -100; policy accept;
    ip daddr 203.0.113.50 dnat to 10.0.1.5
  }
  chain found {
    type filter hook postrouting priority 90; policy accept;
    oifname { "eth1" } iifname @bridges meta mark set meta mark and 0xf007ffff
    oifname { "eth1" } ct state related meta mark set meta mark and 0xf007ffff
  }
  chain postrouting {
    type nat hook postrouting priority 100; policy accept;
    ct mark and 0x0ff80000 vmap { 0x00080000 : jump source_1 }
    iifname @bridges oifname @bridges ct status dnat snat ip to oifname map { "mrga" : 10.0.1.1, "mrgb" : 10.0.2.1 }
  }
"""


def test_a_router_with_an_outside() -> None:
    plan = planned(PORTS, DOOR)
    assert plan.four.tables == {
        "router": [
            ("local", "10.0.1.1", "dev", "mrga"),
            ("local", "10.0.2.1", "dev", "mrgb"),
            ("10.0.1.0/24", "dev", "mrga", "src", "10.0.1.1"),
            ("10.0.2.0/24", "dev", "mrgb", "src", "10.0.2.1"),
            ("203.0.113.0/24", "dev", "eth1"),
            ("default", "via", "203.0.113.1", "dev", "eth1", "onlink"),
            ("10.9.0.0/16", "via", "10.0.2.9", "dev", "mrgb", "src", "10.0.2.1"),
            ("unreachable", "default", "metric", "4278198272"),
        ]
    }
    assert plan.four.rules == {"mrga": "router", "mrgb": "router"}
    assert plan.addresses == {"203.0.113.50": "eth1", "203.0.113.2": "eth1"}
    assert plan.four.forwarding == {"mrga", "mrgb", "eth1"}
    assert plan.floating == {"203.0.113.50": ("router", "10.0.1.5")}
    plan.services = {"mrga": "169.254.64.1", "mrgb": "169.254.64.2"}
    chains = chains_of(plan, NUMBERS)
    assert chains.startswith(CHAINS)
    forward = chains.partition("chain forward")[2]
    assert 'iifname "mrga" ip saddr 10.0.1.0/24 oifname "mrgb" ip daddr 10.0.2.0/24 accept' in forward
    assert forward.rstrip().endswith("iifname @bridges drop\n    oifname @bridges drop\n  }")
    assert plan.troubles == []


def test_guests_leave_by_the_device_with_an_address() -> None:
    plan = planned(PORTS, {"physnet1": Outside("eth1", ("198.51.100.7/24", "203.0.113.9/24"))})
    assert plan.addresses == {"203.0.113.50": "eth1"}
    assert 'ip saddr 10.0.2.0/24 oifname "eth1" snat to 203.0.113.9' in chains_of(plan, NUMBERS)
    ours = planned(
        PORTS, {"physnet1": Outside("eth1", ("203.0.113.2/32", "203.0.113.50/32"))}, ["203.0.113.2", "203.0.113.50"]
    )
    assert ours.addresses == planned(PORTS, DOOR).addresses, "what we put there is no address of the machine's"


def test_without_a_device_no_route_leads_out() -> None:
    plan = planned(PORTS, {})
    assert plan.addresses == {}
    assert "snat" not in chains_of(plan, NUMBERS)
    assert plan.troubles == ["203.0.113.50 is of a network that no device of this host leads to"]
    assert ("default", "via", "203.0.113.1", "dev", "eth1", "onlink") not in plan.four.tables["router"]


def test_networks_with_the_same_addresses() -> None:
    other = RouterDescription(
        "other", (RoutedSubnet(NetworkId("y"), "10.0.1.128/25", "10.0.1.129"),), PUBLIC, "203.0.113.3", True
    )
    floating = FloatingAddress("203.0.113.60", "10.0.1.133", PUBLIC)
    plan = planned(
        [*PORTS, RoutedPort("mrgy", ("10.0.1.128/25",), (floating,), (other,)), RoutedPort("mrgz", ("10.0.1.0/26",))],
        DOOR,
    )
    assert plan.troubles == []
    assert plan.vrfs == {"mrga": "router", "mrgb": "router", "mrgy": "other", "mrgz": "mrgz"}
    assert plan.four.rules == {"mrga": "router", "mrgb": "router", "mrgy": "other", "mrgz": "mrgz"}
    assert plan.four.tables["mrgz"] == [("10.0.1.0/26", "dev", "mrgz"), NOWHERE], "nobody routes for a bridge alone"
    assert ("10.0.1.128/25", "dev", "mrgy") in plan.four.tables["other"]
    chains = chains_of(plan, NUMBERS)
    assert 'iifname map { "mrga" : 61001, "mrgb" : 61001, "mrgy" : 61002, "mrgz" : 61003 }' in chains
    assert "ip daddr vmap { 203.0.113.50 : goto to_1, 203.0.113.60 : goto to_2 }" in chains
    assert (
        "ct mark and 0x0ff80000 vmap { 0x00080000 : goto to_1, 0x00100000 : goto to_2, 0x00180000 : goto to_3 }"
        in chains
    )
    assert "ct mark and 0x0ff80000 vmap { 0x00080000 : jump source_1, 0x00100000 : jump source_2 }" in chains
    source = chains.partition("chain source_2")[2].partition("}")[0]
    assert "ip saddr 10.0.1.128/25 ct status dnat oifname @bridges snat to 203.0.113.3" in source
    forward = chains.partition("chain forward")[2]
    assert 'iifname "mrgz" oifname "mrgz" accept' in forward
    assert '"mrgz"' not in forward.replace('iifname "mrgz" oifname "mrgz" accept', "")
    assert all(("mrga" in each) is False or ("mrgy" in each) is False for each in forward.splitlines())


def test_a_network_without_a_router_is_a_vrf_for_itself() -> None:
    plan = planned([ALONE, RoutedPort("mrgz", ("10.0.0.0/16", "fd00::/64"), gateways=("fd00::1",))], DOOR)
    assert plan.vrfs == {"mrgc": "mrgc", "mrgz": "mrgz"}
    assert plan.four.tables["mrgc"] == [
        ("local", "10.0.3.1", "dev", "mrgc"),
        ("10.0.3.0/24", "dev", "mrgc", "src", "10.0.3.1"),
        NOWHERE,
    ]
    assert plan.six.tables["mrgz"] == [("local", "fd00::1", "dev", "mrgz"), ("fd00::/64", "dev", "mrgz"), NOWHERE]
    assert (plan.four.rules, plan.six.rules) == ({"mrgc": "mrgc", "mrgz": "mrgz"}, {"mrgz": "mrgz"})
    forward = chains_of(plan, NUMBERS).partition("chain forward")[2]
    assert '"mrgc"' not in forward.replace('iifname "mrgc" oifname "mrgc" accept', "")


def test_bridges_without_a_router_leave_tables_for_routers() -> None:
    many = [RoutedPort(f"mrg{each}", (f"10.{each // 250}.{each % 250}.0/24",)) for each in range(PLAIN_MAX + 50)]
    plan = planned([*many, *PORTS], DOOR)
    assert len(plan.tables) == PLAIN_MAX
    assert plan.vrfs["mrga"] == plan.vrfs["mrgb"] == "router"
    twins = [RoutedPort(f"mrg{each}", ("10.0.0.0/24",)) for each in range(PLAIN_MAX + 50)]
    assert len(planned(twins, DOOR).tables) == PLAIN_MAX + 50, "these could not be told apart else"


def test_a_floating_address_of_a_router_that_is_switched_off() -> None:
    plan = planned([replace(PORTS[0], routers=())], DOOR)
    assert (plan.addresses, plan.floating, plan.troubles) == ({}, {}, [])


def test_no_routers_leave_no_rules() -> None:
    plan = planned([], DOOR)
    assert chains_of(plan, {}) == ""
    assert (plan.four.tables, plan.four.rules, plan.addresses) == ({}, {}, {})


def test_a_network_of_the_router_that_is_elsewhere() -> None:
    far = FarSide(
        frozenset({"mrgb"}), {"mrgb": {"10.0.2.5": "fa:16:3e:00:00:05"}, "mrga": {"10.0.1.9": "fa:16:3e:00:00:09"}}
    )
    plan = planned([PORTS[0]], {}, far=far)
    assert plan.four.tables["router"] == [
        ("local", "10.0.1.1", "dev", "mrga"),
        ("10.0.1.0/24", "dev", "mrga", "src", "10.0.1.1"),
        ("10.0.2.0/24", "dev", "mrgb"),
        ("10.9.0.0/16", "via", "10.0.2.9", "dev", "mrgb"),
        ("unreachable", "default", "metric", "4278198272"),
    ]
    assert plan.four.rules == {"mrga": "router"}, "nothing comes from a network that is elsewhere"
    assert plan.four.forwarding == {"mrga"}
    assert plan.arp_entries == far.arp_entries
    forward = chains_of(plan, NUMBERS).partition("chain forward")[2]
    assert 'iifname "mrga" ip saddr 10.0.1.0/24 oifname "mrgb" ip daddr 10.0.2.0/24 accept' in forward
    assert 'iifname "mrga" oifname "mrgb" ip daddr 10.9.0.0/16 accept' in forward
    assert 'iifname "mrgb" ip saddr' not in forward
    assert 'iifname "mrgb" oifname "mrga"' not in forward
    assert "oifname @bridges meta mark set meta mark or 0x10000000" in forward
    assert 'elements = { "mrga", "mrgb" }' in chains_of(plan, NUMBERS)


def test_networks_that_are_elsewhere_may_have_the_same_addresses() -> None:
    subnets = (
        RoutedSubnet(NetworkId("d"), "10.0.4.0/24", "10.0.4.1"),
        RoutedSubnet(NetworkId("e"), "10.0.2.0/24", "10.0.2.1"),
    )
    other = RoutedPort("mrgd", ("10.0.4.0/24",), (), (RouterDescription("other", subnets),))
    plan = planned([replace(PORTS[0], floating=()), other], {}, far=FarSide(frozenset({"mrgb", "mrge"})))
    assert plan.troubles == []
    assert ("10.0.2.0/24", "dev", "mrgb") in plan.four.tables["router"]
    assert ("10.0.2.0/24", "dev", "mrge") in plan.four.tables["other"]
    here = planned([*PORTS[:2], other], {}, far=FarSide(frozenset({"mrge"})))
    assert here.four.rules == {"mrga": "router", "mrgb": "router", "mrgd": "other"}
    assert ("10.0.2.0/24", "dev", "mrgb") not in here.four.tables["other"], "a network of another router's"


SIX = ExternalNetwork(NetworkId("public"), "physnet1", cidr6="2001:db8::/64", gateway6="2001:db8::1")
ROUTER_SIX = RouterDescription(
    "router",
    external=SIX,
    routes=(StaticRoute("2001:db8:9::/48", "fd00::9"), StaticRoute("10.9.0.0/16", "10.0.2.9")),
    subnets6=(
        RoutedSubnet(NetworkId("a"), "fd00::/64", "fd00::1"),
        RoutedSubnet(NetworkId("b"), "fd00:0:0:1::/64", "fd00:0:0:1::1"),
    ),
    address6="2001:db8::2",
)


def test_a_router_of_ipv6() -> None:
    plan = planned([RoutedPort("mrga", ("fd00::/64",), (), (ROUTER_SIX,))], DOOR, far=FarSide(frozenset({"mrgb"})))
    assert plan.six.tables == {
        "router": [
            ("fd00:0:0:1::/64", "dev", "mrgb"),
            ("fd00::/64", "dev", "mrga"),
            ("2001:db8::/64", "dev", "eth1"),
            ("default", "via", "2001:db8::1", "dev", "eth1", "onlink"),
            ("2001:db8:9::/48", "via", "fd00::9", "dev", "mrga"),
            ("unreachable", "default", "metric", "4278198272"),
        ]
    }
    assert plan.six.rules == {"mrga": "router"}
    assert plan.six.forwarding == {"mrga", "eth1"}
    assert plan.addresses == {"2001:db8::2": "eth1"}
    assert (plan.four.rules, plan.floating, plan.source) == ({}, {}, {}), "nothing is translated"
    chains = chains_of(plan, NUMBERS)
    assert 'iifname "eth1" ip6 daddr vmap { fd00:0:0:1::/64 : goto to_1, fd00::/64 : goto to_1 }' in chains
    forward = chains.partition("chain forward")[2]
    for each in (
        'iifname "mrga" ip6 saddr fd00::/64 oifname "mrgb" ip6 daddr fd00:0:0:1::/64 accept',
        'iifname "mrga" oifname "eth1" ip6 saddr fd00::/64 accept',
        'iifname "eth1" oifname "mrga" ip6 daddr fd00::/64 accept',
        'iifname "eth1" oifname "mrgb" ip6 daddr fd00:0:0:1::/64 accept',
    ):
        assert each in forward
    assert 'iifname "mrgb" oifname "eth1"' not in forward, "who is elsewhere leaves elsewhere"


def test_the_outside_reaches_a_range_by_one_router() -> None:
    twin = structs.replace(
        ROUTER_SIX, router="second", subnets6=(RoutedSubnet(NetworkId("y"), "fd00::/60", "fd00::1"),), address6=""
    )
    plan = planned(
        [RoutedPort("mrga", ("fd00::/64",), (), (ROUTER_SIX,)), RoutedPort("mrgy", ("fd00::/60",), (), (twin,))], DOOR
    )
    assert plan.prefixes == {("eth1", "fd00::/64"): "router"}
    assert plan.troubles == ["fd00::/60 of router second is not reached from outside: another one has it"]
    assert plan.six.rules == {"mrga": "router", "mrgy": "second"}, "each routes its own"


def test_a_router_without_an_outside_of_ipv6() -> None:
    plan = planned(
        [RoutedPort("mrga", ("fd00::/64",), (), (structs.replace(ROUTER_SIX, external=PUBLIC, address6=""),))], DOOR
    )
    assert plan.prefixes == {}
    assert plan.six.forwarding == {"mrga"}
    assert all("eth1" not in each for each in plan.six.tables["router"])


def test_bridges_whose_ranges_overlap() -> None:
    """As found by comparing each with each, for ranges that are the same, in one another, or apart."""
    chance = random.Random(7)
    for _ in range(300):
        ranges = {
            f"mrg{number}": [
                f"10.0.{chance.randrange(8)}.0/{chance.choice((21, 22, 23, 24))}" for _ in range(chance.randrange(1, 3))
            ]
            for number in range(chance.randrange(1, 7))
        }
        parsed = {name: [ip_network(each, strict=False) for each in cidrs] for name, cidrs in ranges.items()}
        expected = {
            one
            for one, mine in parsed.items()
            for other, theirs in parsed.items()
            if one != other and any(a.overlaps(b) for a in mine for b in theirs)
        }
        assert overlapping(ranges) == expected, ranges


def test_the_plan_looks_at_each_range_a_few_times() -> None:
    """However many networks there are: each boot on the host makes it."""
    counts = []
    for networks in (100, 200, 400):
        ports = [RoutedPort(f"mrg{each}", (f"10.{each // 250}.{each % 250}.0/24",)) for each in range(networks)]
        with patch("ipaddress.ip_network", wraps=ip_network) as parsed:
            planned(ports, {})
        counts.append(parsed.call_count)
    assert counts[2] <= 4 * counts[0], counts


def test_a_range_is_whose_it_was_first_whatever_its_id() -> None:
    """Ids of routers are made at random: who makes enough of them has the smallest."""

    def router(name: str, network: str, cidr: str, since: int) -> RoutedPort:
        subnet = RoutedSubnet(NetworkId(network), cidr, "fe80::1", since=since)
        made = structs.replace(ROUTER_SIX, router=name, subnets6=(subnet,), address6="", routes=())
        return RoutedPort(f"mrg{network}", (cidr,), (), (made,))

    victim, thief = router("9", "a", "2001:db8:1::/64", 5), router("1", "b", "2001:db8:1::/64", 6)
    wide = router("0", "c", "2000::/3", 7)
    plan = planned([wide, thief, victim], DOOR)
    assert plan.prefixes == {("eth1", "2001:db8:1::/64"): "9"}
    assert sorted(plan.troubles) == [
        "2000::/3 of router 0 is not reached from outside: another one has it",
        "2001:db8:1::/64 of router 1 is not reached from outside: another one has it",
    ]
    assert planned([thief], DOOR).prefixes == {("eth1", "2001:db8:1::/64"): "1"}


def test_what_another_has_outside_neither_hears_nor_speaks_there() -> None:
    """Also a range of another address scope than the outside's."""
    twin = structs.replace(
        ROUTER_SIX, router="second", subnets6=(RoutedSubnet(NetworkId("y"), "fd00::/64", "fd00::1"),)
    )
    [first, second] = ROUTER_SIX.subnets6
    scoped = structs.replace(ROUTER_SIX, subnets6=(first, structs.replace(second, outside=False)))
    ports = [
        RoutedPort("mrga", ("fd00::/64",), (), (scoped,)),
        RoutedPort("mrgb", ("fd00:0:0:1::/64",), (), (scoped,)),
        RoutedPort("mrgy", ("fd00::/64",), (), (twin,)),
    ]
    plan = planned(ports, DOOR)
    assert plan.prefixes == {("eth1", "fd00::/64"): "router"}
    assert {each for each in plan.accept if "eth1" in each} == {
        'iifname "eth1" oifname "mrga" ip6 daddr fd00::/64 accept',
        'iifname "mrga" oifname "eth1" ip6 saddr fd00::/64 accept',
    }
    assert plan.six.rules == {"mrga": "router", "mrgb": "router", "mrgy": "second"}, "inside all are routed"
