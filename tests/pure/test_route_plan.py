"""The kernel configuration of a host with routers, exactly; that it works is in tests/hypervisor/test_guest_routes.py."""

from dataclasses import replace

from moorage.drivers.libvirt.routes import FarSide, Outside, RoutedPort, planned
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
    RoutedPort("mrga", ("10.0.1.0/24", "fd00::/64"), (FLOATING,), (ROUTER,)),
    RoutedPort("mrgb", ("10.0.2.0/24",), (), (ROUTER,)),
    RoutedPort("mrgc", ("10.0.3.0/24",)),
]
DOOR = {"physnet1": Outside("eth1")}
CHAINS = """\
  set bridges {
    type ifname; elements = { "mrga", "mrgb", "mrgc" }
  }
  set inside {
    type ipv4_addr; flags interval; elements = { 10.0.1.0/24, 10.0.2.0/24 }
  }
  chain prerouting {
    type nat hook prerouting priority -100; policy accept;
    ip daddr 203.0.113.50 dnat to 10.0.1.5
  }
  chain output {
    type nat hook output priority -100; policy accept;
    ip daddr 203.0.113.50 dnat to 10.0.1.5
  }
  chain marking {
    type filter hook prerouting priority -90; policy accept;
    iifname @bridges ct status dnat ip daddr @inside meta mark set meta mark or 0x20000000
  }
  chain postrouting {
    type nat hook postrouting priority 100; policy accept;
    ip saddr 10.0.1.5 oifname "eth1" snat to 203.0.113.50
    ip saddr 10.0.1.5 ct status dnat oifname @bridges snat to 203.0.113.50
    ip saddr 10.0.1.0/24 oifname "eth1" snat to 203.0.113.2
    ip saddr 10.0.2.0/24 oifname "eth1" snat to 203.0.113.2
    iifname @bridges oifname @bridges ct status dnat masquerade
  }
"""


def test_a_router_with_an_outside() -> None:
    plan = planned(PORTS, DOOR)
    assert plan.tables == {
        "router": [
            ("10.0.1.0/24", "dev", "mrga"),
            ("10.0.2.0/24", "dev", "mrgb"),
            ("203.0.113.0/24", "dev", "eth1"),
            ("default", "via", "203.0.113.1", "dev", "eth1", "onlink"),
            ("10.9.0.0/16", "via", "10.0.2.9", "dev", "mrgb"),
            ("unreachable", "default", "metric", "4278198272"),
        ]
    }
    assert plan.rules == {"mrga": "router", "mrgb": "router"}
    assert plan.addresses == {"203.0.113.50": "eth1", "203.0.113.2": "eth1"}
    assert plan.forwarding == {"mrga", "mrgb", "eth1"}
    assert plan.chains.startswith(CHAINS)
    forward = plan.chains.partition("chain forward")[2]
    assert 'iifname "mrga" ip saddr 10.0.1.0/24 oifname "mrgb" ip daddr 10.0.2.0/24 accept' in forward
    assert forward.rstrip().endswith("iifname @bridges drop\n    oifname @bridges drop\n  }")
    assert '"mrgc"' not in forward.replace('iifname "mrgc" oifname "mrgc" accept', "")
    assert plan.troubles == []


def test_guests_leave_by_the_device_with_an_address() -> None:
    plan = planned(PORTS, {"physnet1": Outside("eth1", ("198.51.100.7/24", "203.0.113.9/24"))})
    assert plan.addresses == {"203.0.113.50": "eth1"}
    assert 'ip saddr 10.0.2.0/24 oifname "eth1" snat to 203.0.113.9' in plan.chains
    ours = planned(
        PORTS, {"physnet1": Outside("eth1", ("203.0.113.2/32", "203.0.113.50/32"))}, ["203.0.113.2", "203.0.113.50"]
    )
    assert ours.addresses == planned(PORTS, DOOR).addresses, "what we put there is no address of the machine's"


def test_without_a_device_no_route_leads_out() -> None:
    plan = planned(PORTS, {})
    assert plan.addresses == {}
    assert "snat" not in plan.chains
    assert plan.troubles == ["203.0.113.50 is of a network that no device of this host leads to"]
    assert ("default", "via", "203.0.113.1", "dev", "eth1", "onlink") not in plan.tables["router"]


def test_networks_with_the_same_addresses() -> None:
    twin = RoutedPort("mrgz", ("10.0.1.128/25",), (), (RouterDescription("other", ROUTER.subnets),))
    plan = planned([*PORTS, twin], DOOR)
    assert plan.troubles == ["mrgz is not routed: another network of this host has the same addresses"]
    assert plan.rules == {"mrga": "router", "mrgb": "router"}
    assert 'iifname "mrgz" oifname "mrgz" accept' in plan.chains, "nor is it in anybody's way"


def test_no_routers_leave_no_rules() -> None:
    plan = planned([], DOOR)
    assert (plan.chains, plan.tables, plan.rules, plan.addresses) == ("", {}, {}, {})


def test_a_network_of_the_router_that_is_elsewhere() -> None:
    far = FarSide(
        frozenset({"mrgb"}), {"mrgb": {"10.0.2.5": "fa:16:3e:00:00:05"}, "mrga": {"10.0.1.9": "fa:16:3e:00:00:09"}}
    )
    plan = planned([PORTS[0]], {}, far=far)
    assert plan.tables["router"] == [
        ("10.0.1.0/24", "dev", "mrga"),
        ("10.0.2.0/24", "dev", "mrgb"),
        ("10.9.0.0/16", "via", "10.0.2.9", "dev", "mrgb"),
        ("unreachable", "default", "metric", "4278198272"),
    ]
    assert plan.rules == {"mrga": "router"}, "nothing comes from a network that is elsewhere"
    assert plan.forwarding == {"mrga"}
    assert plan.arp_entries == far.arp_entries
    forward = plan.chains.partition("chain forward")[2]
    assert 'iifname "mrga" ip saddr 10.0.1.0/24 oifname "mrgb" ip daddr 10.0.2.0/24 accept' in forward
    assert 'iifname "mrga" oifname "mrgb" ip daddr 10.9.0.0/16 accept' in forward
    assert 'iifname "mrgb" ip saddr' not in forward
    assert 'iifname "mrgb" oifname "mrga"' not in forward
    assert "iifname @bridges oifname @bridges meta mark set meta mark or 0x10000000" in forward
    assert 'elements = { "mrga", "mrgb" }' in plan.chains
    assert "elements = { 10.0.1.0/24 }" in plan.chains, "what is translated is here"


def test_networks_that_are_elsewhere_may_have_the_same_addresses() -> None:
    subnets = (
        RoutedSubnet(NetworkId("d"), "10.0.4.0/24", "10.0.4.1"),
        RoutedSubnet(NetworkId("e"), "10.0.2.0/24", "10.0.2.1"),
    )
    other = RoutedPort("mrgd", ("10.0.4.0/24",), (), (RouterDescription("other", subnets),))
    plan = planned([replace(PORTS[0], floating=()), other], {}, far=FarSide(frozenset({"mrgb", "mrge"})))
    assert plan.troubles == []
    assert ("10.0.2.0/24", "dev", "mrgb") in plan.tables["router"]
    assert ("10.0.2.0/24", "dev", "mrge") in plan.tables["other"]
    here = planned([*PORTS[:2], other], {}, far=FarSide(frozenset({"mrge"})))
    assert here.rules == {"mrga": "router", "mrgb": "router", "mrgd": "other"}
    assert ("10.0.2.0/24", "dev", "mrgb") not in here.tables["other"], "a network of another router's"
