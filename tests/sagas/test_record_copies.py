"""What the region copies of a cell's servers, and what is restored from it when the cell's database is lost."""

import dataclasses
from functools import partial
from typing import Any

import msgspec
import sqlalchemy as sa
from tests.helpers.cell_conductor import BOOT, CellUnderTest, at, known
from tests.sagas.test_adopted_records import kept, shown_as_waiting
from tests.sagas.test_cell_conductor_cross_cell import Crossing, belongs

from moorage.conductor.reconcilers.record_copies import RecordCopies, RecordCopiesDone
from moorage.main.adopt_copies import record_again
from moorage.model.migration import MigrationStatus
from moorage.model.server import TaskState
from moorage.operations.cell_databases import AbsentDatabase, Cells
from moorage.operations.missing_servers import missing_in
from moorage.store.cell import hosts as cell_hosts
from moorage.store.cell import migrations
from moorage.store.cell import servers as cell_servers
from moorage.store.cell.servers import Fence
from moorage.store.region import record_copies
from moorage.store.region import servers as region_servers
from moorage.store.region.placement.tables import consumers
from moorage_testing.region_fixture import SERVER

__all__ = ["at"]


async def lost(at: CellUnderTest) -> None:
    """The cell's database is another one, and empty."""
    tables = cell_servers.servers, cell_servers.fences, migrations.migrations, cell_hosts.hosts
    await at.small.cells[at.cell].write(lambda tx: [tx.run(each.delete()) for each in tables])
    assert await missing_in(at.small.region, at.cell, at.small.cells[at.cell]) == [SERVER]


async def again(at: CellUnderTest) -> list[str]:
    return await record_again(at.small.region, at.cell, at.small.cells[at.cell], 1 << 60)


async def test_changed_records_are_copied_and_deleted_ones_removed(at: CellUnderTest) -> None:
    await known(at)
    small, home = at.small, at.small.cells[at.cell]
    round_ = RecordCopies(small.context)
    assert await round_.run() == RecordCopiesDone(copied=1)
    row = (await kept(Crossing(at), at.cell)).server
    renamed = msgspec.structs.replace(row, name="renamed")
    await home.write(lambda tx: cell_servers.write(tx, renamed, Fence(BOOT, 3, 1, 1)))
    assert await round_.run() == RecordCopiesDone(copied=1)
    cells: dict[Any, Any] = {**small.cells, at.cell: AbsentDatabase("cell", "sqlite", home.meter, "out")}
    out = RecordCopies(dataclasses.replace(small.context, cells=Cells(cells)))
    assert await out.run() == RecordCopiesDone(waiting=(at.cell,))
    (copy,) = await small.region.read(partial(record_copies.of_cell, cell=at.cell, ids=[SERVER]))
    assert copy.copy.server.name == "renamed"
    await small.region.write(lambda tx: region_servers.mark_deleted(tx, SERVER, 1))
    assert await out.run() == RecordCopiesDone(forgotten=1, waiting=(at.cell,))


async def test_record_copies_already_fine(at: CellUnderTest) -> None:
    """Nothing has changed, so nothing is written."""
    await known(at)
    round_ = RecordCopies(at.small.context)
    assert (await round_.run()).copied == 1
    assert await round_.run() == RecordCopiesDone()
    assert await round_.run() == RecordCopiesDone()


async def test_a_lost_cell_database_is_restored_from_copies(at: CellUnderTest) -> None:
    """As they were copied, and nobody is at work with them; it is done once."""
    await known(at)
    home = at.small.cells[at.cell]
    row = (await kept(Crossing(at), at.cell)).server
    busy = msgspec.structs.replace(row, task_state=TaskState.REBOOTING)
    written = await home.write(lambda tx: cell_servers.write(tx, busy, Fence(BOOT, 2, 1, 9)))
    second = sa.update(region_servers.servers).values(op_seq=2)
    await at.small.region.write(lambda tx: tx.run(second))
    await RecordCopies(at.small.context).run()
    hosts = await home.read(cell_hosts.listed)
    await lost(at)
    said = await again(at)
    assert said[0] == f"{at.cell}: {len(hosts)} hosts that its database had lost are recorded again"
    assert said[1].startswith(f"{at.cell}: 1 servers that its database had lost are recorded again, from copies")
    assert await again(at) == []
    assert await missing_in(at.small.region, at.cell, home) == []
    back = (await kept(Crossing(at), at.cell)).server
    assert back == msgspec.structs.replace(written, task_state=None, operation=back.operation)
    assert [(each.host, each.id, each.service) for each in await home.read(cell_hosts.listed)] == [
        (each.host, each.id, each.service) for each in hosts
    ]


async def test_a_possibly_stale_copy_is_not_used(at: CellUnderTest) -> None:
    """Its server has moved since, or an operation was begun: it stays missing."""
    await RecordCopies(at.small.context).run()
    await lost(at)
    region = at.small.region
    await region.write(lambda tx: tx.run(sa.update(consumers).values(host="elsewhere")))
    assert await again(at) == []
    world = at.small.engine.world()
    here = world.host_ids[world.slots_by_name[at.host]]
    await region.write(lambda tx: tx.run(sa.update(consumers).values(host=here)))
    later = sa.update(region_servers.servers).values(op_seq=region_servers.servers.c.op_seq + 1)
    await region.write(lambda tx: tx.run(later))
    assert await again(at) == [], "an operation was begun since"
    await at.held()
    assert await again(at) == []
    assert await missing_in(region, at.cell, at.small.cells[at.cell]) == [SERVER]


async def test_a_server_waiting_in_a_lost_cell_can_be_reverted(at: CellUnderTest) -> None:
    """The copy is of the cell that shows it by now, with its move; the record that it left is hidden, as before."""
    move = await Crossing(at).to("over")
    await shown_as_waiting(move)
    assert (await RecordCopies(at.small.context).run()).copied == 1
    there = at.small.cells[move.there]
    await there.write(lambda tx: [tx.run(each.delete()) for each in (cell_servers.servers, migrations.migrations)])
    (said,) = [
        each for each in await record_again(at.small.region, move.there, there, 1 << 60) if "servers that" in each
    ]
    assert said
    moves = await there.read(partial(migrations.open_of, server=SERVER))
    assert [(each.status, each.source_cell) for each in moves] == [(MigrationStatus.FINISHED, move.left)]
    assert belongs(await move.of_new(), running=False)
    assert belongs(await move.of_old(), running=False)
