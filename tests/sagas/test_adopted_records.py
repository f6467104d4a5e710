"""`moorage db adopt` after a cell or the region was restored to before, or after, a server was shown in another cell."""

from functools import partial
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa
from tests.helpers.cell_conductor import BOOT, CellUnderTest, at
from tests.sagas.test_cell_conductor_cross_cell import Crossing, belongs

from moorage.main import adopt
from moorage.main.adopt_claims import Reclaimed, claim_again
from moorage.main.adopt_moves import record_moves_again
from moorage.main.adopt_operations import know_more, settle_operations
from moorage.main.adopt_records import as_shown, region_view_of, settle_records
from moorage.model.action import Action
from moorage.model.ids import CellId
from moorage.model.migration import MigrationStatus, MigrationType
from moorage.model.server import Moved, Server, TaskState, VmState
from moorage.sql import Tx
from moorage.store.cell import actions as cell_actions
from moorage.store.cell import identity as cell_identities
from moorage.store.cell import migrations as cell_migrations
from moorage.store.cell import record_transfer
from moorage.store.cell import servers as cell_servers
from moorage.store.cell.record_transfer import RecordCopy
from moorage.store.cell.servers import Fence
from moorage.store.region import hidden_records, operations
from moorage.store.region import servers as region_servers
from moorage.store.region.placement import claim_statements
from moorage_testing.fake_server_service import a_migration
from moorage_testing.region_cells import records_held
from moorage_testing.region_fixture import SERVER

__all__ = ["at"]


async def held(move: Crossing) -> tuple[Any, Any, Any]:
    """(which cell shows it, where it is hidden, what is amiss)."""
    found = await records_held(move.small.region, move.small.cells, SERVER)
    return found["shown in"], found["hidden in"], found["amiss"]


async def settled(move: Crossing, *, behind: bool) -> tuple[int, int]:
    done = await settle_records(move.small.region, move.small.cells, behind=behind)
    again = await settle_records(move.small.region, move.small.cells, behind=behind)
    assert (again.mapped, again.hidden) == (0, 0), "it is done once"
    return done.mapped, done.hidden


async def kept(move: Crossing, cell: CellId) -> RecordCopy:
    found = await move.small.cells[cell].read(partial(record_transfer.read, server=SERVER))
    assert found is not None
    return found


async def put_back(move: Crossing, cell: CellId, before: RecordCopy) -> None:
    """That cell's database has of the server what it had then."""
    row = before.server
    fence = Fence(BOOT, row.op_epoch // cell_servers.EPOCHS_PER_OPERATION, row.op_epoch % 8, row.op_line)

    def work(tx: Tx) -> None:
        tx.run(cell_servers.servers.delete())
        tx.run(cell_servers.fences.delete())
        cell_servers.record(tx, row, fence)

    await move.small.cells[cell].write(work)


async def region_put_back(move: Crossing, **more: Any) -> None:
    """To before the flip, when nothing was hidden yet and nobody held the server."""
    values = {"cell": move.left, "operation": None, "op_seq": 1, **more}

    def work(tx: Tx) -> None:
        tx.run(sa.update(region_servers.servers).values(values))
        tx.run(hidden_records.hidden_records.delete())

    await move.small.region.write(work)


@pytest.mark.parametrize("last", ["over", "end"], ids=["waiting", "confirmed"])
async def test_a_cell_restored_to_before_the_move_does_not_show_the_server_again(at: CellUnderTest, last: str) -> None:
    move = Crossing(at)
    before = await kept(move, move.left)
    await move.to(last)
    await put_back(move, move.left, before)
    page = await move.small.cells[move.left].read(partial(cell_identities.records, after="", limit=5))
    done, drop = Reclaimed(), sa.text("DELETE FROM allocations")
    await move.small.region.write(lambda tx: tx.run(drop))
    await claim_again(move.small.region, move.left, move.small.cells[move.left], page, done, behind=True)
    assert done.made == 0, "its claim is where it is shown"
    assert await settled(move, behind=False) == (0, 0 if last == "over" else 1)
    assert await held(move) == (move.there, [move.left], [])
    assert await move.small.cells[move.left].read(partial(record_transfer.is_sealed, server=SERVER))


def waits(row: Server, move: Crossing) -> Server:
    """As the record says that is shown while it may go back."""
    moved = Moved(1, move.uuid, VmState.ACTIVE, row.flavor, host=move.old, provider=row.provider, cell=move.left)
    world = move.small.engine.world()
    provider = world.host_ids[world.slots_by_name[move.new]]
    return msgspec.structs.replace(row, vm_state=VmState.RESIZED, provider=provider, moved=moved)


async def shown_as_waiting(move: Crossing) -> None:
    """The record where it is shown says where the server came from, and so does its move."""
    row = (await kept(move, move.there)).server
    by = Fence(BOOT, 2, 1, 4)
    left = msgspec.structs.replace(
        a_migration(1, MigrationType.RESIZE, MigrationStatus.FINISHED, server=SERVER, source_host=move.old),
        source_cell=move.left,
        dest_cell=move.there,
    )

    def work(tx: Tx) -> None:
        cell_servers.write(tx, waits(row, move), by)
        cell_migrations.put(tx, left)

    await move.small.cells[move.there].write(work)


@pytest.mark.parametrize("with_record", [True, False], ids=["old record", "no record"])
async def test_a_guest_that_a_revert_needs_is_kept_when_its_cell_is_restored_to_before_the_move(
    at: CellUnderTest, with_record: bool
) -> None:
    """The cell that shows the server says so, and the other one is told again: else its host would be told to destroy the guest."""
    move = Crossing(at)
    before = await kept(move, move.left)
    await move.to("over")
    await shown_as_waiting(move)
    await put_back(move, move.left, before)
    lost = cell_migrations.migrations.delete(), cell_servers.servers.delete()
    await move.small.cells[move.left].write(lambda tx: [tx.run(each) for each in lost[: 1 if with_record else 2]])
    await settled(move, behind=False)
    assert not belongs(await move.of_old(), running=False)
    (said,) = await record_moves_again(move.small.region, move.small.cells)
    assert said == f"{move.left}: the moves of 1 servers that left it are recorded there again"
    assert await record_moves_again(move.small.region, move.small.cells) == [], "it is done once"
    assert belongs(await move.of_old(), running=False)
    assert belongs(await move.of_new(), running=False), "VERIFY_RESIZE is on as its host last had it"
    assert await held(move) == (move.there, [move.left], [])


async def test_a_move_that_ended_after_the_other_cells_backup_is_not_recorded_again(at: CellUnderTest) -> None:
    """The record that is shown was put back to when it waited; the cell that was left remembers that it was confirmed."""
    move = await Crossing(at).to("over")
    await shown_as_waiting(move)
    await move._remove()
    later = Fence(BOOT, 3, 1, 1)
    await move.small.cells[move.left].write(lambda tx: record_transfer.remove_record(tx, SERVER, later))
    assert await record_moves_again(move.small.region, move.small.cells) == []
    assert not await move.small.cells[move.left].read(partial(record_transfer.has_rows, server=SERVER))


async def test_the_claim_of_a_move_on_its_source_host_is_restored(at: CellUnderTest) -> None:
    """The region was put back to before it: a revert finds what it takes back."""
    move = await Crossing(at).to("over")
    await shown_as_waiting(move)
    await region_put_back(move)
    await move.small.region.write(lambda tx: tx.run(sa.text("DELETE FROM allocations")))
    await settled(move, behind=True)
    page = await move.small.cells[move.there].read(partial(cell_identities.records, after="", limit=5))
    done = Reclaimed()
    for _ in range(2):
        await claim_again(move.small.region, move.there, move.small.cells[move.there], page, done, behind=True)
    assert (done.made, done.in_part) == (1, [])
    holds = await move.small.region.read(lambda tx: claim_statements.held(tx, move.uuid))
    provider = (await kept(move, move.there)).server.moved.provider  # type: ignore[union-attr]
    assert {key[0] for key in holds} == {provider}
    assert holds


@pytest.mark.parametrize("last", ["over", "end"], ids=["waiting", "confirmed"])
async def test_a_region_restored_to_before_show_there_learns_the_servers_cell(at: CellUnderTest, last: str) -> None:
    move = await Crossing(at).to(last)
    await region_put_back(move)
    assert await settled(move, behind=True) == (1, 1 if last == "over" else 0)
    assert await held(move) == (move.there, [move.left] if last == "over" else [], [])


async def test_the_later_record_is_shown_when_region_and_cell_were_restored(at: CellUnderTest) -> None:
    move = Crossing(at)
    before = await kept(move, move.left)
    await move.to("over")
    await put_back(move, move.left, before)
    await region_put_back(move)
    assert await settled(move, behind=True) == (1, 1)
    assert await held(move) == (move.there, [move.left], [])


async def test_an_operation_open_at_the_backup_continues_and_shows_the_server(at: CellUnderTest) -> None:
    """Its action has ended in the cell that is not shown yet: that is no word that it is done."""
    move = await Crossing(at).to("seal")
    ended = Action(SERVER, "resize", "req-resize", "u", "p", 1, 2, finished_at=3)
    await move._copy()
    await move.small.cells[move.there].write(lambda tx: cell_actions.write(tx, ended))
    saga = sa.update(operations.operations).values(saga="resize/2", request_id="req-resize", journal="")
    await move.small.region.write(lambda tx: tx.run(saga))
    forget = hidden_records.hidden_records.delete()
    open_rows = await move.small.region.read(lambda tx: hidden_records.open_of(tx, [SERVER]))
    assert open_rows == {SERVER: frozenset({move.there})}
    assert not await know_more(move.small.region, move.small.cells)
    assert await settle_operations(move.small.region, move.small.cells, 1) == (1, [])
    look = partial(cell_identities.seen, server=SERVER, request_id="req-resize")
    seen = {cell: await database.read(look) for cell, database in move.small.cells.items()}
    assert as_shown(seen, await region_view_of(move.small.region, SERVER))[0] == move.there, (
        "the record that is not sealed"
    )
    assert await settled(move, behind=True) == (0, 0), "it is held"
    await move.small.region.write(lambda tx: tx.run(forget))
    assert await know_more(move.small.region, move.small.cells), "a copy of which the region does not know"
    await move._flip()
    going, (said,) = await settle_operations(move.small.region, move.small.cells, 1)
    assert going == 0
    assert "its action has ended in the cell" in said
    assert (await held(move))[0] == move.there


async def test_an_operation_that_ended_before_the_restore_is_ended_by_the_servers_cell(at: CellUnderTest) -> None:
    """A later one has written since, in the other cell: the record that is left behind says nothing of it."""
    move = await Crossing(at).to("over")
    later = Fence(BOOT, 3, 1, 1)
    row = (await kept(move, move.there)).server
    await move.small.cells[move.there].write(lambda tx: cell_servers.write(tx, row, later))
    await region_put_back(move, operation=BOOT, op_seq=2)
    reopen = sa.update(operations.operations).values(saga="resize/2", status="open", ended_at=None)
    await move.small.region.write(lambda tx: tx.run(reopen))
    going, (said,) = await settle_operations(move.small.region, move.small.cells, 1)
    assert going == 0
    assert "changed by somebody later" in said
    assert await settled(move, behind=True) == (0, 1)
    assert await held(move) == (move.there, [move.left], [])


async def test_a_shown_and_sealed_record_is_unsealed(at: CellUnderTest) -> None:
    """Its cell was put back to between the seal and what took it back."""
    move = await Crossing(at).to("seal")
    await move._over()
    await move.small.region.write(lambda tx: tx.run(hidden_records.hidden_records.delete()))
    assert await settled(move, behind=False) == (0, 0)
    assert await held(move) == (move.left, [], [])


async def test_a_server_whose_shown_record_is_lost_stays_missing(at: CellUnderTest) -> None:
    move = await Crossing(at).to("over")
    lost = cell_servers.servers.delete()
    await move.small.cells[move.there].write(lambda tx: tx.run(lost))
    assert await settled(move, behind=False) == (0, 0)
    shown, hidden, _ = await held(move)
    assert (shown, hidden) == (move.there, [move.left])


async def test_the_unsealed_record_of_a_server_unknown_to_the_region_is_listed_again(
    at: CellUnderTest,
) -> None:
    """And nothing is told of the sealed one: its task is not cleared, and it is claimed for nowhere."""
    move = await Crossing(at).to("over")
    for cell in (move.left, move.there):
        row = (await kept(move, cell)).server
        busy = msgspec.structs.replace(row, task_state=TaskState.RESIZE_FINISH)
        by = Fence(BOOT, 2, 1, row.op_line)
        await move.small.cells[cell].write(lambda tx, busy=busy, by=by: cell_servers.write(tx, busy, by))  # type: ignore[misc]
    gone = region_servers.servers.delete()
    await move.small.region.write(lambda tx: (tx.run(gone), tx.run(hidden_records.hidden_records.delete())))
    for cell, database in move.small.cells.items():
        await adopt._compare(move.small.region, cell, database, 1, behind=True)
    await settle_records(move.small.region, move.small.cells, behind=False)
    assert await held(move) == (move.there, [move.left], [])
    tasks = [(await kept(move, cell)).server.task_state for cell in (move.left, move.there)]
    assert tasks == [TaskState.RESIZE_FINISH, None]
