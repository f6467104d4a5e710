"""The audit and servers with records in two cells: no finding while the region says which one is hidden; otherwise it is repaired."""

from functools import partial

import pytest
import sqlalchemy as sa
from tests.helpers.leak_planting import elsewhere, here, record
from tests.sagas.test_audit_finds import look, small

from moorage.model.ids import CellId, OperationId
from moorage.sql import Tx
from moorage.store.cell import record_transfer
from moorage.store.cell import servers as cell_servers
from moorage.store.cell.servers import Fence
from moorage.store.region import hidden_records
from moorage.store.region import servers as region_servers
from moorage_testing.region_fixture import SERVER, SmallRegion
from moorage_testing.saga_proof import PROVED_OPERATION

__all__ = ["small"]


async def second(small: SmallRegion, *, sealed: bool, hidden: bool) -> CellId:
    """Another cell has a record of the server, too."""
    row, there = await record(small), elsewhere(await here(small))
    fence = Fence(OperationId("x"), 1, 0, 1)
    await small.cells[there].write(lambda tx: cell_servers.record(tx, row, fence))
    if sealed:
        await small.cells[there].write(lambda tx: record_transfer.seal(tx, SERVER, fence))
    if hidden:
        await small.region.write(lambda tx: hidden_records.open_row(tx, SERVER, there))
    return there


async def is_open(small: SmallRegion, cell: CellId) -> bool:
    return await small.region.read(lambda tx: hidden_records.is_open(tx, SERVER, cell))


@pytest.mark.parametrize("sealed", [True, False], ids=["left", "not-shown-yet"])
async def test_a_hidden_record_is_no_finding(sealed: bool, small: SmallRegion) -> None:
    await second(small, sealed=sealed, hidden=True)
    assert (await look(small)).counts == {}


@pytest.mark.parametrize("hidden", [True, False], ids=["row-without-record", "sealed-without-row"])
async def test_a_server_held_by_an_operation_has_no_findings(hidden: bool, small: SmallRegion) -> None:
    if hidden:
        there = elsewhere(await here(small))
        await small.region.write(lambda tx: hidden_records.open_row(tx, SERVER, there))
    else:
        await second(small, sealed=True, hidden=False)
    hold = sa.update(region_servers.servers).values(operation=PROVED_OPERATION)
    await small.region.write(lambda tx: tx.run(hold))
    assert (await look(small)).counts.keys() <= {"slot_left"}, "nobody is at work in this world, but its slot is taken"


async def test_a_sealed_record_without_a_row_is_hidden(small: SmallRegion) -> None:
    """It is not removed: who may go back to that cell needs it, and the round of hidden records knows."""
    there = await second(small, sealed=True, hidden=False)
    report = await look(small, kinds=("hidden_record_left",), repair=True)
    assert report.repaired == {"hidden_record_left": 1}
    assert await is_open(small, there)
    assert await small.cells[there].read(partial(record_transfer.is_sealed, server=SERVER))
    assert (await look(small)).counts == {}


async def test_a_shown_and_sealed_record_is_unsealed(small: SmallRegion) -> None:
    cell = await here(small)
    row = await record(small)
    fence = Fence(OperationId("x"), row.op_epoch // cell_servers.EPOCHS_PER_OPERATION, 900_000, row.op_line)
    await small.cells[cell].write(lambda tx: record_transfer.seal(tx, SERVER, fence))
    report = await look(small, repair=True)
    assert report.repaired == {"hidden_record_left": 1}
    assert not await small.cells[cell].read(partial(record_transfer.is_sealed, server=SERVER))
    assert (await look(small)).counts == {}


async def test_the_sealed_record_of_a_deleted_server_is_removed(small: SmallRegion) -> None:
    there = await second(small, sealed=True, hidden=True)

    def gone(tx: Tx) -> None:
        region_servers.mark_deleted(tx, SERVER, 1)

    await small.region.write(gone)
    report = await look(small, kinds=("hidden_record_left",), repair=True)
    assert report.repaired == {"hidden_record_left": 1}
    assert await small.cells[there].read(partial(cell_servers.get, server=SERVER)) is None
    assert not await is_open(small, there)


async def test_the_record_in_the_regions_cell_is_kept_unless_it_is_sealed(small: SmallRegion) -> None:
    """A seal is newer than the record that another cell is to show, and says that it is not the one."""
    cell, row = await here(small), await record(small)
    await second(small, sealed=False, hidden=False)
    fence = Fence(OperationId("x"), row.op_epoch // cell_servers.EPOCHS_PER_OPERATION, 900_000, row.op_line)
    await small.cells[cell].write(lambda tx: record_transfer.seal(tx, SERVER, fence))
    report = await look(small, kinds=("record_in_two_cells",), repair=True)
    assert (report.repaired, report.left) == ({}, {"record_in_two_cells": 1})
    await small.cells[cell].write(lambda tx: record_transfer.unseal(tx, SERVER, fence))
    report = await look(small, kinds=("record_in_two_cells",), repair=True)
    assert report.repaired == {"record_in_two_cells": 1}
