"""The reconciler that deletes soft-deleted servers after their time: it changes nothing in a correct region, and deletes each old server once."""

import dataclasses
import time
from collections.abc import AsyncIterator
from typing import Any, cast

import msgspec
import pytest
from typing_extensions import override

from moorage.conductor.reconcilers.reclaim_deleted import Reclaim, ReclaimResult
from moorage.model.clock import SystemClock
from moorage.model.ids import ConductorId, OperationId
from moorage.model.operation import Accepted
from moorage.model.server import Moved, Server, Shelved, VmState
from moorage.operations.steps import servers as records
from moorage.store.cell.servers import Fence
from moorage.store.region import servers as region_servers
from moorage_testing.region_fixture import SERVER, SmallRegion
from moorage_testing.region_states import booted, execute_soft_delete, softly_deleted

PROVED = OperationId("proved")


class At(SystemClock):
    """Another time of the day."""

    def __init__(self, at: float) -> None:
        self._at = at

    @override
    def now(self) -> float:
        return self._at


class Book:
    """Whoever tells."""

    def __init__(self) -> None:
        self.begun_: list[Accepted] = []

    async def choose(self, saga: str) -> ConductorId:
        return ConductorId("conductor1")

    async def begun(self, accepted: Accepted) -> None:
        self.begun_.append(accepted)

    async def cancelled(self, operation: OperationId, owner: ConductorId) -> None:
        raise AssertionError("nobody is cancelled")


@pytest.fixture
async def small() -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open()
    yield region
    await region.close()


async def free(small: SmallRegion) -> None:
    """No operation holds the server."""

    def work(tx: Any) -> None:
        where = region_servers.find(tx, SERVER)
        assert where is not None
        assert where.operation is not None
        region_servers.release(tx, SERVER, where.operation, drop_order=True)

    await small.region.write(work)


def round_of(small: SmallRegion, interval_s: float, later_s: float) -> tuple[Reclaim, Book]:

    clock, book = At(time.time() + later_s), Book()
    settings = dataclasses.replace(small.context.settings, reclaim_instance_interval_s=interval_s)
    context = dataclasses.replace(small.context, settings=settings, dispatcher=cast("Any", book))
    return Reclaim(context, clock), book


async def test_reclaim_deleted_already_fine(small: SmallRegion) -> None:
    await booted(small)
    await free(small)
    before = await small.held()
    for interval_s in (0.0, 60.0):
        reclaim, book = round_of(small, interval_s, 3600.0)
        assert await reclaim.run() == ReclaimResult()
        assert book.begun_ == []
    assert await small.held() == before


async def test_old_servers_are_deleted_unless_an_operation_holds_them(small: SmallRegion) -> None:
    await softly_deleted(small)
    reclaim, book = round_of(small, 60.0, 3600.0)
    assert await reclaim.run() == ReclaimResult(), "an operation holds it"
    await free(small)
    young, _ = round_of(small, 60.0, 1.0)
    assert await young.run() == ReclaimResult(), "its time is not over"
    off, _ = round_of(small, 0.0, 3600.0)
    assert await off.run() == ReclaimResult(), "nothing is reclaimed where nothing is kept"
    assert await reclaim.run() == ReclaimResult((SERVER,))
    (begun,) = book.begun_
    assert (begun.saga.partition("/")[0], begun.server) == ("delete", SERVER)
    assert await reclaim.run() == ReclaimResult(), "its delete holds it"


async def test_a_server_that_is_active_again_stays(small: SmallRegion) -> None:
    await softly_deleted(small)
    found = await records.find(small.context, SERVER)
    assert found.cell is not None

    def active(server: Server) -> Server:
        return msgspec.structs.replace(server, vm_state=VmState.ACTIVE)

    fence = Fence(operation=PROVED, seq=2, epoch=9, line=1)
    await records.change(small.context, found.cell, SERVER, fence, active)
    await free(small)
    reclaim, book = round_of(small, 60.0, 3600.0)
    assert await reclaim.run() == ReclaimResult()
    assert book.begun_ == []


async def test_a_server_shelved_before_its_soft_delete_is_deleted_at_once(small: SmallRegion) -> None:
    """It was ACTIVE when its delete was accepted; by its turn it is on no host, and the delete is not lost."""
    await booted(small)

    def shelved(server: Server) -> Server:
        there = Shelved(server.updated_at or 1, None, server.host)
        return msgspec.structs.replace(server, vm_state=VmState.SHELVED_OFFLOADED, host=None, shelved=there)

    found = await records.find(small.context, SERVER)
    assert found.cell is not None
    fence = Fence(operation=PROVED, seq=1, epoch=9, line=1)
    for change in (lambda server: msgspec.structs.replace(server, vm_state=VmState.SHELVED), shelved):
        await records.change(small.context, found.cell, SERVER, fence, change)
    await gone_at_once(small)


async def test_a_server_moved_before_its_soft_delete_is_deleted_at_once(small: SmallRegion) -> None:
    """And with it what the move left on the old host."""
    await booted(small)

    def moved(server: Server) -> Server:
        old = Moved(
            migration="m",
            vm_state=VmState.ACTIVE,
            host="host1",
            node="host1",
            provider=server.provider,
            flavor=server.flavor,
            at=1,
        )
        return msgspec.structs.replace(server, vm_state=VmState.RESIZED, moved=old)

    found = await records.find(small.context, SERVER)
    assert found.cell is not None
    fence = Fence(operation=PROVED, seq=1, epoch=9, line=1)
    await records.change(small.context, found.cell, SERVER, fence, moved)
    assert await gone_at_once(small) == "delete/4"


async def gone_at_once(small: SmallRegion) -> str:
    """It is deleted softly in its turn, and reclaimed in the next round; by which version."""
    await execute_soft_delete(small)
    server = (await records.find(small.context, SERVER)).server
    assert server is not None
    assert server.vm_state is VmState.SOFT_DELETED
    await free(small)
    reclaim, book = round_of(small, 60.0, 1.0)
    assert await reclaim.run() == ReclaimResult((SERVER,)), "nobody can have it back, so nobody waits"
    (begun,) = book.begun_
    assert begun.saga.startswith("delete/")
    return begun.saga
