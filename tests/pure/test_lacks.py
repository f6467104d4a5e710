"""What a request lacks, which requests are of one kind, and what the provider cache notes as freed."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.helpers.world_builder import Cloud

from moorage.model.errors import Invalid
from moorage.model.ids import ProviderId
from moorage.model.request_groups import RequestGroup
from moorage.model.waiting import WaitingLimits, requested_limit_s
from moorage.model.world import Ask, GroupAsk, NicRequirement
from moorage.placement.cache.freed import Freed, NotingCache
from moorage.scheduler.lacks import _KEYS, CAUSES, causes_of, kind_of, lacks
from moorage.scheduler.profile import FILTERS, HOSTS_ONLY
from moorage.store.region.placement.change_feed import ProviderChanges

SEGMENT, OTHER = ProviderId("segment"), ProviderId("other")
ASK = Ask(resources={"VCPU": 2, "MEMORY_MB": 512}, nics=(NicRequirement("port-1", (SEGMENT,)),))


def test_only_resources_short_on_some_host_are_lacks() -> None:
    """Each filter that refuses a host counts, whichever came first; a new host always would do."""
    cloud = Cloud().segment("segment", 0, 4)
    cloud.host("full", 1, wired=("segment",)).host("small", 8, 256, wired=("segment",))
    assert lacks(ASK, cloud.world()) == {"hosts", "VCPU", "MEMORY_MB", "IPV4_ADDRESS@segment"}
    cloud = Cloud().segment("segment", 0, 4).host("a", 8, wired=("segment",))
    assert lacks(ASK, cloud.world()) == {"hosts", "IPV4_ADDRESS@segment"}
    cloud = Cloud().segment("segment", 3, 4).host("a", 1, wired=("segment",))
    assert lacks(ASK, cloud.world()) == {"hosts", "VCPU"}
    assert lacks(ASK, Cloud().world()) == {"hosts"}
    bandwidth = msgspec.structs.replace(ASK, nics=(), groups=(RequestGroup("p", {"NET_BW_EGR_KILOBIT_PER_SEC": 9}),))
    assert "NET_BW_EGR_KILOBIT_PER_SEC" in lacks(bandwidth, cloud.world())


def test_every_cause_has_a_text() -> None:
    keys = {"hosts", "VCPU", "IPV4_ADDRESS@s", "NET_BW_IGR_KILOBIT_PER_SEC", "group:g", "SRIOV_NET_VF", "DISK_GB", "X"}
    found = causes_of(keys)
    assert found == ("addresses", "bandwidth", "devices", "disk", "other", "server_group", "vcpu")
    assert set(found) < set(CAUSES)
    assert causes_of({"hosts"}) == ("hosts",)


def test_requests_with_the_same_answers_have_one_kind() -> None:
    """The dice and the names of ports are each server's own."""
    group = RequestGroup("port-1", {"NET_BW_EGR_KILOBIT_PER_SEC": 9}, port="port-1")
    one = msgspec.structs.replace(ASK, groups=(group,), same_subtree=(("port-1",),), seed=1)
    nic = NicRequirement("port-2", (SEGMENT,))
    named = msgspec.structs.replace(group, id="port-2", port="port-2")
    same = msgspec.structs.replace(one, nics=(nic,), groups=(named,), same_subtree=(("port-2",),), seed=2)
    assert kind_of(one) == kind_of(same)
    changes: tuple[dict[str, Any], ...] = (
        {"resources": {"VCPU": 3}},
        {"nics": (NicRequirement("port-1", (OTHER,)),)},
        {"group": GroupAsk("g", "affinity")},
        {"project": "p"},
        {"host": "host1"},
        {"groups": (msgspec.structs.replace(group, required=("CUSTOM_PHYSNET_A",)),)},
    )
    assert len({kind_of(msgspec.structs.replace(one, **each)) for each in changes} | {kind_of(one)}) == 1 + len(changes)


def noting() -> tuple[NotingCache, Freed]:
    picture, freed = NotingCache(), Freed()
    rows = Cloud().segment("segment", 0, 4).host("a", 8, wired=("segment",), used=8000).rows
    picture.apply(ProviderChanges(1, everything=True, **rows))  # type: ignore[arg-type]
    picture.freed = freed
    return picture, freed


def stock(provider: str, resource: str, used: int, version: int, cap: int = 8192) -> Any:
    return SimpleNamespace(provider=provider, resource=resource, used=used, cap=cap, version=version)


def test_only_freed_resources_are_noted() -> None:
    picture, freed = noting()
    picture.apply(ProviderChanges(2, inventories=[stock("a", "MEMORY_MB", 8100, 2)]))
    assert not freed.news.is_set(), "less is free"
    picture.apply(ProviderChanges(3, inventories=[stock("a", "MEMORY_MB", 4000, 3)]))
    assert freed.take().keys == {"MEMORY_MB", "MEMORY_MB@a"}
    picture.apply(ProviderChanges(3, inventories=[stock("a", "MEMORY_MB", 4000, 3)]))
    assert not freed.news.is_set(), "the same, read again"
    picture.apply(ProviderChanges(4, inventories=[stock("segment", "IPV4_ADDRESS", 4, 4, cap=5)]))
    assert freed.take().keys == {"IPV4_ADDRESS", "IPV4_ADDRESS@segment"}
    picture.pend([(ProviderId("a"), "VCPU", 2)], +1)
    assert not freed.news.is_set()
    picture.pend([(ProviderId("a"), "VCPU", 2)], -1)
    assert freed.take().keys == {"VCPU", "VCPU@a"}


def test_returning_hosts_are_noted() -> None:
    picture, freed = noting()
    picture.set_alive("a", True)
    assert not freed.news.is_set()
    picture.set_alive("a", False)
    assert not freed.news.is_set()
    picture.set_alive("a", True)
    assert freed.take().keys == {"hosts"}
    picture.set_host_aggregates([("x", {"availability_zone": "z"}, ["a"])])
    assert freed.take().keys == {"hosts"}
    more = Cloud().host("b", 8).rows
    picture.apply(ProviderChanges(5, **more))  # type: ignore[arg-type]
    assert {"hosts", "VCPU@b"} <= freed.take().keys


def test_a_freed_place_in_a_group_is_noted() -> None:
    picture, freed = noting()
    rows = [SimpleNamespace(server_group="g", host="a", n=1)]
    picture.apply(ProviderChanges(2, group_hosts=rows))  # type: ignore[arg-type]
    assert not freed.news.is_set()
    rows[0].n = 0
    picture.apply(ProviderChanges(3, group_hosts=rows))  # type: ignore[arg-type]
    assert freed.take().keys == {"group:g"}


def test_a_reloaded_cache_may_have_anything_free() -> None:
    picture, freed = noting()
    successor = picture.successor()
    assert isinstance(successor, NotingCache)
    successor.take_over(picture)
    assert freed.take().everything
    assert successor.freed is freed


@pytest.mark.parametrize(
    ("hints", "specs", "seconds"),
    [
        ({}, {}, None),
        ({"moorage:wait": "true"}, {}, 60.0),
        ({"moorage:wait": "30"}, {"moorage:wait": "90"}, 30.0),
        ({}, {"moorage:wait": "90"}, 90.0),
        ({"moorage:wait": "False"}, {"moorage:wait": "90"}, None),
    ],
)
def test_the_hint_counts_before_the_flavor(hints: dict[str, str], specs: dict[str, str], seconds: float | None) -> None:
    assert requested_limit_s(hints, specs, WaitingLimits(60.0, 100.0)) == seconds


@pytest.mark.parametrize("value", ["101", "0", "-1", "soon", "", "1e3", "٣"])
def test_other_values_are_refused(value: str) -> None:
    with pytest.raises(Invalid, match="moorage:wait"):
        requested_limit_s({"moorage:wait": value}, {}, WaitingLimits(60.0, 100.0))


def test_every_filter_says_what_a_request_lacks() -> None:
    """Else a server that waits is not woken by what the filter refuses for."""
    missing = [judge.__name__ for judge in FILTERS if judge not in _KEYS and judge not in HOSTS_ONLY]
    assert not missing, (
        f"add to `_KEYS` in scheduler/lacks.py, or to `HOSTS_ONLY` in scheduler/profile.py if only a changed host helps: {missing}"
    )
    both = [judge.__name__ for judge in HOSTS_ONLY if judge in _KEYS]
    assert not both, f"keep in one of `_KEYS` of scheduler/lacks.py and `HOSTS_ONLY` of scheduler/profile.py: {both}"
