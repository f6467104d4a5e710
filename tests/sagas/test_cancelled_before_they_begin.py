"""A saga that is cancelled before its first step undoes what was done while its request was answered."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from moorage.model.errors import Problem
from moorage.operations.registry import SAGAS
from moorage.saga import MemoryJournal, Unwound, execute, first_lines
from moorage_testing.region_fixture import SmallRegion
from moorage_testing.region_shelved import shelving
from moorage_testing.region_states import (
    IMAGE,
    MADE,
    SNAPSHOT_OF_VOLUME,
    VOLUME,
    booting_from_volume,
    extending_volume,
    imaged,
    snapshotting,
    snapshotting_still,
    snapshotting_volume,
    snapshotting_volumes,
    swapping_volume,
    with_grown_volume,
    with_snapshots,
    with_still_guest,
    with_swappable_volume,
    with_volume,
    with_volumes_ready,
)
from moorage_testing.saga_proof import PROVED_OPERATION

World = tuple[Any, Callable[[], Awaitable[SmallRegion]]]


@pytest.fixture
async def small() -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open()
    yield region
    await region.close()


async def worlds(small: SmallRegion) -> dict[str, World]:
    return {
        "boot/2": (booting_from_volume(), lambda: with_volumes_ready(small)),
        "boot/4": (booting_from_volume(), lambda: with_volumes_ready(small)),
        "snapshot/1": (snapshotting(), lambda: imaged(small)),
        "shelve/1": (shelving(offload=True), lambda: imaged(small)),
        "snapshot_volumes/1": (snapshotting_volumes(), lambda: with_snapshots(small)),
        "snapshot_volumes/2": (snapshotting_still(), lambda: with_still_guest(small)),
        "extend_volume/1": (extending_volume(), lambda: with_grown_volume(small)),
        "assisted_snapshot/1": (snapshotting_volume(), lambda: with_volume(small)),
        "swap_volume/1": (
            await swapping_volume(small, migrating=True),
            lambda: with_swappable_volume(small, migrating=True),
        ),
    }


def shown(small: SmallRegion) -> dict[str, object]:
    """What was made, held still, or left waiting for word."""
    volume = small.volumes.volumes[VOLUME]
    return {
        "image": IMAGE in small.images.whole,
        "snapshot": SNAPSHOT_OF_VOLUME in small.volumes.snapshots,
        "made": MADE in small.volumes.volumes,
        "still": bool(small.hosts.still),
        "volume": (volume.status, volume.migration_status),
        "said": dict(small.volumes.said),
    }


async def unwound(small: SmallRegion, name: str, asked: Any, *, cancelled: bool) -> dict[str, object]:
    """What is left; `cancelled`: before the first step, which fails otherwise."""

    async def refused(run: Any) -> Any:
        if cancelled:
            pytest.fail("it was cancelled before it began")
        raise Problem("planted")

    saga = SAGAS[name]
    saga = saga.but(saga.steps[0].but(do=refused))
    paper = MemoryJournal(first_lines(saga), small.transact)
    paper.cancel = "deleted" if cancelled else None
    with pytest.raises(Unwound):
        await execute(saga, PROVED_OPERATION, asked, small.context, paper)
    return shown(small)


async def test_resources_of_a_cancelled_request_are_removed_and_its_waiter_is_notified(small: SmallRegion) -> None:
    cases = await worlds(small)
    assert {name for name, saga in SAGAS.items() if any(each.of_request for each in saga.steps)} == set(cases)
    for name, (asked, world) in cases.items():
        await world()
        before = shown(small)
        await world()
        failed = await unwound(small, name, asked, cancelled=False)
        assert failed != before, f"{name}: nothing that its request did is looked at here"
        await world()
        assert await unwound(small, name, asked, cancelled=True) == failed, name
