"""Derived data of the provider cache are recomputed when they must be, and only then."""

from tests.helpers.world_builder import Cloud  # type: ignore[import-not-found]

from moorage.model.ids import ProviderId
from moorage.model.world import NO_SEGMENT, SEVERAL, Ask, NicRequirement
from moorage.placement.cache.cache import ProviderCache
from moorage.scheduler.profile import Profile
from moorage.scheduler.rank import rank
from moorage.store.region.placement.change_feed import ProviderChanges

S1, S2 = ProviderId("s1"), ProviderId("s2")


def again(picture: ProviderCache, cloud: Cloud, version: int, **facts: object) -> None:
    """All rows of the cloud are read once more, as another version."""
    for rows in cloud.rows.values():
        for row in rows:
            if hasattr(row, "version"):
                row.version = version
            for name, value in facts.items():
                if hasattr(row, name):
                    setattr(row, name, value)
    picture.apply(ProviderChanges(version, **cloud.rows))


def test_a_new_generation_does_not_change_the_world() -> None:
    cloud = Cloud().host("h1", wired=("s1",)).host("h2", wired=("s2",)).segment("s1", 5).segment("s2", 5)
    picture = cloud.picture()
    world = picture.world()
    reach = world.reach((S1, S2))
    again(picture, cloud, 2, generation=9)
    assert picture.world() is world
    assert picture.world().reach((S1, S2)) is reach
    again(picture, cloud, 3, zone="elsewhere")
    assert picture.world() is not world
    assert [picture.world().zone_names[z] for z in picture.world().zone[:2]] == ["elsewhere", "elsewhere"]


def test_a_hosts_only_reachable_segment_is_known() -> None:
    cloud = (
        Cloud().host("h1", wired=("s1",)).host("h2", wired=("s1", "s2")).host("h3").segment("s1", 5).segment("s2", 5)
    )
    world = cloud.world()
    only = world.reach((S2, ProviderId("unknown"), S1)).only
    assert [int(only[world.slots_by_name[name]]) for name in ("h1", "h2", "h3")] == [2, SEVERAL, NO_SEGMENT]


def test_the_next_decision_sees_new_wiring() -> None:
    cloud = Cloud().host("h1", wired=("s1",)).host("h2").segment("s1", 1)
    picture = cloud.picture()
    ask = Ask(resources={"VCPU": 1}, nics=(NicRequirement("net", (S1,)),))
    assert [c.name for c in rank(ask, picture.world(), Profile()).best] == ["h1"]
    next(row for row in cloud.rows["aggregates"] if row.provider == "h1").provider = "h2"
    again(picture, cloud, 2)
    assert [c.name for c in rank(ask, picture.world(), Profile()).best] == ["h2"]
    picture._apply_used(S1, "IPV4_ADDRESS", 1, 1, 3)
    verdict = rank(ask, picture.world(), Profile())
    assert verdict.best == ()
    assert "has 0 of 1 addresses free" in verdict.explain()
