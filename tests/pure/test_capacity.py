"""The predicted number of further servers is the number that the scheduler really places, on any fleet and with any seed; on small fleets no placement has more."""

import random
from functools import partial

import msgspec
import numpy as np
import pytest
from tests.helpers.scheduler_oracle import Fleet, a_fleet, an_ask
from tests.helpers.world_builder import Cloud

from moorage.model.ids import HostId, ProviderId
from moorage.model.request_groups import RequestGroup
from moorage.model.world import Ask, GroupAsk, NicRequirement, World
from moorage.scheduler.capacity import ADDRESSES, CapacityAnswer, Fill, answer, count
from moorage.scheduler.filters.network import choose_segments
from moorage.scheduler.host_tree import read_tree, search
from moorage.scheduler.host_tree import ways as ways_of
from moorage.scheduler.profile import Profile
from moorage.scheduler.rank import rank
from moorage.scheduler.trial import Trial

PROFILE = Profile()
judge = partial(rank, profile=PROFILE)
BANDWIDTH, INGRESS = "NET_BW_EGR_KILOBIT_PER_SEC", "NET_BW_IGR_KILOBIT_PER_SEC"
SMALL = {"VCPU": 2, "MEMORY_MB": 512}
FILL_MAX = 3000
FLEETS = 240


def capacity(ask: Ask, world: World) -> CapacityAnswer:
    found = count(ask, world, PROFILE)
    if found.sure:
        return answer(found)
    fill = Fill(ask, world, judge)
    fill.step(FILL_MAX)
    return answer(found, fill)


def filled(ask: Ask, world: World, seed: int) -> int:
    """What is reached by placing one after the other, as boots do, until nobody takes another."""
    trial, placed = Trial(world, judge), 0
    dice = random.Random(seed)
    while placed < FILL_MAX:
        if not trial.place(msgspec.structs.replace(ask, seed=dice.getrandbits(32))).best:
            return placed
        placed += 1
    raise AssertionError("nothing runs out")


def asked(dice: random.Random, fleet: Fleet) -> Ask:
    """Of a new server, which most hosts could have: moves are no matter of capacity."""
    ask = msgspec.structs.replace(an_ask(dice, fleet), leaves=None, not_on=(), prefer_cell=None, cells_unfit={})
    if dice.random() < 0.8:
        ask = msgspec.structs.replace(
            ask, resources={"VCPU": 1}, required=(), forbidden=(), extra_specs={}, same_host=None, different_host=(),
            host=None, availability_zone=None, min_level=0, nics=ask.nics[:2],
        )  # fmt: skip
    return ask


def roomy(dice: random.Random) -> Fleet:
    """With more addresses, so that now these run out first and now the hosts do."""
    fleet = a_fleet(dice)
    for segment in fleet.segments.values():
        segment.total += dice.choice((0, 5, 30))
    return fleet


@pytest.mark.parametrize("share", range(8))
def test_the_prediction_equals_the_result_of_filling(share: int) -> None:
    sure = several = 0
    for seed in range(share * FLEETS // 8, (share + 1) * FLEETS // 8):
        dice = random.Random(f"capacity/{seed}")
        fleet = roomy(dice)
        world, ask = fleet.world(), asked(dice, fleet)
        found, result = count(ask, world, PROFILE), capacity(ask, world)
        reached = [filled(ask, world, each) for each in range(2)]
        assert all(each <= result.at_most for each in reached), seed
        assert result.fits <= result.at_most, seed
        if found.sure:
            sure += 1
            several += result.fits > 1
            assert reached == [result.fits] * 2, (seed, ask)
            _parts_are_reached_too(result, ask, world)
        if result.at_most <= 5 and len(fleet.hosts) <= 4:
            best = most(ask, world)
            assert best <= result.at_most, seed
            assert not found.sure or best == result.fits, seed
    assert sure > FLEETS / 8 * 0.5
    assert several >= 5


def _parts_are_reached_too(result: CapacityAnswer, ask: Ask, world: World) -> None:
    for cell in result.cells:
        here = tuple(each for each in world.cell_names if each == cell.name)
        assert filled(msgspec.structs.replace(ask, cells=here), world, 3) == cell.fits
    if ask.availability_zone is None:
        for zone in result.zones:
            assert filled(msgspec.structs.replace(ask, availability_zone=zone.name), world, 4) == zone.fits
    if ask.host is None:
        for host in result.hosts:
            assert filled(msgspec.structs.replace(ask, host=host.host), world, 5) == host.fits
            assert host.binds


def most(ask: Ask, world: World) -> int:
    """Every host, and every way of it, tried after every other."""
    trial, best = Trial(world, judge), 0
    verdict = msgspec.structs.replace(ask, seed=1)
    for host in {each.name for each in _willing(verdict, world)}:
        slot = world.slots_by_name[host]
        segments = choose_segments(ask, world, slot)
        ways = list(ways_of(search(ask, read_tree(ask, world, slot), every=True))) if ask.groups else [{}]
        for way in ways:
            trial = Trial(world, judge)
            choice = next(each for each in _willing(verdict, world) if each.name == host)
            assert segments is not None
            for taken in _other_segments(ask, world, slot):
                trial = Trial(world, judge)
                trial.take(ask, msgspec.structs.replace(choice, segments=taken, providers=way))
                best = max(best, 1 + most(ask, trial.world))
    return best


def _willing(ask: Ask, world: World) -> list[msgspec.Struct]:
    return list(rank(ask, world, Profile(best=100, placed=100)).best)


def _other_segments(ask: Ask, world: World, slot: int) -> list[tuple[ProviderId | None, ...]]:
    """Every way of giving each NIC one of the segments that the host is wired to."""
    ways: list[tuple[ProviderId | None, ...]] = [()]
    for nic in ask.nics:
        here = [each for each in nic.segments if each in world.segments and world.segments[each].wired[slot]]
        ways = [(*way, each) for way in ways for each in (here or [None])]
    fitting = []
    for way in ways:
        wanted: dict[ProviderId, int] = {}
        for nic, segment in zip(ask.nics, way, strict=True):
            if segment is not None:
                wanted[segment] = wanted.get(segment, 0) + nic.addresses
        if all(n <= world.segments[segment].free or not n for segment, n in wanted.items()):
            fitting.append(way)
    return fitting


def test_the_first_exhausted_resource_is_named() -> None:
    cloud = Cloud()
    for number in range(4):
        cloud.host(f"a{number}", 8, 65536, wired=("sa",)).host(f"b{number}", 64, 1024, wired=("sb",))
    cloud.segment("sa", 100).segment("sb", 5).host("dark", 64, 65536)
    result = capacity(
        Ask(resources=SMALL, nics=(NicRequirement("n", (ProviderId("sa"), ProviderId("sb"))),)), cloud.world()
    )
    assert (result.fits, result.order_matters) == (4 * 4 + 5, False)
    assert result.binds == {"VCPU": 4, ADDRESSES: 4}
    assert result.refused == {"not wired to the network": 1}
    assert [(each.segments, each.fits, each.binds) for each in result.segments] == [
        (("sa",), 16, {"VCPU": 4}),
        (("sb",), 5, {ADDRESSES: 4}),
    ]
    assert {each.host: (each.fits, each.binds) for each in result.hosts}["b1"] == (2, ("MEMORY_MB",))


def test_guarantees_are_counted_device_by_device() -> None:
    cloud = Cloud()
    for number in range(3):
        cloud.host(f"h{number}", 64, 65536)
        cloud.device(f"h{number}", f"n{number}a", {BANDWIDTH: 1000, INGRESS: 900})
        cloud.device(f"h{number}", f"n{number}b", {BANDWIDTH: 500, INGRESS: 900})
    group = RequestGroup("p", {BANDWIDTH: 300, INGRESS: 100}, port="p")
    result = capacity(Ask(resources=SMALL, groups=(group,)), cloud.world())
    assert result.fits == 3 * (3 + 1)
    assert result.binds == {BANDWIDTH: 3}


def test_affinity_and_anti_affinity_groups_are_counted() -> None:
    cloud = Cloud().host("a", 8, 65536).host("b", 4, 65536)
    apart = Ask(resources=SMALL, group=GroupAsk("g", "anti-affinity", 2))
    assert (capacity(apart, cloud.world()).fits, capacity(apart, cloud.world()).binds) == (
        4,
        {"server group": 2, "VCPU": 1},
    )
    together = capacity(Ask(resources=SMALL, group=GroupAsk("g", "affinity")), cloud.world())
    assert together.fits in {2, 4}
    assert (together.at_most, together.order_matters) == (4, True)


def test_ports_of_several_groups_are_searched_for_together() -> None:
    """Bandwidth and packet rate of one port belong to one subtree: the closed form does not count that, the search does."""
    cloud = Cloud().host("a", 64, 65536)
    for device in ("x", "y"):
        cloud.device("a", f"a:agent:{device}", {"NET_PACKET_RATE_KILOPACKET_PER_SEC": 50})
        cloud.device("a", f"{device}-bw", {BANDWIDTH: 1000}, below=f"a:agent:{device}")
    groups = (RequestGroup("r", {"NET_PACKET_RATE_KILOPACKET_PER_SEC": 20}), RequestGroup("b", {BANDWIDTH: 100}))
    ask = Ask(resources=SMALL, groups=groups, same_subtree=(("r", "b"),))
    world = cloud.world()
    result = capacity(ask, world)
    assert (result.fits, result.order_matters) == (4, False)
    assert [filled(ask, world, seed) for seed in range(4)] == [4] * 4


def test_the_world_is_not_changed() -> None:
    dice = random.Random(11)
    fleet = a_fleet(dice)
    world = fleet.world()
    before = {name: column.copy() for name, column in world.free.items()}
    for _ in range(20):
        capacity(asked(dice, fleet), world)
    assert all(np.array_equal(before[name], column) for name, column in world.free.items())
    assert HostId("h0") in world.slots
