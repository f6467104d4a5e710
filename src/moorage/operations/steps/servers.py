"""The record of a server: in its cell, or still in the region."""

from collections.abc import Callable
from typing import Protocol, TypeAlias, TypeVar

import msgspec

from moorage.model.errors import NotFound, Overtaken, Stale, Unavailable
from moorage.model.ids import CellId, ServerId
from moorage.model.server import Server, TaskState
from moorage.model.server_transitions import checked_change
from moorage.operations.context import SagaContext
from moorage.operations.doubtful_servers import refusal
from moorage.saga import Run
from moorage.sql import Tx
from moorage.store.cell import servers as cell_servers
from moorage.store.cell.servers import Fence
from moorage.store.doubts import Doubt, doubt_about, seq_of
from moorage.store.region import operations as region_operations
from moorage.store.region import servers as region_servers

T = TypeVar("T")

TRIES_AFTER_STALE = 20
LOOKS_MAX = 5
"""How often the record is looked up again: a server may move into another cell between the reads of region and cell."""


StateCheck: TypeAlias = Callable[[Server], None]
"""Refuses a server in a state that forbids the request."""


class AboutServer(Protocol):
    """The input of every saga about one server."""

    @property
    def server(self) -> Server: ...
    @property
    def seq(self) -> int: ...
    @property
    def request_id(self) -> str: ...


class LocatedServer(msgspec.Struct, frozen=True):
    """A server's record and its place."""

    server: Server | None
    """None: the server no longer exists."""
    cell: CellId | None = None
    """None: the record is in the region."""
    missing_in: CellId | None = None
    """The cell that has the record according to the region, and does not have it: nothing may be concluded from that
    (RULES §22).
    """
    debts: int = 0
    """Open debts of hosts to it (RULES §25)."""
    doubt: Doubt | None = None
    """The record and the region's numbers contradict each other: one of the stores went back (RULES §26)."""

    @property
    def judges_nothing(self) -> bool:
        """Whether the record is missing or doubtful: nothing may be concluded from it."""
        return self.missing_in is not None or self.doubt is not None


def fence(run: Run[AboutServer, SagaContext]) -> Fence:
    """The fence with which this saga writes to the cell."""
    after = run.input.server.op_epoch
    return Fence(operation=run.operation, seq=run.input.seq, epoch=run.epoch, line=run.line, after=after)


async def find(context: SagaContext, server: ServerId) -> LocatedServer:
    """The record: the cell's row if it is finished or there is no order, otherwise the order.

    When the cell has none, the region is read again first: the server may have moved meanwhile. Raises Unavailable when
    it moves again and again.
    """
    looked: CellId | None = None
    written = 0
    for _ in range(LOOKS_MAX):
        where = await context.region.read_inline(lambda tx: region_servers.find(tx, server))
        if where is None:
            return LocatedServer(None)
        cell = where.cell
        if cell is None or (cell == looked and where.recorded_in is not None):
            return LocatedServer(where.order, missing_in=where.recorded_in, debts=where.debts)
        row = await context.cells[cell].read_inline(lambda tx: cell_servers.get(tx, server))
        if row is not None:
            doubt = doubt_about(row, where)
            if doubt is not Doubt.REGION_OLDER or written > where.op_seq:
                return LocatedServer(row, cell, debts=where.debts, doubt=doubt)
            written = seq_of(row)  # or another operation was accepted, and has written, since the region was read
            continue
        if where.recorded_in is None:
            return LocatedServer(where.order)
        looked = cell
    raise Unavailable(f"instance {server} keeps moving between cells; try again later")


async def sure(context: SagaContext, server: ServerId) -> LocatedServer:
    """Find it, and raise Doubtful when its record may not be acted on."""
    located = await find(context, server)
    if located.doubt is not None:
        raise refusal(server, located.doubt)
    return located


async def is_deleting(context: SagaContext, server: ServerId) -> bool:
    """Whether a delete waits for the server, or works on it. A soft delete does not count: the server may be restored."""
    where = await context.region.read(lambda tx: region_servers.find(tx, server))
    return where is not None and where.task is TaskState.DELETING


async def change(
    context: SagaContext,
    cell: CellId,
    server: ServerId,
    by: Fence,
    how: Callable[[Server], Server],
    also: Callable[[Tx], None] | None = None,
    *,
    last: bool = False,
) -> Server:
    """Read, change and write a cell's row in one transaction; repeat when another writer was faster.

    `also` is written with it. `last`: users see the end of the operation in it. Raises NotFound when the row does not exist, Stale when a later operation has it,
    Internal when the new state cannot follow the old one.
    """
    changed = (lambda row: msgspec.structs.replace(how(row), ended=by.operation)) if last else how
    written, _ = await change_with(context, cell, server, by, changed, also or _nothing)
    return written


async def change_with(
    context: SagaContext,
    cell: CellId,
    server: ServerId,
    by: Fence,
    how: Callable[[Server], Server],
    also: Callable[[Tx], T],
) -> tuple[Server, T]:
    """Like `change`; returns also the result of `also`. Raises what `change` raises."""

    def together(tx: Tx) -> tuple[Server, T]:
        row = cell_servers.get(tx, server)
        if row is None:
            raise NotFound(f"server {server} has no record where it should be", private=f"cell {cell}")
        written = cell_servers.write(tx, checked_change(row, how(row)), by)
        return written, also(tx)

    for _ in range(TRIES_AFTER_STALE):
        try:
            return await context.cells[cell].write(together)
        except Overtaken:
            raise
        except Stale:
            continue
    return await context.cells[cell].write(together)


async def begun(
    run: Run[AboutServer, SagaContext],
    located: LocatedServer,
    how: Callable[[Server], Server],
    also: Callable[[Tx], None],
) -> LocatedServer:
    """Write how the record that was just read changes when an operation begins, and what `also` writes. The record is read
    again only when another writer was faster. Raises what `change` raises.
    """
    server, cell, by = located.server, located.cell, fence(run)
    assert server is not None
    assert cell is not None

    def together(tx: Tx) -> Server:
        written = cell_servers.write(tx, checked_change(server, how(server)), by)
        also(tx)
        return written

    try:
        return LocatedServer(await run.context.cells[cell].write(together), cell)
    except Overtaken:
        raise
    except Stale:
        return LocatedServer(await change(run.context, cell, server.id, by, how, also), cell)


def as_it_is(server: Server) -> Server:
    """Change nothing: the write only checks the fence."""
    return server


def in_task(task: TaskState | None) -> Callable[[Server], Server]:
    """The record with this task state; None: as it is."""
    return as_it_is if task is None else lambda server: msgspec.structs.replace(server, task_state=task)


async def not_overtaken(
    run: Run[AboutServer, SagaContext],
    cell: CellId,
    task: TaskState | None = None,
    also: Callable[[Tx], None] | None = None,
) -> None:
    """Check the fence before the network or volume service is called, and show the task and what `also` writes.
    Raises what `change` raises.
    """
    server, by = run.input.server.id, fence(run)
    alone = task is None and also is None
    if not alone or not await run.context.cells[cell].write(lambda tx: cell_servers.touch(tx, server, by)):
        await change(run.context, cell, server, by, in_task(task), also)


def release_server(tx: Tx, run: Run[AboutServer, SagaContext], status: str) -> None:
    """For `Saga(ended=…)` when nothing else is written: release the server lock."""
    release(tx, run, recorded=status == "done")


def release_unrecorded(tx: Tx, run: Run[AboutServer, SagaContext], _status: str) -> None:
    """The same, for sagas that end without a write of the server's record."""
    release(tx, run)


def _nothing(_tx: Tx) -> None:
    """Writes nothing with the row."""


def release(tx: Tx, run: Run[AboutServer, SagaContext], *, drop_order: bool = False, recorded: bool = False) -> None:
    """In the commit that ends a saga: release the server lock, or pass it to the operation that waits in line.

    `recorded`: the saga has written the record with its number, so an older record is doubtful from now on.
    """
    heir = region_servers.release(
        tx, run.input.server.id, run.operation, drop_order=drop_order, recorded=run.input.seq if recorded else 0
    )
    if heir is not None:
        region_operations.let_begin(tx, heir)
