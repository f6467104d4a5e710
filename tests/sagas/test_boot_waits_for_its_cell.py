"""A boot whose record may be in a cell waits for that cell's database for the whole outage: a server is never in two cells."""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar, cast

import pytest

from moorage.model.errors import HostFailed, Unavailable, UnknownOutcome
from moorage.model.ids import CellId
from moorage.model.server import Server, VmState
from moorage.operations.boot.boot import BOOT
from moorage.operations.cell_databases import Cells
from moorage.saga import MemoryJournal, Unwound, execute, first_lines
from moorage.sql import Database, Tx
from moorage.store.cell import servers
from moorage_testing.fault_points import ManualClock
from moorage_testing.region_fixture import SERVER, SmallRegion, a_boot, a_server
from moorage_testing.saga_proof import PROVED_OPERATION

T = TypeVar("T")
OUTAGE_S = 4 * 3600.0


class Failing:
    """A cell's database: `begin` is asked before each write, and may do something else."""

    def __init__(self, inner: Database, begin: Callable[[Any], Any]) -> None:
        self._inner, self._begin = inner, begin

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def write(self, work: Callable[[Tx], T]) -> T:
        await self._begin(lambda: self._inner.write(work))
        return await self._inner.write(work)


def failing(real: Mapping[CellId, Database], of: Callable[[CellId], Callable[[Any], Any]]) -> dict[CellId, Database]:
    return {cell: cast("Database", Failing(each, of(cell))) for cell, each in real.items()}


@pytest.fixture
async def small() -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open()
    await region.fresh(a_server(), PROVED_OPERATION)
    yield region
    await region.close()


async def rows_of(databases: dict[CellId, Database]) -> dict[CellId, Server]:
    found = {cell: await each.read(lambda tx: servers.get(tx, SERVER)) for cell, each in databases.items()}
    return {cell: row for cell, row in found.items() if row is not None}


@pytest.mark.parametrize("written", [True, False])
async def test_a_boot_waits_for_a_write_of_unknown_outcome(small: SmallRegion, written: bool) -> None:
    clock, real = ManualClock(), dict(small.cells)
    first: list[CellId] = []

    def of(cell: CellId) -> Callable[[Any], Any]:
        async def begin(write: Callable[[], Any]) -> None:
            if not first:
                first.append(cell)
                if written:
                    await write()
                raise UnknownOutcome("the connection was lost with the COMMIT on its way")
            if cell == first[0] and clock.monotonic() < OUTAGE_S:
                raise Unavailable("the database does not answer")

        return begin

    small.context = replace(small.context, cells=Cells(failing(real, of)))
    paper = MemoryJournal(first_lines(BOOT), small.transact)
    await execute(BOOT, PROVED_OPERATION, a_boot(PROVED_OPERATION), small.context, paper, clock=clock)
    found = await rows_of(real)
    assert list(found) == first
    assert found[first[0]].vm_state is VmState.ACTIVE
    assert [host for host, _ in small.hosts.guests] == [found[first[0]].host]
    assert f"waiting for the database of cell {first[0]}" in paper.row.text  # operators read that


async def test_a_boot_waits_for_the_cell_of_an_earlier_attempts_record(small: SmallRegion) -> None:
    """Its host failed, its cell went out, and the next host is in another one: the first record goes before the second comes."""
    clock, real = ManualClock(), dict(small.cells)
    first: list[CellId] = []
    start_guest = small.hosts.start_guest

    async def broken(to: Any, command_context: Any, guest: Any) -> Any:
        if not first or to.cell == first[0]:
            first.append(to.cell)
            raise HostFailed("the host failed", code="guest_failed")
        return await start_guest(to, command_context, guest)

    def of(cell: CellId) -> Callable[[Any], Any]:
        async def begin(_: Callable[[], Any]) -> None:
            if first and cell == first[0] and clock.monotonic() < OUTAGE_S:
                raise Unavailable("the database does not answer")

        return begin

    small.hosts.start_guest = broken  # type: ignore[method-assign]
    small.context = replace(small.context, cells=Cells(failing(real, of)))
    try:
        await execute(
            BOOT, PROVED_OPERATION, a_boot(PROVED_OPERATION), small.context, MemoryJournal(first_lines(BOOT), small.transact),
            clock=clock,
        )  # fmt: skip
    except Unwound as ended:
        raise AssertionError(f"it did not wait for its cell: {ended.cause}") from ended
    found = await rows_of(real)
    assert len(found) == 1
    assert first[0] not in found
    assert next(iter(found.values())).vm_state is VmState.ACTIVE
