"""What a port on a routed network asks of the scheduler (S3.4)."""

from moorage.clients.network.addresses import near
from moorage.clients.network.fixed_ips import with_subnet
from moorage.model.network import FixedIp, NetworkFacts, OtherSubnets, Port, SegmentFacts, SubnetFacts
from moorage.operations.steps import segment_change
from moorage.operations.steps.guest_respawn import Cards
from moorage.operations.steps.ports import other_subnets, segments_for

SEGMENTS = (SegmentFacts("a", physical_network="left"), SegmentFacts("b", physical_network="right"))


def subnet(name: str, segment: str, version: int = 4, *, automatic: bool = False) -> SubnetFacts:
    cidr = "10.0.0.0/24" if version == 4 else "fd00::/64"
    return SubnetFacts(name, cidr, version=version, segment=segment, automatic=automatic)


def network(*subnets: SubnetFacts) -> NetworkFacts:
    return NetworkFacts("net", "net", segments=SEGMENTS, subnets=subnets)


def port(*addresses: tuple[str, str]) -> Port:
    return Port("port", "net", "", fixed_ips=tuple(FixedIp(*each) for each in addresses))


def test_a_port_without_an_address_can_use_any_segment() -> None:
    asked = segments_for(port(), network(subnet("a4", "a"), subnet("b4", "b"), subnet("b6", "b", 6)))
    assert (set(asked.segments), asked.addresses) == ({"a", "b"}, 1)


def test_a_given_address_selects_the_segment_and_ipv6_is_not_counted() -> None:
    facts = network(subnet("a4", "a"), subnet("b4", "b"), subnet("b6", "b", 6))
    four = segments_for(port(("b4", "10.0.0.9")), facts)
    assert (four.segments, four.addresses) == (("b",), 1)
    six = segments_for(port(("b6", "fd00::9")), facts)
    assert (six.segments, six.addresses) == (("b",), 0)


def test_an_ipv6_only_network_counts_only_host_links() -> None:
    asked = segments_for(port(), network(subnet("a6", "a", 6), subnet("b6", "b", 6)))
    assert asked.segments == ()
    assert set(asked.physnets) == {"left", "right"}


def test_other_subnets_of_the_chosen_segment() -> None:
    facts = network(
        subnet("a4", "a"),
        subnet("more", "a"),
        subnet("b4", "b"),
        subnet("a6", "a", 6),
        subnet("auto", "a", 6, automatic=True),
    )
    found = other_subnets((port(),), {"net": facts}, {0: "a4"})
    assert (found[0].spare, found[0].v6) == (("more",), "a6")
    assert other_subnets((port(),), {"net": facts}, {0: "b4"}) == {0: OtherSubnets(elsewhere=("auto",))}
    assert other_subnets((port(),), {"net": facts}, {}) == {}


def test_an_address_that_is_only_held_draws_no_other_to_its_segment() -> None:
    subnets = (subnet("a4", "a"), subnet("b4", "b"), subnet("c4", "c"))
    crossed = port(("b4", "10.0.1.9"), ("a4", "10.0.0.9"))
    assert [each.id for each in near(crossed, subnets, ())] == ["a4", "b4"]
    assert [each.id for each in near(crossed, subnets, {"10.0.0.9"})] == ["b4"]


def test_a_port_keeps_its_address_and_loses_that_of_a_third_segment() -> None:
    had, third = FixedIp("a4", "10.0.0.9"), FixedIp("c4", "10.0.2.9")
    kept = {"subnet_id": "a4", "ip_address": "10.0.0.9"}
    assert with_subnet((had,), ("b4",), None, (had,)) == [{"subnet_id": "b4"}, kept]
    assert with_subnet((third, had), ("b4",), None, (had,)) == [
        {"subnet_id": "b4"},
        kept,
        {"subnet_id": "c4", "delete_subnet": True},
    ]


def test_a_port_without_a_new_address_has_no_old_one_to_release() -> None:
    card = port(("a4", "10.0.0.9"))
    cards = Cards((card,), {"net": network(subnet("a4", "a"), subnet("b4", "b"))})
    given = port(("b4", "10.0.1.9"))
    assert segment_change.readdressed(cards, {0: "b4"}, (card,)) == ()
    (changed,) = segment_change.readdressed(cards, {0: "b4"}, (given,))
    assert (changed.old_segment, changed.new_segment) == ("a", "b")
