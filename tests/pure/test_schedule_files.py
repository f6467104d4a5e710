"""A decision replayed from a file equals the decision that was made, on any world and for any request."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers.world_builder import Cloud

from moorage.main.schedule import describe, replay
from moorage.model.ids import HostId, ProviderId
from moorage.model.request_groups import RequestGroup
from moorage.model.resources import DISABLED_TRAIT
from moorage.model.world import Ask, Group, GroupAsk, NicRequirement, World
from moorage.model.world_snapshot import WorldSnapshot, photo_of, world_of
from moorage.placement.cache.cache import ProviderCache
from moorage.scheduler.profile import Profile
from moorage.scheduler.rank import rank
from moorage.store.region.placement.change_feed import ProviderChanges

SEGMENTS = ("s1", "s2")
TRAITS = ("CUSTOM_A", "CUSTOM_B", DISABLED_TRAIT)
NAMES = tuple(f"h{number}" for number in range(7))

host = st.fixed_dictionaries(
    {
        "vcpus": st.integers(0, 6),
        "memory": st.integers(0, 4000),
        "traits": st.sets(st.sampled_from(TRAITS), max_size=2),
        "wired": st.sets(st.sampled_from(SEGMENTS)),
        "zone": st.sampled_from(["nova", "west"]),
        "physnets": st.sampled_from([None, "", "p1", "p1,p2"]),
        "level": st.sampled_from([1, 3]),
        "alive": st.booleans(),
        "failures": st.integers(0, 2),
        "members": st.integers(0, 2),
        "gone": st.sampled_from([False, False, False, True]),
        "devices": st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=3),
    }
)
nics = st.builds(
    NicRequirement,
    name=st.just("n"),
    segments=st.sampled_from([(), (ProviderId("s1"),), (ProviderId("s1"), ProviderId("s2"))]),
    addresses=st.integers(0, 2),
    physnets=st.sampled_from([(), ("p1",), ("p2", "p3")]),
)
groups = st.builds(
    GroupAsk,
    id=st.just("g"),
    policy=st.sampled_from(["affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity"]),
)
request_groups = st.sampled_from(
    [
        (),
        (),
        (RequestGroup("a", {"NET_BW_EGR_KILOBIT_PER_SEC": 1}, ("CUSTOM_A",)),),
        tuple(RequestGroup(name, {"NET_BW_EGR_KILOBIT_PER_SEC": 2}) for name in "ab"),
    ]
)
names = st.sets(st.sampled_from([HostId(name) for name in NAMES]), max_size=2).map(lambda found: tuple(sorted(found)))
asks = st.builds(
    Ask,
    resources=st.dictionaries(st.sampled_from(["VCPU", "MEMORY_MB", "VGPU"]), st.integers(1, 600), max_size=2),
    required=st.sampled_from([(), ("CUSTOM_A",), ("CUSTOM_UNKNOWN",)]),
    forbidden=st.sampled_from([(), ("CUSTOM_B",)]),
    nics=st.lists(nics, max_size=2).map(tuple),
    availability_zone=st.sampled_from([None, None, "nova", "west", "nowhere"]),
    host=st.sampled_from([None, None, None, "h1"]),
    leaves=st.sampled_from([None, None, None, HostId("h1")]),
    not_on=names,
    same_host=st.none() | names,
    different_host=names,
    group=st.none() | groups,
    groups=request_groups,
    same_subtree=st.sampled_from([(), (("a", "b"),)]),
    group_policy=st.sampled_from(["none", "isolate"]),
    project=st.sampled_from(["p", "q"]),
    extra_specs=st.sampled_from([{}, {"aggregate_instance_extra_specs:ssd": "true"}]),
    min_level=st.sampled_from([0, 3]),
    seed=st.integers(0, 2**32 - 1),
)


def world_with(hosts: list[dict[str, object]], free: int, home: str | None) -> World:
    cloud = Cloud().segment("s1", free, 3).segment("s2", 1, 2)
    for name, facts in zip(NAMES, hosts, strict=False):
        known = {key: facts[key] for key in ("zone", "physnets", "level")}
        lists = {key: tuple(sorted(facts[key])) for key in ("traits", "wired")}  # type: ignore[call-overload]
        cloud.host(name, facts["vcpus"], facts["memory"], **known, **lists)  # type: ignore[arg-type]
        above: str | None = None
        for number, (free_kbps, of_a) in enumerate(facts["devices"]):  # type: ignore[arg-type, var-annotated]
            traits = ("CUSTOM_A",) if of_a else ()
            amounts = {"NET_BW_EGR_KILOBIT_PER_SEC": 3}
            cloud.device(name, f"{name}:{number}", amounts, below=above, traits=traits, used=3 - free_kbps)
            above = f"{name}:{number}" if of_a else None
    picture: ProviderCache = cloud.picture()
    group = picture.groups.setdefault("g", Group())
    group.home = None if home is None else HostId(home)
    for name, facts in zip(NAMES, hosts, strict=False):
        picture.set_alive(name, bool(facts["alive"]))
        for _ in range(int(facts["failures"])):  # type: ignore[call-overload]
            picture.count_failure(HostId(name), failed=True)
        if facts["members"]:
            group.hosts[HostId(name)] = int(facts["members"])  # type: ignore[call-overload]
    picture.apply(ProviderChanges(2, gone=[name for name, facts in zip(NAMES, hosts, strict=False) if facts["gone"]]))
    metadata = [{"ssd": "true", "filter_tenant_id": "q"}, {"availability_zone": "west"}]
    picture.set_host_aggregates([("a", metadata[0], ["h0", "h1"]), ("z", metadata[1], ["h2"])])
    return picture.world()


@settings(max_examples=150, deadline=None)
@given(
    st.lists(host, max_size=len(NAMES)),
    st.integers(0, 3),
    st.none() | st.sampled_from(NAMES),
    st.lists(asks, max_size=4),
)
def test_a_replay_is_the_decision(
    hosts: list[dict[str, object]], free: int, home: str | None, asked: list[Ask]
) -> None:
    world = world_with(hosts, free, home)
    photo = photo_of(world)
    developed = world_of(msgspec.json.decode(msgspec.json.encode(photo), type=WorldSnapshot))
    for ask in asked:
        read = msgspec.json.decode(msgspec.json.encode(ask), type=Ask)
        assert rank(read, developed, Profile()) == rank(ask, world, Profile())
    assert photo_of(developed) == photo


def test_an_empty_region_can_be_photographed() -> None:
    world = world_of(photo_of(Cloud().world()))
    assert rank(Ask(resources={"VCPU": 1}), world, Profile()).explain() == "there are no hosts"


def test_providers_of_a_group_are_shown() -> None:
    cloud = Cloud().host("h").device("h", "h:ovs:br1", {"NET_BW_EGR_KILOBIT_PER_SEC": 3})
    photo = photo_of(cloud.world())
    group = RequestGroup("g", {"NET_BW_EGR_KILOBIT_PER_SEC": 2})
    assert "  1. h (c), g of h:ovs:br1" in "\n".join(describe(replay(photo, Ask(resources={}, groups=(group,))), photo))
