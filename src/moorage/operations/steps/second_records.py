"""A server's record goes to another cell: what the steps of every move across cells do with its two records.

    open_cell       the other cell takes writes
    open_copy       the region says that what that cell has of the server is not shown       (work of a region step)
    seal            requests write to the old record no more
    copy            the record as it is to be seen is in the other cell
    show            the other cell's record is the server's: one commit of the region        (work of a region step)
    remove, forget  the old record goes, and the region says so                              (`forget`: of a region step)

Until `show` all of it can be taken back; from then on it only goes forward.  Why it is done so stands in docs/decisions/0021.
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

A_FENCE = "a fence: who was overtaken writes nothing there any more"
SHOWN_THERE = "the other cell's record is shown by now"

CopyRun: TypeAlias = Run[AboutServer, SagaContext]
Rewritten: TypeAlias = Callable[[RecordCopy], RecordCopy]
"""What the copy says that the record does not say yet: written with it, and shown with it."""

logger = logging.getLogger(__name__)


async def open_cell(run: CopyRun, cell: CellId) -> None:
    """That cell takes writes now, and nobody who told this before us writes there. Raises Unavailable."""
    server, by = run.input.server.id, records.fence(run)
    await run.context.cells[cell].write(lambda tx: cell_servers.take_over(tx, server, by))


async def open_cell_or_elsewhere(run: CopyRun, cell: CellId) -> None:
    """The same of a host's cell. Raises HostFailed, for no host of it, when it is out: another cell is tried then, and nothing was left there."""
    try:
        await open_cell(run, cell)
    except Unavailable as out:
        elsewhere = HostFailed(
            "the database of the host's cell does not answer", private=f"{cell}: {out} {out.private}", code=CELL_OUT
        )
        elsewhere.without = (cell,)
        raise elsewhere from out


async def open_copy(run: CopyRun, to: CellId) -> None:
    """Whatever that cell gets of the server is not shown; the work of a region step."""
    await run.commit(lambda tx: hidden_records.open_row(tx, run.input.server.id, to))


async def drop_copy(run: CopyRun, to: CellId) -> None:
    """The undo of `open_copy`, and of the copy: what that cell got is gone, and the region says so.

    Nobody waits for a cell that is out: then the region goes on saying that its record is not shown, until the round
    `hidden_records` has removed it.
    """
    if await removed(run, to):
        await forget(run, to)


async def seal(run: CopyRun, left: CellId) -> None:
    """From here on requests wait for the other cell's record. Raises Stale."""
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
    """The whole record, with its actions and its moves, in one transaction of that cell; as it is there. Safe twice.

    It is read after the seal, so who does it again reads the same.
    """
    server, by = run.input.server.id, records.fence(run)
    found = await run.context.cells[left].read(partial(record_transfer.read, server=server))
    if found is None:
        raise NotFound(f"server {server} is not in cell {left}")
    there = rewritten(record_copies.placed(found, left))
    after = checked_change(found.server, there.server)
    after = msgspec.structs.replace(after, cell=to, generation=found.server.generation + 1)
    there = msgspec.structs.replace(there, server=after)
    return await run.context.cells[to].write(lambda tx: record_transfer.copy(tx, there, by))


def as_it_is(record: RecordCopy) -> RecordCopy:
    """Only its place changes."""
    return record


async def show(run: CopyRun, left: CellId, shown: CellId, also: Callable[[Tx], None] | None = None) -> None:
    """The one commit after which the other cell's record is the server's; the work of a region step, and the point of no return.

    `also` is written with it.  Raises Fenced: somebody else holds the server, or has shown it elsewhere.
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
    """What that cell has of the server is gone; one try. False: the round `hidden_records` does it later.

    Its database is out, or a host of it is waited for that the server was evacuated from.
    """
    server, by = run.input.server.id, records.fence(run)
    try:
        return await run.context.cells[cell].write(
            lambda tx: record_transfer.remove_unless_waited_for(tx, server, cell, by)
        )
    except Unavailable as out:
        logger.info(
            "%s: the record of %s in %s is left for later: %s %s", run.operation, server, cell, out, out.private
        )
        return False


async def forget(run: CopyRun, cell: CellId) -> None:
    """The region says that nothing is hidden there; the work of a region step."""
    await run.commit(lambda tx: hidden_records.end_row(tx, run.input.server.id, cell, now_us()))
