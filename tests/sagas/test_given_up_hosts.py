"""A host does what it was told, does not answer, and is forced down: what cannot go back ends, and releases nothing that the guest may have."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from moorage.model.debt import DebtKind
from moorage.operations.registry import SAGAS
from moorage.saga import MemoryJournal, Unwound, execute, first_lines
from moorage.store.region import debts
from moorage_testing.fault_points import ManualClock
from moorage_testing.region_debts import come_home
from moorage_testing.region_fixture import SmallRegion
from moorage_testing.region_states import (
    attached,
    detaching,
    detaching_volume,
    extending_volume,
    snapshotting_volume,
    swapping_volume,
    with_grown_volume,
    with_swappable_volume,
    with_volume,
)
from moorage_testing.region_volumes import OTHER_VOLUME, VOLUME
from moorage_testing.saga_proof import PROVED_OPERATION


@pytest.fixture
async def small(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open()
    monkeypatch.setattr(region.engine, "forced_down", lambda cell: {"host1"})
    yield region
    await region.close()


async def given_up(small: SmallRegion, name: str, asked: Any) -> Unwound | None:
    """Execute it; its first command is obeyed and not answered. Returns how it was unwound, if it was."""
    small.hosts.loses = small.hosts.commands + 1
    saga = SAGAS[name]
    journal = MemoryJournal(first_lines(saga), small.transact)
    try:
        await execute(saga, PROVED_OPERATION, asked, small.context, journal, clock=ManualClock())
    except Unwound as unwound:
        return unwound
    return None


async def kinds_owed(small: SmallRegion) -> list[tuple[DebtKind, str]]:
    return [(each.kind, each.thing) for each in await small.region.read(debts.page)]


async def test_a_detach_goes_on_and_the_volume_stays_attached_until_the_host_has_paid(small: SmallRegion) -> None:
    asked = await detaching_volume(small)
    await with_volume(small)
    assert await given_up(small, "detach_volume/1", asked) is None
    assert await kinds_owed(small) == [(DebtKind.UNPLUG_VOLUME, VOLUME)]
    assert [each.volume for each in small.volumes.attachments.values()] == [VOLUME]
    await come_home(small)
    assert (await kinds_owed(small), small.volumes.attachments) == ([], {})


async def test_a_port_stays_with_its_server_and_its_claim_until_the_host_has_paid(small: SmallRegion) -> None:
    asked = await detaching(small, "routed")
    await attached(small, "routed")
    before = await small.held()
    assert await given_up(small, "detach_interface/1", asked) is None
    assert await kinds_owed(small) == [(DebtKind.UNPLUG_INTERFACE, str(asked.nic.port))]
    assert str(asked.nic.port) in small.network.ports
    after = await small.held()
    assert (after["claims"], after["used"], after["cards"]) == (before["claims"], before["used"], before["cards"] - 1)
    await come_home(small)
    assert await kinds_owed(small) == []
    assert str(asked.nic.port) not in small.network.ports
    assert (await small.held())["used"] == before["used"] - 1, "its address"


@pytest.mark.parametrize("migrating", [False, True])
async def test_nobody_is_told_that_a_swap_failed_which_may_have_been_done(small: SmallRegion, migrating: bool) -> None:
    asked = await swapping_volume(small, migrating=migrating)
    await with_swappable_volume(small, migrating=migrating)
    told: list[bool] = []
    complete = small.volumes.complete_migration

    async def completing(old: str, new: str, *, failed: bool) -> str:
        told.append(failed)
        return await complete(old, new, failed=failed)

    small.volumes.complete_migration = completing  # type: ignore[method-assign]
    unwound = await given_up(small, "swap_volume/1", asked)
    assert unwound is not None
    assert told == []
    attachments = {each.volume: each.status for each in small.volumes.attachments.values()}
    assert attachments == {VOLUME: "attached", OTHER_VOLUME: "attached"}, "the guest writes to one of them"


async def test_a_snapshot_that_may_have_been_taken_is_not_said_to_have_failed(small: SmallRegion) -> None:
    await with_volume(small)
    assert await given_up(small, "assisted_snapshot/1", snapshotting_volume()) is not None
    assert small.volumes.said == {}


async def test_a_guest_sees_the_size_of_its_volume_where_it_starts_next(small: SmallRegion) -> None:
    await with_grown_volume(small)
    assert await given_up(small, "extend_volume/1", extending_volume()) is None
    assert await kinds_owed(small) == []
