"""Moves a server's record to another cell: the steps for its two records, which every move across cells uses.

    open_cell       checks that the other cell accepts writes
    open_copy       the region marks the other cell's record as hidden                        (in a region step)
    seal            requests no longer write to the old record
    copy            the record, as it will be shown, is in the other cell
    show            the other cell's record is shown: one commit of the region                (in a region step)
    remove, forget  the old record is removed, and the region notes it   (`forget`: in a region step)

Until `show` everything can be undone; afterwards the saga only goes forward. The reasons are in docs/decisions/0021.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import msgspec

from moorage.model.errors import HostFailed, NotFound, Unavailable
from moorage.model.ids import CellId
from moorage.model.server import Server
from moorage.model.server_transitions import checked_change
from moorage.operations.cell_databases import CELL_OUT
from moorage.operations.context import SagaContext
from moorage.operations.steps import record_copies
from moorage.operations.steps import servers as records
from moorage.operations.steps.server_action import now_us
from moorage.operations.steps.servers import AboutServer
from moorage.saga import Fenced, Run
from moorage.sql import Tx
from moorage.store.cell import record_transfer
from moorage.store.cell import servers as cell_servers
from moorage.store.cell.record_transfer import RecordCopy
from moorage.store.region import hidden_records
from moorage.store.region import servers as region_servers

A_FENCE = "a fence: an executor that was overtaken can no longer write there"
SHOWN_THERE = "the other cell's record is shown by now"

CopyRun: TypeAlias = Run[AboutServer, SagaContext]
Rewritten: TypeAlias = Callable[[RecordCopy], RecordCopy]
"""How the copy differs from the record; written and shown with it."""

logger = logging.getLogger(__name__)


async def open_cell(run: CopyRun, cell: CellId) -> None:
    """Check that the cell accepts writes, and that no earlier executor writes there any more. Raises Unavailable."""
    server, by = run.input.server.id, records.fence(run)
    await run.context.cells[cell].write(lambda tx: cell_servers.take_over(tx, server, by))


async def open_cell_or_elsewhere(run: CopyRun, cell: CellId) -> None:
    """Like `open_cell`, for a host's cell. Raises HostFailed when it does not answer, without blaming the host: another
    cell is tried, and nothing was left there.
    """
    try:
        await open_cell(run, cell)
    except Unavailable as out:
        elsewhere = HostFailed(
            "the database of the host's cell does not answer", private=f"{cell}: {out} {out.private}", code=CELL_OUT
        )
        elsewhere.without = (cell,)
        raise elsewhere from out


async def open_copy(run: CopyRun, to: CellId) -> None:
    """Mark that cell's record of the server as hidden; in a region step."""
    await run.commit(lambda tx: hidden_records.open_row(tx, run.input.server.id, to))


async def drop_copy(run: CopyRun, to: CellId) -> None:
    """The undo of `open_copy` and of the copy: that cell's record is removed, and the region notes it.

    A cell that does not answer is not waited for: its record stays marked as hidden until the reconciler
    `hidden_records` has removed it.
    """
    if await removed(run, to):
        await forget(run, to)


async def seal(run: CopyRun, left: CellId) -> None:
    """Requests that write wait for the other cell's record from here on. Raises Stale."""
    server, by = run.input.server.id, records.fence(run)
    await run.context.cells[left].write(lambda tx: record_transfer.seal(tx, server, by))


async def unseal(run: CopyRun, left: CellId) -> None:
    """The undo: requests may write to it again."""
    server, by = run.input.server.id, records.fence(run)
    try:
        await run.context.cells[left].write(lambda tx: record_transfer.unseal(tx, server, by))
    except NotFound:
        return


async def copy(run: CopyRun, left: CellId, to: CellId, rewritten: Rewritten) -> Server:
    """Copy the whole record, with its actions and moves, in one transaction of that cell; return it as it is there. A
    repeat is safe.

    It is read after the seal, so a repeat reads the same. Raises NotFound when the record is not in its cell.
    """
    server, by = run.input.server.id, records.fence(run)
    record = await run.context.cells[left].read(partial(record_transfer.read, server=server))
    if record is None:
        raise NotFound(f"server {server} is not in cell {left}")
    copied = rewritten(record_copies.placed(record, left))
    after = checked_change(record.server, copied.server)
    after = msgspec.structs.replace(after, cell=to, generation=record.server.generation + 1)
    copied = msgspec.structs.replace(copied, server=after)
    return await run.context.cells[to].write(lambda tx: record_transfer.copy(tx, copied, by))


def as_it_is(record: RecordCopy) -> RecordCopy:
    """Change nothing but the place."""
    return record


async def show(run: CopyRun, left: CellId, shown: CellId, also: Callable[[Tx], None] | None = None) -> None:
    """The one commit after which the other cell's record is shown; in a region step, and the point of no return.

    `also` is written with it. Raises Fenced when another operation holds the server, or has shown it elsewhere.
    """
    server, operation = run.input.server.id, run.operation

    def work(tx: Tx) -> None:
        if not region_servers.show_in(tx, server, operation, left, shown):
            raise Fenced(f"{operation} does not hold {server} in {left}")
        hidden_records.end_row(tx, server, shown, now_us())
        hidden_records.open_row(tx, server, left)
        if also is not None:
            also(tx)

    await run.commit(work)


async def removed(run: CopyRun, cell: CellId) -> bool:
    """Try once to remove that cell's record. Returns False when the reconciler `hidden_records` must do it later.

    That is when its database does not answer, or when an evacuated server's old host there has not returned yet.
    """
    server, by = run.input.server.id, records.fence(run)
    try:
        return await run.context.cells[cell].write(
            lambda tx: record_transfer.remove_unless_waited_for(tx, server, cell, by)
        )
    except Unavailable as out:
        logger.info(
            "%s: the record of server %s in cell %s is removed later: %s %s",
            run.operation,
            server,
            cell,
            out,
            out.private,
        )
        return False


async def forget(run: CopyRun, cell: CellId) -> None:
    """Remove the mark that something is hidden there; in a region step."""
    await run.commit(lambda tx: hidden_records.end_row(tx, run.input.server.id, cell, now_us()))
