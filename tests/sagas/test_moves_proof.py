"""Moves of servers with volumes, with guarantees, on routed networks, switched off, and on the same host: each step fails."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from moorage.model.server import VmState
from moorage.operations.registry import SAGAS
from moorage_testing.proof_parts import PARTS
from moorage_testing.region_fixture import SmallRegion
from moorage_testing.region_moved import about_moved, live_migrating, live_movable, movable, moved, resizing
from moorage_testing.region_prepared import PreparedRegion
from moorage_testing.saga_proof import prove

WORLDS: dict[str, dict[str, Any]] = {
    "volumes": {"volumes": True},
    "guarantees": {"guarantees": True},
    "off": {"state": VmState.STOPPED, "routed": True},
    "across": {"routed": True, "across": True},
}

MORE = [("revert_resize/1", "same host"), ("confirm_resize/1", "across")]
"""There is no other host to try for a server that is resized where it is; a confirm lets go of addresses only where others were given."""


@pytest.fixture
async def small() -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open()
    yield region
    await region.close()


LIVE_WORLDS: dict[str, dict[str, Any]] = {
    "volumes": {"volumes": True},
    "guarantees": {"guarantees": True},
    "paused": {"state": VmState.PAUSED, "routed": True},
}


@pytest.mark.matrix
@pytest.mark.parametrize("part", [pytest.param(part, id=part.name) for part in PARTS if part.name == "failing"])
@pytest.mark.parametrize("kind", LIVE_WORLDS)
async def test_every_kind_of_server_is_live_migrated(small: SmallRegion, kind: str, part: Any) -> None:
    world = LIVE_WORLDS[kind]
    asked = await live_migrating(small, **world)
    await prove(SAGAS["live_migrate/1"], asked, PreparedRegion(small, lambda: live_movable(small, **world)), part)


@pytest.mark.matrix
@pytest.mark.parametrize("part", [pytest.param(part, id=part.name) for part in PARTS if part.name == "failing"])
@pytest.mark.parametrize(
    ("saga", "kind"), [(saga, kind) for saga in ("resize/1", "revert_resize/1") for kind in WORLDS] + MORE
)
async def test_every_kind_of_server_moves_and_comes_back(small: SmallRegion, saga: str, kind: str, part: Any) -> None:
    world, here = WORLDS.get(kind, {}), kind == "same host"
    if saga == "resize/1":
        asked: Any = await resizing(small, same_host=here, **world)
        await prove(SAGAS[saga], asked, PreparedRegion(small, lambda: movable(small, **world)), part)
    else:
        asked = await about_moved(small, saga, same_host=here, **world)
        await prove(SAGAS[saga], asked, PreparedRegion(small, lambda: moved(small, same_host=here, **world)), part)
