"""Writes of a user while a record moves to another cell: they wait until the seal is removed, and go to the shown record."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from moorage.model.errors import Conflict
from moorage.model.ids import CellId, OperationId
from moorage.model.server import Server
from moorage.operations.boot.boot import BOOT
from moorage.operations.records import servers as nouns
from moorage.operations.steps import servers as records
from moorage.saga import MemoryJournal, execute, first_lines
from moorage.store.cell import record_transfer
from moorage.store.cell.servers import Fence
from moorage.store.region import servers as region_servers
from moorage_testing.region_fixture import SERVER, SmallRegion, a_boot, a_server
from moorage_testing.waiting import PATIENCE_S

OPERATION, MOVE = OperationId("building"), OperationId("moving")


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open(tmp_path)
    await region.fresh(a_server(), OPERATION)
    await execute(BOOT, OPERATION, a_boot(OPERATION), region.context, MemoryJournal(first_lines(BOOT), region.transact))
    yield region
    await region.close()


async def sealed(small: SmallRegion) -> CellId:
    """An operation holds the server, and its row is sealed."""
    found = await records.find(small.context, SERVER)
    assert found.cell is not None
    cell = found.cell
    await small.region.write(lambda tx: region_servers.release(tx, SERVER, OPERATION, drop_order=True))
    await small.region.write(lambda tx: region_servers.take(tx, SERVER, MOVE, None))
    await small.cells[cell].write(lambda tx: record_transfer.seal(tx, SERVER, Fence(MOVE, 2, 1, 1)))
    return cell


async def test_a_write_waits_for_the_cell_that_shows_the_record(
    small: SmallRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nouns, "TRIES", 100_000)
    monkeypatch.setattr(nouns, "BUILT_SOON_S", 0.001)
    left = await sealed(small)
    shown = next(each for each in small.cells if each != left)
    looks, again = 0, asyncio.Event()

    def tagged(server: Server) -> Server:
        nonlocal looks
        looks += 1
        if looks == 3:
            again.set()
        return msgspec.structs.replace(server, tags=("red",))

    cells = {str(cell): database for cell, database in small.cells.items()}
    writing = asyncio.create_task(nouns.change(small.region, cells, SERVER, tagged, 5))
    await asyncio.wait_for(again.wait(), PATIENCE_S)
    whole = await small.cells[left].read(lambda tx: record_transfer.read(tx, SERVER))
    assert whole is not None
    assert whole.server.tags == ()
    there = msgspec.structs.replace(whole, server=msgspec.structs.replace(whole.server, cell=shown))
    await small.cells[shown].write(lambda tx: record_transfer.copy(tx, there, Fence(MOVE, 2, 1, 2)))
    assert await small.region.write(lambda tx: region_servers.show_in(tx, SERVER, MOVE, left, shown))
    assert (await asyncio.wait_for(writing, PATIENCE_S)).tags == ("red",)
    found = await records.find(small.context, SERVER)
    assert found.server is not None
    assert (found.cell, found.server.cell, found.server.tags) == (shown, shown, ("red",))


async def test_a_lasting_seal_is_reported_as_a_conflict(small: SmallRegion, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nouns, "BUILT_SOON_S", 0.001)
    await sealed(small)
    cells = {str(cell): database for cell, database in small.cells.items()}
    with pytest.raises(Conflict):
        await nouns.change(small.region, cells, SERVER, nouns.with_fields(name="late"), 5)
