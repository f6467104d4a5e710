"""Provider objects are made from rows on demand: cached ones follow changes, and dropping them changes no answer."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.helpers.world_builder import Cloud

from moorage.model.ids import ProviderId
from moorage.model.provider_tree import GroupDemand
from moorage.placement.cache import provider_objects, provider_rows
from moorage.placement.cache.cache import WASTE_MIN, ProviderCache
from moorage.placement.service.candidate_rules import CandidateRules
from moorage.placement.service.candidates import find, find_alone
from moorage.store.region.placement.change_feed import ProviderChanges

H1, H2, D = ProviderId("h1"), ProviderId("h2"), ProviderId("d")


def fleet() -> Cloud:
    cloud = Cloud()
    for host in ("h1", "h2", "h3"):
        cloud.host(host, wired=("a",))
        for number in range(4):
            cloud.device(host, f"{host}:{number}", {"DISK_GB": 4 + number}, traits=("T",))
    return cloud.device("h1", "d", {"PGPU": 2})


def again(picture: ProviderCache, cloud: Cloud, version: int, uuid: str, change: Callable[[Any], None]) -> None:
    """One provider is read again, after a change of its rows."""
    picked: dict[str, list[Any]] = {}
    for kind, rows in cloud.rows.items():
        picked[kind] = [row for row in rows if uuid in (getattr(row, "uuid", None), getattr(row, "provider", None))]
    picked["providers"][0].version = version
    change(picked)
    picture.apply(ProviderChanges(version, **picked))  # type: ignore[arg-type]


def contents_of(picture: ProviderCache, uuid: ProviderId) -> object:
    one = picture.providers[uuid]
    stocks = {name: (stock.cap, stock.used) for name, stock in one.stocks.items()}
    return one.name, one.parent, one.root, one.generation, one.traits, one.aggregates, stocks


def test_a_cached_provider_object_follows_changes() -> None:
    cloud = fleet()
    picture = cloud.picture()
    one, tree = picture.providers[D], picture.trees[H1]
    assert tree[D] is one
    one.shown = {"kind": b"as it was"}
    picture._apply_used(D, "PGPU", 1, 2, 5)
    assert (one.stocks["PGPU"].used, one.shown) == (1, None)
    picture._apply_used(D, "PGPU", 2, 2, 4)  # older
    picture._apply_used(D, "PGPU", 0, 9, 6)  # its capacity is another
    assert (one.stocks["PGPU"].used, one.stocks["PGPU"].cap) == (0, 9)
    again(picture, cloud, 7, "d", lambda rows: rows.update(traits=[SimpleNamespace(provider="d", trait="NEW")]))
    assert picture.providers[D] is one
    assert one.traits == {"NEW"}
    assert one.stocks["PGPU"].used == 0  # the inventory's own version was older
    picture._drop_objects()
    assert picture.providers[D] is not one
    assert contents_of(picture, D) == ("d", "h1", "h1", 1, {"NEW"}, frozenset(), {"PGPU": (2, 0)})


def test_a_moved_provider_is_in_one_tree_only() -> None:
    cloud = fleet()
    picture = cloud.picture()
    before, after = picture.trees[H1], picture.trees[H2]

    def move(rows: Any) -> None:
        rows["providers"][0].parent, rows["providers"][0].root = "h2", "h2"

    again(picture, cloud, 2, "d", move)
    assert D in before  # who is looking still sees what it saw
    assert D not in after
    assert D not in picture.trees[H1]
    assert D in picture.trees[H2]
    nested = picture.world().nested
    assert nested.host[nested.ids.index(D)] == picture.slots[H2]  # type: ignore[index]
    assert len(picture.trees) == 3

    def alone(rows: Any) -> None:
        rows["providers"][0].parent, rows["providers"][0].root = None, "d"

    again(picture, cloud, 3, "d", alone)
    assert len(picture.trees) == 4
    assert list(picture.trees[D]) == [D]
    assert D in picture.slots
    again(picture, cloud, 4, "d", move)
    assert D not in picture.slots
    assert (len(picture.trees), len(picture.providers)) == (3, 16)
    picture.apply(ProviderChanges(5, gone=["d", "h2", *(f"h2:{n}" for n in range(4))]))
    assert (len(picture.trees), len(picture.providers)) == (2, 10)
    assert D not in picture.providers
    with pytest.raises(KeyError):
        _ = picture.providers[D]
    with pytest.raises(KeyError):
        _ = picture.trees[H2]
    again(picture, cloud, 6, "d", alone)  # it is there again
    assert contents_of(picture, D) == ("d", None, "d", 1, frozenset(), frozenset(), {"PGPU": (2, 0)})


def test_a_child_may_be_read_before_its_root() -> None:
    cloud = Cloud().host("h1").device("h1", "d", {"PGPU": 2})
    cloud.rows["providers"].reverse()
    picture = cloud.picture()
    assert sorted(picture.trees[H1]) == ["d", "h1"]
    assert [picture.world().nested.ids[slot] for slot in picture.world().nested.below[H1]] == ["d"]  # type: ignore[index]
    orphan = Cloud().device("h1", "d", {"PGPU": 2}).picture()
    assert H1 not in orphan.providers
    assert list(orphan.trees[H1]) == ["d"]
    assert find(orphan, [GroupDemand("", {"PGPU": 1})], CandidateRules()) == []


@pytest.mark.parametrize("most", [1, 3, 7, 120_000])
def test_dropping_provider_objects_changes_no_answer(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(provider_objects, "KEPT_MAX", most)
    monkeypatch.setattr(provider_rows, "ALIKE_MAX", most)
    picture = fleet().picture()
    groups = [GroupDemand("", {"VCPU": 1}), GroupDemand("_1", {"DISK_GB": 5}), GroupDemand("_2", {"DISK_GB": 7})]
    for _ in range(2):
        found = find(picture, groups, CandidateRules(group_policy="isolate"))
        assert len({one.key() for one in found}) == 3 * 2
        assert picture.providers.object_count <= max(most, 6)  # a tree at a time at least
        picture._apply_used(ProviderId("h1:3"), "DISK_GB", 1, 7, 9)
        found = find(picture, groups, CandidateRules(group_policy="isolate"))
        assert {one.key() for one in found if ("h1", "VCPU") in one.amounts} == set()
        picture._apply_used(ProviderId("h1:3"), "DISK_GB", 0, 7, 9)
    flat = Cloud().host("h1").host("h2").picture()
    alone = find_alone(flat, [GroupDemand("", {"VCPU": 1})], CandidateRules())
    assert alone is not None
    assert sorted(one.uuid for one in alone) == ["h1", "h2"]


def test_pending_claims_do_not_remove_candidates() -> None:
    """The columns say what is left for decisions here; candidates say what the database says."""
    picture = fleet().picture()
    picture.pend([(D, "PGPU", 2)], +1)
    nested = picture.world().nested
    assert int(nested.free["PGPU"][nested.ids.index(D)]) == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("moorage.placement.service.candidates.SEEN_FIRST", 0)
        assert len(find(picture, [GroupDemand("", {"PGPU": 2})], CandidateRules())) == 1


def test_providers_are_found_by_name() -> None:
    picture = fleet().picture()
    assert [one.uuid for one in picture.providers.named("h1:2")] == ["h1:2"]
    assert picture.providers.named("nobody") == []
    picture.apply(ProviderChanges(2, gone=["h1:2"]))
    assert picture.providers.named("h1:2") == []


def test_memory_of_removed_providers_is_counted() -> None:
    cloud = fleet()
    picture = cloud.picture()
    for version in range(2, WASTE_MIN + 20):
        picture._apply_used(D, "PGPU", 0, version, version)
    assert picture.wasteful
