"""The scheduler, allocation candidates and an exhaustive search agree on random worlds."""

from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers.placement_oracle import Asked, Oracle, Part, Thing
from tests.helpers.world_builder import Cloud

from moorage.model.ids import HostId, ProviderId
from moorage.model.provider_tree import SHARES, GroupDemand
from moorage.model.request_groups import SRIOV_NET_VF, RequestGroup
from moorage.model.world import Ask, World
from moorage.model.world_snapshot import photo_of, world_of
from moorage.placement.cache.cache import ProviderCache
from moorage.placement.service.candidate_rules import CandidateRules
from moorage.placement.service.candidates import find
from moorage.scheduler.host_tree import read_tree, search, ways
from moorage.scheduler.profile import Profile
from moorage.scheduler.rank import rank
from moorage.scheduler.trial import Trial

CLASSES, TRAITS, AGGREGATES = ("VCPU", "CUSTOM_A", "CUSTOM_B"), ("CUSTOM_T1", "CUSTOM_T2", SHARES), ("A", "B")
VCPUS_AT_ONCE = 2
EVERYBODY = Profile(best=1000, placed=1000, misses=1000)
Way = tuple[str, ...]
"""The provider of each group, in the order of the groups."""


@dataclass(frozen=True)
class Spec:
    """A provider: where it is, and what it has."""

    parent: int
    """Among the earlier ones; -1: it is a root."""
    host: bool
    stocks: dict[str, tuple[int, int, int, int]]
    """Class → capacity, used, largest portion, step."""
    traits: frozenset[str]
    aggregates: frozenset[str]


_stock = st.tuples(st.integers(2, 4), st.sampled_from((0, 0, 1)), st.integers(1, 4), st.sampled_from((1, 1, 1, 2)))
_spec = st.builds(
    Spec,
    st.sampled_from((-1, 0, 0, 1, 1, 2, 3)),
    st.booleans(),
    st.dictionaries(st.sampled_from(CLASSES[1:]), _stock, min_size=1, max_size=2),
    st.frozensets(st.sampled_from((SHARES, *TRAITS)), max_size=2),
    st.frozensets(st.sampled_from(AGGREGATES), max_size=1),
)
_host = st.builds(replace, _spec, parent=st.just(-1), host=st.just(True))
_worlds = st.builds(lambda first, others: [first, *others], _host, st.lists(_spec, min_size=2, max_size=6))
_few = st.sampled_from(
    (frozenset[str](), frozenset[str](), frozenset[str](), frozenset(TRAITS[:1]), frozenset(TRAITS[1:2]))
)
_group = st.tuples(
    st.dictionaries(
        st.sampled_from(("CUSTOM_A", "CUSTOM_A", "CUSTOM_B", "VCPU")), st.integers(1, 2), min_size=1, max_size=2
    ),
    _few,
    _few,
)


def _groups(specs: list[tuple[dict[str, int], frozenset[str], frozenset[str]]]) -> tuple[RequestGroup, ...]:
    return tuple(
        RequestGroup(f"_{number}", resources, tuple(required), tuple(forbidden - required))
        for number, (resources, required, forbidden) in enumerate(specs)
    )


_asks = st.builds(
    lambda own, groups, policy, together, seed: Ask(
        resources={"VCPU": own},
        groups=groups,
        group_policy=policy,
        same_subtree=(tuple(group.id for group in groups),) if together else (),
        seed=seed,
    ),
    st.integers(1, 2),
    st.lists(_group, min_size=2, max_size=3).map(_groups),
    st.sampled_from(["none", "isolate"]),
    st.booleans(),
    st.integers(0, 3),
)


def build(specs: list[Spec]) -> tuple[ProviderCache, list[Thing], dict[tuple[str, str], int]]:
    """The same world for the cache and for the oracle, and what is used in it. Only hosts have VCPU."""
    cloud, things, used = Cloud(), list[Thing](), dict[tuple[str, str], int]()
    for index, spec in enumerate(specs):
        name, above = f"p{index}", things[spec.parent] if 0 <= spec.parent < index else None
        inventories = {
            each: {"total": cap, "max_unit": most, "step_size": step}
            for each, (cap, _, most, step) in spec.stocks.items()
        }
        root = name if above is None else above.root
        traits, aggregates = tuple(spec.traits), tuple(spec.aggregates)
        if above is not None:
            cloud.device(root, name, {}, below=above.uuid, traits=traits, aggregates=aggregates)
        elif spec.host:
            cloud.host(name, traits=traits, wired=aggregates)
            del cloud.rows["whole"][-2:]
            cloud.stock(name, "VCPU", 4, max_unit=VCPUS_AT_ONCE)
            inventories["VCPU"] = {"total": 4, "max_unit": VCPUS_AT_ONCE}
        else:
            cloud.root(name, traits=traits, aggregates=aggregates)
        for each, (cap, taken, most, step) in spec.stocks.items():
            cloud.stock(name, each, cap, min(taken, cap), max_unit=most, step=step)
            used[name, each] = min(taken, cap)
        things.append(
            Thing(
                name,
                None if above is None else above.uuid,
                root,
                inventories=inventories,
                traits=spec.traits,
                aggregates=spec.aggregates,
            )
        )
    return cloud.picture(), things, used


def accepted(ask: Ask, world: World, host: str) -> set[Way]:
    """Every way in which the scheduler would serve the groups on the host."""
    found = ways(search(ask, read_tree(ask, world, world.slots[HostId(host)]), every=True))
    return {tuple(way[group.id] for group in ask.groups) for way in found}


def offered(ask: Ask, picture: ProviderCache, host: str) -> set[Way]:
    """The same of allocation candidates: those that take from the host itself what the scheduler takes from there."""
    groups = [GroupDemand("", dict(ask.resources), in_tree=host)]
    for each in ask.groups:
        required = [frozenset((trait,)) for trait in each.required]
        groups.append(GroupDemand(each.id, dict(each.resources), required, set(each.forbidden)))
    together = tuple(frozenset(each) for each in ask.same_subtree)
    rules = CandidateRules(group_policy=ask.group_policy, same_subtree=together)
    found = [one.mappings for one in find(picture, groups, rules) if one.mappings[""] == {host}]
    return {tuple(next(iter(mappings[group.id])) for group in ask.groups) for mappings in found}


def possible(
    ask: Ask, things: list[Thing], used: dict[tuple[str, str], int], host: str, *, one_portion: bool = False
) -> set[Way]:
    """The same by trying everything; `one_portion`: as Placement's allocations are judged."""
    index = next(number for number, thing in enumerate(things) if thing.uuid == host)
    parts = {"": Part(ask.resources, in_tree=index)}
    for group in ask.groups:
        required = tuple(frozenset((trait,)) for trait in group.required)
        parts[group.id] = Part(group.resources, required, frozenset(group.forbidden))
    asked = Asked(parts, ask.group_policy, together=bool(ask.same_subtree))
    answers = Oracle(things, lambda uuid, name: used.get((uuid, name), 0), one_portion=one_portion).answers(asked)
    found = [dict(mappings) for _, mappings in answers]
    return {tuple(next(iter(each[group.id])) for group in ask.groups) for each in found if each[""] == {host}}


@settings(max_examples=300, deadline=None)
@given(_worlds, _asks)
def test_the_scheduler_accepts_what_allocation_candidates_offer(specs: list[Spec], ask: Ask) -> None:
    picture, things, used = build(specs)
    world = picture.world()
    hosts = [thing.uuid for thing, spec in zip(things, specs, strict=True) if thing.parent is None and spec.host]
    expected = {host: possible(ask, things, used, host) for host in hosts}
    candidates = {host: possible(ask, things, used, host, one_portion=True) for host in hosts}
    assert {host: offered(ask, picture, host) for host in hosts} == candidates
    assert all(candidates[host] <= expected[host] for host in hosts)
    assert {host: accepted(ask, world, host) for host in hosts} == expected
    for seen in (world, world_of(photo_of(world))):
        verdict = rank(ask, seen, EVERYBODY)
        chosen = {host: set[Way]() for host in hosts}
        for choice in verdict.best:
            chosen[choice.host].add(tuple(choice.providers[group.id] for group in ask.groups))
        assert {host for host, found in chosen.items() if found} == {host for host, found in expected.items() if found}
        assert all(found <= expected[host] for host, found in chosen.items())
        assert verdict.ledger.willing == sum(1 for found in expected.values() if found)


# ------------------------------------------------------------------------------------------------ who shares


def storage(*, gibibytes: int = 10, traits: tuple[str, ...] = (SHARES,)) -> Cloud:
    """Two hosts in one aggregate with a storage pool, and one that is in none."""
    cloud = Cloud().host("near", wired=("rack",)).host("next", wired=("rack",)).host("far")
    return cloud.root("pool", traits=traits, aggregates=("rack",)).stock("pool", "CUSTOM_FAST_GB", gibibytes)


FAST = Ask(resources={"VCPU": 1}, groups=(RequestGroup("1", {"CUSTOM_FAST_GB": 6}),))


def test_a_group_is_served_by_a_provider_that_shares_with_the_host() -> None:
    verdict = rank(FAST, storage().world(), EVERYBODY)
    assert {choice.name: choice.providers for choice in verdict.best} == {"near": {"1": "pool"}, "next": {"1": "pool"}}
    assert not rank(FAST, storage(traits=()).world(), EVERYBODY).best
    said = rank(FAST, storage(gibibytes=5).world(), EVERYBODY).explain()
    assert "CUSTOM_FAST_GB: 6 asked, at most 5 free on one device" in said


def test_sharing_providers_follow_changes() -> None:
    """A trait that comes or goes, an aggregate that is left: the next decision knows it."""
    from moorage.store.region.placement.change_feed import ProviderChanges

    picture = storage(traits=()).picture()
    assert not rank(FAST, picture.world(), EVERYBODY).best
    shares = Cloud().root("pool", traits=(SHARES,), aggregates=("rack",)).stock("pool", "CUSTOM_FAST_GB", 10)
    picture.apply(ProviderChanges(2, **shares.rows))  # type: ignore[arg-type]
    assert {choice.name for choice in rank(FAST, picture.world(), EVERYBODY).best} == {"near", "next"}
    picture.apply(ProviderChanges(3, **Cloud().host("next").rows))  # type: ignore[arg-type]
    assert {choice.name for choice in rank(FAST, picture.world(), EVERYBODY).best} == {"near"}
    picture.apply(ProviderChanges(4, gone=["pool"]))
    assert not rank(FAST, picture.world(), EVERYBODY).best


def test_a_pool_used_by_one_host_is_reduced_for_the_next() -> None:
    trial = Trial(storage().world(), lambda ask, world: rank(ask, world, EVERYBODY))
    assert trial.place(FAST).best
    assert not trial.place(FAST).best


def test_a_virtual_function_belongs_to_the_hosts_own_tree() -> None:
    """Whoever shares: no guest can use an interface of another host."""
    cloud = Cloud().host("h", wired=("rack",)).host("other", wired=("rack",))
    cloud.device("other", "nic", {SRIOV_NET_VF: 4}, traits=(SHARES,), aggregates=("rack",))
    ask = Ask(resources={"VCPU": 1}, groups=(RequestGroup("p", {SRIOV_NET_VF: 1}, port="p"),))
    best = rank(ask, cloud.world(), EVERYBODY).best
    assert [(choice.name, choice.providers) for choice in best] == [("other", {"p": ProviderId("nic")})]


def test_a_failure_with_one_sibling_may_succeed_with_a_parent() -> None:
    """Equal amounts are not enough to be alike where the place in the tree matters: of these three only two are in one subtree."""
    cloud = Cloud().host("h").device("h", "alone", {"CUSTOM_A": 1}).device("h", "upper", {"CUSTOM_A": 1})
    cloud.device("h", "upper:lower", {"CUSTOM_A": 1}, below="upper")
    picture = cloud.picture()
    groups = tuple(RequestGroup(name, {"CUSTOM_A": 1}) for name in ("_0", "_1"))
    ask = Ask(resources={"VCPU": 1}, groups=groups, group_policy="isolate", same_subtree=(("_0", "_1"),))
    both_ways = {("upper", "upper:lower"), ("upper:lower", "upper")}
    assert offered(ask, picture, "h") == accepted(ask, picture.world(), "h") == both_ways
    assert rank(ask, picture.world(), EVERYBODY).best
