"""A boot whose executor dies at its very end: a server that was shown ACTIVE stays on its host, whatever the host does afterwards."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from moorage.model.errors import Conflict, HostFailed, Invalid, Stale
from moorage.model.operation import Accepted
from moorage.model.server import Server, VmState
from moorage.operations.boot.boot import BOOT
from moorage.operations.steps import server_lock
from moorage.saga import Killed, MemoryJournal, execute, first_lines
from moorage.store.cell import servers
from moorage.store.cell.servers import Fence
from moorage_testing.fault_points import FaultTrigger, InstrumentedLog, ManualClock, instrumented
from moorage_testing.region_fixture import SERVER, SmallRegion, a_boot, a_server
from moorage_testing.saga_proof import PROVED_OPERATION


@pytest.fixture
async def small() -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open()
    await region.fresh(a_server(), PROVED_OPERATION)
    yield region
    await region.close()


async def killed_at(small: SmallRegion, point: str) -> MemoryJournal:
    """The journal of an executor who died there."""
    for at in range(1000):
        await small.fresh(a_server(), PROVED_OPERATION)
        lease, door = MemoryJournal(first_lines(BOOT), small.transact), FaultTrigger(at, "kill")
        try:
            await execute(
                instrumented(BOOT, door), PROVED_OPERATION, a_boot(PROVED_OPERATION), small.context, InstrumentedLog(lease, door),
                clock=ManualClock(),
            )  # fmt: skip
        except Killed:
            if door.triggered_at is not None and door.triggered_at.startswith(point):
                return lease
        else:
            break
    raise AssertionError(f"there is no point {point}")


async def row_of(small: SmallRegion) -> Any:
    found = [await database.read(lambda tx: servers.get(tx, SERVER)) for database in small.cells.values()]
    (row,) = [each for each in found if each is not None]
    return row


async def test_an_announced_server_is_not_moved(small: SmallRegion) -> None:
    lease = await killed_at(small, "leaving do of announce")
    before = await row_of(small)
    assert before.vm_state is VmState.ACTIVE

    async def broken(*_: Any, **__: Any) -> Any:
        raise HostFailed("the host failed since", code="guest_failed")

    small.hosts.start_guest = broken  # type: ignore[method-assign]
    await execute(BOOT, PROVED_OPERATION, a_boot(PROVED_OPERATION), small.context, lease.adopted(), clock=ManualClock())
    after = await row_of(small)
    assert (after.vm_state, after.host, after.launched_at) == (VmState.ACTIVE, before.host, before.launched_at)
    assert [host for host, _ in small.hosts.guests] == [before.host]


async def test_a_server_not_announced_yet_is_moved_to_the_next_host(small: SmallRegion) -> None:
    lease = await killed_at(small, "entering do of announce")
    before = await row_of(small)
    failed: list[str] = []
    start_guest = small.hosts.start_guest

    async def broken(to: Any, command_context: Any, guest: Any) -> Any:
        if to.host == before.host:
            failed.append(to.host)
            raise HostFailed("the host failed since", code="guest_failed")
        return await start_guest(to, command_context, guest)

    small.hosts.start_guest = broken  # type: ignore[method-assign]
    await execute(BOOT, PROVED_OPERATION, a_boot(PROVED_OPERATION), small.context, lease.adopted(), clock=ManualClock())
    after = await row_of(small)
    assert failed == [before.host]
    assert after.vm_state is VmState.ACTIVE
    assert [host for host, _ in small.hosts.guests] == [after.host]
    assert after.host != before.host


async def test_a_start_counts_only_once_the_server_is_announced(small: SmallRegion) -> None:
    """Until then its host keeps the guest off when it cannot be heard (RULES §23)."""
    small.hosts.counting.clear()
    await killed_at(small, "entering do of announce")
    assert small.hosts.counting == []
    await small.fresh(a_server(), PROVED_OPERATION)
    await execute(
        BOOT, PROVED_OPERATION, a_boot(PROVED_OPERATION), small.context,
        InstrumentedLog(MemoryJournal(first_lines(BOOT), small.transact), FaultTrigger(1000, "kill")), clock=ManualClock(),
    )  # fmt: skip
    row = await row_of(small)
    assert small.hosts.counting == [(row.host, SERVER, a_boot(PROVED_OPERATION).seq)]


async def test_an_adopter_that_read_the_record_cannot_be_overtaken(small: SmallRegion) -> None:
    """The old executor, asleep before its last write, finds the cell's row taken over."""
    lease = await killed_at(small, "entering do of announce")
    row = await row_of(small)
    cell = small.cells[row.cell]
    old = Fence(PROVED_OPERATION, seq=1, epoch=lease.epoch, line=99)
    adopter = Fence(PROVED_OPERATION, seq=1, epoch=lease.epoch + 1, line=99)
    await cell.write(lambda tx: servers.take_over(tx, SERVER, adopter))
    with pytest.raises(Stale):
        await cell.write(lambda tx: servers.write(tx, row, old))
    with pytest.raises(Stale):
        await cell.write(lambda tx: servers.record(tx, row, old))
    assert await cell.write(lambda tx: servers.write(tx, row, adopter)) is not None


def its_turn(server: Server, *_: Any) -> Accepted:
    raise Invalid(f"its turn has come: {server.vm_state.value}")


async def test_an_action_after_active_is_shown_gets_no_conflict(small: SmallRegion) -> None:
    """ACTIVE is shown one commit before the boot lets go; an attach or a stop that is asked in between waits for that."""
    lease = await killed_at(small, "leaving do of announce")
    asking = asyncio.create_task(server_lock.accept(small.context, SERVER, "attach_interface", its_turn))
    done, _ = await asyncio.wait([asking], timeout=0.05)
    assert not done, asking.exception()
    await execute(BOOT, PROVED_OPERATION, a_boot(PROVED_OPERATION), small.context, lease.adopted(), clock=ManualClock())
    with pytest.raises(Invalid, match="its turn has come: active"):
        await asyncio.wait_for(asking, 60)


async def test_an_action_while_the_server_is_built_is_a_conflict(small: SmallRegion) -> None:
    await killed_at(small, "entering do of announce")
    with pytest.raises(Conflict):
        await server_lock.accept(small.context, SERVER, "attach_interface", its_turn)
    assert not await server_lock.soon_released(small.context, SERVER, PROVED_OPERATION)
