"""Limits of the identity service: what holds without a registered limit, how refusals are worded, and how long answers are kept."""

import asyncio

import pytest

from moorage.main.config import Config, checked
from moorage.main.config_quota import Quota
from moorage.model.errors import Invalid, Unavailable
from moorage.model.flavor_classes import classes_of
from moorage.model.ids import FlavorId
from moorage.model.quota import DEFAULT_LIMITS, CountLimit, Over, Shortfall
from moorage.model.server import FlavorCopy
from moorage.model.unified_limits import UnifiedLimits
from moorage.operations.unified_limits import (
    KEPT_S,
    RETRY_S,
    STALE_MAX_S,
    MissingLimits,
    UnifiedLimitsCache,
    check_at_start,
)

REGISTERED = {"servers": 5, "class:VCPU": 8, "class:MEMORY_MB": -1, "server_groups": 3, "class:DISK_GB": 40}


def of(**changes: object) -> UnifiedLimits:
    return UnifiedLimits("p", dict(REGISTERED), **changes)  # type: ignore[arg-type]


def test_a_projects_limit_replaces_the_registered_one() -> None:
    limits = of(own={"servers": 7, "server_groups": 9})
    assert limits.limit("servers") == 7
    assert limits.limit("server_groups") == 3, "not counted by project: Nova asks for the registered limit alone"
    assert limits.limit("class:MEMORY_MB") == -1


@pytest.mark.parametrize(
    ("strategy", "listed", "servers", "keys"),
    [
        ("require", ("servers",), 0, -1),
        ("require", (), -1, -1),
        ("ignore", ("servers",), -1, 0),
        ("ignore", (), 0, 0),
    ],
)
def test_the_strategy_decides_without_a_registered_limit(
    strategy: str, listed: tuple[str, ...], servers: int, keys: int
) -> None:
    limits = UnifiedLimits("p", {}, {}, strategy, listed)  # type: ignore[arg-type]
    assert (limits.limit("servers"), limits.limit("server_key_pairs")) == (servers, keys)


def test_quotas_show_what_is_at_the_identity_service() -> None:
    shown = of(own={"servers": 7}).shown(DEFAULT_LIMITS)
    assert (shown["instances"], shown["cores"], shown["ram"], shown["server_groups"]) == (7, 8, -1, 3)
    assert shown["key_pairs"] == 0, "as Nova shows a resource without a registered limit"
    assert (shown["fixed_ips"], shown["security_group_rules"]) == (-1, -1)
    assert of(own={"servers": 7}).shown(DEFAULT_LIMITS, defaults=True)["instances"] == 5


def test_refusals_have_the_words_of_oslo_limit() -> None:
    short = Shortfall((Over("instances", 2, 4, 5), Over("class:DISK_GB", 20, 30, 40)), of())
    assert short.problem().public == (
        "Project p is over a limit for [Resource servers is over limit of 5 due to current usage 4 and delta 2, "
        "Resource class:DISK_GB is over limit of 40 due to current usage 30 and delta 20]"
    )
    over = CountLimit("metadata_items", 1, unified=True).excess(2, "otherwise")
    assert over is not None
    assert over.public == (
        "Project None is over a limit for "
        "[Resource server_metadata_items is over limit of 1 due to current usage 0 and delta 2]"
    )
    assert CountLimit("metadata_items", -1, unified=True).excess(999, "otherwise") is None


def test_classes_of_flavors() -> None:
    flavor = FlavorCopy(FlavorId("f"), "f", 2, 512, 10, 5, 1025)
    assert classes_of(flavor, local_root=True) == {"class:DISK_GB": 17}
    assert classes_of(flavor, local_root=False) == {"class:DISK_GB": 7}
    specs = {
        "resources:DISK_GB": "0",
        "resources:CUSTOM_GOLD": "2",
        "resources1:CUSTOM_GOLD": "1",
        "resources:VCPU": "1",
    }
    assert classes_of(FlavorCopy(FlavorId("f"), "f", 2, 512, 10, extra_specs=specs), local_root=True) == {
        "class:CUSTOM_GOLD": 3
    }


def test_names_that_no_limit_has_are_refused() -> None:
    checked(Config(quota=Quota(unified_limits_resource_list=("servers", "class:CUSTOM_A_1", "class:VGPU"))))
    for wrong in ("instances", "class:NOTHING", "class:custom_a", "VCPU"):
        with pytest.raises(Invalid, match="unified_limits_resource_list"):
            checked(Config(quota=Quota(unified_limits_resource_list=(wrong,))))


class Source:
    def __init__(self) -> None:
        self.model, self.out, self.asked, self.own = "flat", False, 0, {"servers": 7}

    async def check_model(self) -> None:
        if self.out:
            raise Unavailable("no answer")
        if self.model != "flat":
            raise Invalid(f"the model {self.model}")

    async def registered(self) -> dict[str, int]:
        return await self._answer(REGISTERED)

    async def of_project(self, project: str) -> dict[str, int]:
        return await self._answer(self.own)

    async def _answer(self, limits: dict[str, int]) -> dict[str, int]:
        self.asked += 1
        await asyncio.sleep(0)
        if self.out:
            raise Unavailable("no answer")
        return dict(limits)


async def test_answers_are_kept_and_shared() -> None:
    source, now = Source(), [0.0]
    cache = UnifiedLimitsCache(source, MissingLimits(), monotonic=lambda: now[0])
    found = await asyncio.gather(*(cache.of("p") for _ in range(5)))
    assert {each.limit("servers") for each in found} == {7}
    assert source.asked == 2
    source.own = {"servers": 1}
    now[0] = KEPT_S - 1
    assert (await cache.of("p")).limit("servers") == 7
    now[0] = KEPT_S
    assert (await cache.of("p")).limit("servers") == 1


async def test_known_limits_hold_for_a_while_when_nobody_answers() -> None:
    source, now = Source(), [0.0]
    cache = UnifiedLimitsCache(source, MissingLimits(), monotonic=lambda: now[0])
    await cache.of("p")
    source.out = True
    now[0] = STALE_MAX_S - 1
    asked = source.asked
    for _ in range(3):
        assert (await cache.of("p")).limit("servers") == 7
    assert source.asked == asked + 2, f"nobody is asked again within {RETRY_S} s"
    now[0] = STALE_MAX_S
    with pytest.raises(Unavailable, match="are not known: no answer"):
        await cache.of("p")
    with pytest.raises(Unavailable):
        await cache.of("never asked before")
    source.out = False
    assert (await cache.of("p")).limit("servers") == 7


async def test_another_model_is_refused_at_the_start() -> None:
    source = Source()
    source.model = "strict_two_level"
    with pytest.raises(Invalid, match="strict_two_level"):
        await check_at_start(UnifiedLimitsCache(source, MissingLimits()))
    source.out = True
    await check_at_start(UnifiedLimitsCache(source, MissingLimits()))  # it may answer later


async def test_what_an_operator_should_know() -> None:
    source = Source()
    assert await UnifiedLimitsCache(source, MissingLimits()).warnings() == ()
    source.out = True
    (said,) = await UnifiedLimitsCache(source, MissingLimits()).warnings()
    assert "are not known: no answer" in said
