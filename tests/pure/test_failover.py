"""After a failure, each server with another place has one that the scheduler would choose, and the scheduler refuses the others."""

import itertools
import random
from functools import partial

import msgspec
import pytest
from tests.helpers.scheduler_oracle import a_fleet
from tests.helpers.world_builder import Cloud

from moorage.model.errors import Invalid
from moorage.model.ids import HostId, ProviderId
from moorage.model.request_groups import RequestGroup
from moorage.model.resident import Resident
from moorage.model.world import Ask, GroupAsk, NicRequirement, World
from moorage.scheduler.failover import NO_CHOICE, FailoverAnswer, Kind, Residents, affected, failing, place_all, take
from moorage.scheduler.failover import fail as fail_of
from moorage.scheduler.profile import Profile
from moorage.scheduler.rank import rank
from moorage.scheduler.trial import Trial
from moorage.scheduler.world_changes import Added, Like, LikeSegment, Without, changed, copied, with_twins

PROFILE = Profile()
judge = partial(rank, profile=PROFILE)
BANDWIDTH = "NET_BW_EGR_KILOBIT_PER_SEC"
FLEETS = 90


def fail(world: World, kind: Kind, name: str, residents: list[Resident], profile: Profile) -> FailoverAnswer:
    return fail_of(world, kind, name, Residents(residents), profile)


def populated(dice: random.Random) -> tuple[World, list[Resident]]:
    """A random fleet with servers that the scheduler placed."""
    fleet = a_fleet(dice)
    for segment in fleet.segments.values():
        segment.total += dice.choice((0, 4))
    trial, residents = Trial(fleet.world(), judge), list[Resident]()
    segments = tuple(ProviderId(each) for each in fleet.segments)
    for number in range(dice.randint(1, 7)):
        nics = (NicRequirement("n", segments),) if dice.random() < 0.6 else ()
        groups = (RequestGroup(f"p{number}", {BANDWIDTH: dice.randint(1, 4)}),) if dice.random() < 0.4 else ()
        amounts = {"VCPU": dice.randint(1, 3), "MEMORY_MB": dice.choice((512, 2048))}
        ask = Ask(resources=amounts, nics=nics, groups=groups, seed=number)
        verdict = trial.place(ask)
        if verdict.best:
            residents.append(
                resident(f"v{number}", ask, verdict.best[0].host, verdict.best[0].segments, dice.random() < 0.5)
            )
    return trial.world, residents


def resident(name: str, ask: Ask, host: HostId, held: tuple[ProviderId | None, ...], across: bool = False) -> Resident:
    stays = tuple(
        nic if segment is None else msgspec.structs.replace(nic, segments=(segment,), addresses=0)
        for nic, segment in zip(ask.nics, held, strict=True)
    )
    goes = tuple(
        msgspec.structs.replace(nic, segments=tuple(each for each in nic.segments if each not in held))
        for nic in ask.nics
    )
    asks = [msgspec.structs.replace(ask, nics=stays, leaves=host)]
    if across and held and all(nic.segments for nic in goes):
        asks.append(msgspec.structs.replace(ask, nics=goes, leaves=host))
    return Resident(name, host, tuple(each for each in held if each is not None), tuple(asks))


@pytest.mark.parametrize("share", range(3))
def test_places_and_refusals_equal_the_schedulers(share: int) -> None:
    lost = moved = 0
    for seed in range(share * FLEETS // 3, (share + 1) * FLEETS // 3):
        dice = random.Random(f"failover/{seed}")
        world, residents = populated(dice)
        for kind, name in _failures(world, residents):
            leaving, without = affected(world, kind, name, Residents(residents)), failing(world, kind, name)
            done = place_all(without, leaving, PROFILE)
            trial = Trial(without, judge)
            for one, ask, choice in done.placed:
                here = msgspec.structs.replace(ask, host=choice.name)
                verdict = rank(here, trial.world, Profile(best=100, placed=100))
                assert choice.segments in {each.segments for each in verdict.best}, (seed, name)
                take(trial, ask, choice, one)
            for one, _ in done.left:
                assert not any(rank(ask, trial.world, PROFILE).best for ask in one.asks), (seed, name)
            result = fail(world, kind, name, residents, PROFILE)
            assert result.placed >= len(done.placed)
            assert result.servers == len(leaving) == result.placed + len(result.unplaced)
            possible = somehow(without, leaving)
            assert not result.survives or possible, (seed, name)
            assert not any(each.alone for each in result.unplaced) or not possible, (seed, name)
            lost += not result.survives
            moved += result.placed
    assert lost > 10
    assert moved > 10


def _failures(world: World, residents: list[Resident]) -> list[tuple[Kind, str]]:
    hosts = sorted({world.names[world.slots[each.host]] for each in residents})
    segments = sorted({segment for each in residents for segment in each.segments})
    return [*(("host", each) for each in hosts), *(("segment", each) for each in segments)]  # type: ignore[list-item]


def somehow(world: World, leaving: list[Resident]) -> bool:
    """Whether any order, and any choice of hosts, has a place for all."""
    if not leaving:
        return True
    one, *others = leaving
    for ask in one.asks:
        for choice in rank(ask, world, Profile(best=100, placed=100)).best:
            trial = Trial(world, judge)
            trial.take(ask, choice)
            if somehow(trial.world, others):
                return True
    return False


def test_a_rack_with_its_own_segment_leaves_servers_without_a_place() -> None:
    cloud = Cloud().segment("s1", 4).segment("s2", 1)
    for number in range(2):
        cloud.host(f"a{number}", wired=("s1",)).host(f"b{number}", wired=("s2",))
    world = cloud.world()
    ask = Ask(resources={"VCPU": 2}, nics=(NicRequirement("n", (ProviderId("s1"), ProviderId("s2"))),))
    fixed = [resident(f"v{n}", ask, HostId("a0"), (ProviderId("s1"),)) for n in range(2)]
    result = fail(world, "host", "a0", fixed, PROFILE)
    assert (result.servers, result.placed, result.survives) == (2, 2, True)
    result = fail(world, "segment", "s1", fixed, PROFILE)
    assert (result.placed, result.causes) == (0, {NO_CHOICE: 2})
    free = [resident(f"v{n}", ask, HostId("a0"), (ProviderId("s1"),), True) for n in range(2)]
    result = fail(world, "segment", "s1", free, PROFILE)
    assert (result.placed, [each.alone for each in result.unplaced]) == (1, [False])
    assert result.causes == {"no free address on the network's segment": 1}


def test_failover_needs_free_bandwidth_too() -> None:
    cloud = Cloud()
    for name, free in (("a", 1000), ("b", 1000), ("c", 100)):
        cloud.host(name).device(name, f"{name}-nic", {BANDWIDTH: free})
    ask = Ask(resources={"VCPU": 1}, groups=(RequestGroup("p", {BANDWIDTH: 600}),))
    servers = [resident(f"v{n}", ask, HostId("a"), ()) for n in range(2)]
    result = fail(cloud.world(), "host", "a", servers, PROFILE)
    assert result.placed == 1
    assert "guaranteed bandwidth" in result.unplaced[0].why
    assert not result.unplaced[0].alone


def test_anti_affinity_is_kept_in_a_failover() -> None:
    cloud = Cloud().host("a").host("b").host("c")
    world = cloud.world()
    apart = Ask(resources={"VCPU": 1}, group=GroupAsk("g", "anti-affinity", own=1))
    trial = Trial(world, judge)
    placed = [
        trial.place(msgspec.structs.replace(apart, group=GroupAsk("g", "anti-affinity"))).best[0] for _ in range(3)
    ]
    members = [resident(f"v{n}", apart, each.host, ()) for n, each in enumerate(placed)]
    result = fail(trial.world, "host", "a", members, PROFILE)
    assert (result.servers, result.placed) == (1, 0)
    more = changed(trial.world, added=Added(hosts=(Like("b"),)))
    assert fail(more, "host", "a", members, PROFILE).survives


def test_the_largest_servers_come_first_and_failed_ones_are_retried_first() -> None:
    cloud = Cloud().host("a", 8).host("b", 4).host("c", 2)
    sizes = (2, 4)
    servers = [resident(f"v{n}", Ask(resources={"VCPU": n}), HostId("a"), ()) for n in sizes]
    for order in itertools.permutations(servers):
        assert fail(cloud.world(), "host", "a", list(order), PROFILE).survives


def test_removed_and_added_capacity_counts() -> None:
    cloud = Cloud().segment("s", 2).host("a", wired=("s",)).host("b", wired=("s",), cell="d")
    cloud.device("a", "a:agent:eth1", {BANDWIDTH: 1000}, below=None)
    world = cloud.world()
    bandwidth = Ask(resources={"VCPU": 1}, groups=(RequestGroup("p", {BANDWIDTH: 600}),))
    assert [each.name for each in judge(bandwidth, world).best] == ["a"]
    assert not judge(bandwidth, changed(world, Without(uplinks=("eth1",)))).best
    assert not judge(bandwidth, changed(world, Without(hosts=("a",)))).best
    more = changed(world, added=Added(hosts=(Like("a", 2),), uplinks=(Like("eth1"),), cells=(Like("d"),)))
    assert sorted({each.name for each in judge(bandwidth, more).best}) == ["a", "a+1", "a+2"]
    assert [name for name in more.names if name not in world.names] == ["a+1", "a+2", "b+1"]
    assert sum(len(more.nested.below.get(id, ())) for id in more.host_ids) == 6
    trial = Trial(more, judge)
    assert sum(bool(trial.place(bandwidth).best) for _ in range(9)) == 6
    routed = Ask(resources={"VCPU": 1}, nics=(NicRequirement("n", (ProviderId("s"),)),))
    wider = changed(world, added=Added(segments=(LikeSegment("s", 3),)))
    trial = Trial(wider, judge)
    assert sum(bool(trial.place(with_twins(routed, wider)).best) for _ in range(9)) == 5
    assert not judge(routed, changed(world, Without(segments=("s",)))).best
    assert [each.name for each in judge(routed, changed(world, Without(cells=("d",)))).best] == ["a"]
    assert judge(routed, copied(world)).best


@pytest.mark.parametrize(
    ("without", "added", "sentence"),
    [
        (Without(hosts=("x",)), Added(), "There is no host x."),
        (Without(cells=("x",)), Added(), "There is no cell x."),
        (Without(aggregates=("x",)), Added(), "There is no aggregate x."),
        (Without(segments=("x",)), Added(), "There is no segment x."),
        (Without(uplinks=("x",)), Added(), "There is no uplink x."),
        (Without(), Added(hosts=(Like("x"),)), "There is no host x."),
        (Without(), Added(cells=(Like("c", 20_000), Like("c"))), "At most 20000 hosts may be added in one question."),
    ],
)
def test_unknown_hosts_and_segments_are_refused(without: Without, added: Added, sentence: str) -> None:
    with pytest.raises(Invalid, match=sentence):
        changed(Cloud().host("a").world(), without, added)
