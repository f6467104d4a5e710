"""`moorage db adopt` where a cell or the region was put back to before, or after, a server was shown in another cell."""

from functools import partial
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa
from test_cell_conductor import BOOT, AtCell, at
from test_cells_believe import Crossing

from moorage.main import adopt
from moorage.main.adopt_claims import Reclaimed, claim_again
from moorage.main.adopt_operations import know_more, settle_operations
from moorage.main.adopt_records import as_shown, settle_records, told_of
from moorage.model.action import Action
from moorage.model.ids import CellId
from moorage.model.server import TaskState
from moorage.sql import Tx
from moorage.store.cell import actions as cell_actions
from moorage.store.cell import copies
from moorage.store.cell import identity as cell_identities
from moorage.store.cell import servers as cell_servers
from moorage.store.cell.copies import RecordCopy
from moorage.store.cell.servers import Fence
from moorage.store.region import hidden_records, operations
from moorage.store.region import servers as region_servers
from moorage.testing.small_cells import records_held
from moorage.testing.small_region import SERVER

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
    found = await move.small.cells[cell].read(partial(copies.read, server=SERVER))
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
async def test_a_cell_that_was_put_back_to_before_the_move_does_not_show_the_server_again(
    at: AtCell, last: str
) -> None:
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
    assert await move.small.cells[move.left].read(partial(copies.is_sealed, server=SERVER))


@pytest.mark.parametrize("last", ["over", "end"], ids=["waiting", "confirmed"])
async def test_a_region_that_was_put_back_to_before_the_flip_learns_of_it(at: AtCell, last: str) -> None:
    move = await Crossing(at).to(last)
    await region_put_back(move)
    assert await settled(move, behind=True) == (1, 1 if last == "over" else 0)
    assert await held(move) == (move.there, [move.left] if last == "over" else [], [])


async def test_where_the_region_and_a_cell_were_put_back_the_later_record_is_shown(at: AtCell) -> None:
    move = Crossing(at)
    before = await kept(move, move.left)
    await move.to("over")
    await put_back(move, move.left, before)
    await region_put_back(move)
    assert await settled(move, behind=True) == (1, 1)
    assert await held(move) == (move.there, [move.left], [])


async def test_an_operation_that_was_open_at_the_backup_goes_on_to_show_the_server(at: AtCell) -> None:
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
    assert as_shown(seen, await told_of(move.small.region, SERVER))[0] == move.there, "the record that is not sealed"
    assert await settled(move, behind=True) == (0, 0), "it is held"
    await move.small.region.write(lambda tx: tx.run(forget))
    assert await know_more(move.small.region, move.small.cells), "a copy of which the region does not know"
    await move._flip()
    going, (said,) = await settle_operations(move.small.region, move.small.cells, 1)
    assert going == 0
    assert "its action has ended in the cell" in said
    assert (await held(move))[0] == move.there


async def test_an_operation_that_ended_long_ago_is_ended_where_the_server_is(at: AtCell) -> None:
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


async def test_a_record_that_is_shown_and_sealed_takes_writes_again(at: AtCell) -> None:
    """Its cell was put back to between the seal and what took it back."""
    move = await Crossing(at).to("seal")
    await move._over()
    await move.small.region.write(lambda tx: tx.run(hidden_records.hidden_records.delete()))
    assert await settled(move, behind=False) == (0, 0)
    assert await held(move) == (move.left, [], [])


async def test_a_server_whose_record_is_lost_where_it_is_shown_stays_missing(at: AtCell) -> None:
    move = await Crossing(at).to("over")
    lost = cell_servers.servers.delete()
    await move.small.cells[move.there].write(lambda tx: tx.run(lost))
    assert await settled(move, behind=False) == (0, 0)
    shown, hidden, _ = await held(move)
    assert (shown, hidden) == (move.there, [move.left])


async def test_of_a_server_that_the_region_does_not_know_the_record_that_is_not_sealed_is_listed_again(
    at: AtCell,
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
