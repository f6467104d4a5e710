"""Servers from all databases as one list, and one server wherever it is.

The region is read first: a boot that ends meanwhile drops its order there only after its cell has the record, so no
server can slip through between the two reads.  A cell's row wins over an order (RULES §1), and what the operation that
holds a server is doing (`task`) is laid over the row.  A cell that does not answer is left out and named.

Of a server that moves into another cell there may be two records, of which the region says which one is not shown (`operations/shown_records.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from moorage.api.context import AppContext
from moorage.api.timestamps import now_us
from moorage.model.errors import Invalid, NotFound, Unavailable
from moorage.model.ids import ServerId
from moorage.model.server import STAGES, Server
from moorage.operations.shown_records import READS_MAX, CellQuery, EveryCell, Hidden
from moorage.sql import Database, Tx
from moorage.store.cell import server_lists as cell_lists
from moorage.store.cell import servers as cell_servers
from moorage.store.region import server_lists as region_lists
from moorage.store.region import servers as region_servers
from moorage.store.region.server_lists import Partial
from moorage.store.region.servers import BusyTask, Whereabouts
from moorage.store.server_lists import ServerQuery, ServerRow, in_order, sort_values


@dataclass(slots=True)
class ServerPage:
    """One page of servers."""

    rows: list[ServerRow]
    tasks: Mapping[ServerId, BusyTask]
    """What is being done to servers just now, and by which operation."""
    out: tuple[str, ...] = ()
    """Cells that did not answer."""
    partial: Sequence[Partial] = field(default_factory=tuple)

    def servers(self) -> list[Server]:
        return [self.shown(row) for row in self.rows]

    def shown(self, row: ServerRow) -> Server:
        return with_task(row.server, self.tasks.get(row.id))


def with_task(server: Server, busy: BusyTask | None) -> Server:
    """What is being done to it, as accepted, or how far that is, as the record says: also that it is done."""
    if busy is None or server.deleted or server.task_state in STAGES.get(busy.task, ()):
        return server
    if server.ended == busy.operation:
        return server
    return msgspec.structs.replace(server, task_state=busy.task)


def busy_of(where: Whereabouts) -> BusyTask | None:
    """What is being done to a server, of what the region says about it."""
    return None if where.task is None or where.operation is None else BusyTask(where.operation, where.task)


async def find_server(context: AppContext, server_id: str, *, deleted: bool = False) -> Server:
    """The server wherever its record is. Raises NotFound; Unavailable when its cell is out, or has lost the record."""
    where, server = await _find_with_location(context, server_id)
    if where is not None and server is not None:
        server = with_task(server, busy_of(where))
    if server is None or (server.deleted and not deleted):
        raise NotFound(f"Instance {server_id} could not be found.")
    return server


async def _find_with_location(context: AppContext, server_id: str) -> tuple[Whereabouts | None, Server | None]:
    """What the region says, and the record.

    Where the cell has none, the region is asked again: the server may have moved into another cell between the two reads.
    """
    looked = None
    for _ in range(READS_MAX):
        where = await context.region.read_inline(lambda tx: region_servers.find(tx, server_id))
        if where is None:
            return None, None
        database = context.cells.get(where.cell) if where.cell is not None else None
        if database is None:
            return where, where.order
        if where.cell == looked and where.recorded_in is not None:
            break
        looked = where.cell
        try:
            server = await database.read_inline(lambda tx: cell_servers.get(tx, ServerId(server_id)))
        except Unavailable:
            if where.order is None:
                raise
            return where, where.order  # it is being built, perhaps in another cell by now: then its order is shown
        if server is not None or where.recorded_in is None:
            return where, server or where.order
    raise Unavailable(
        f"The record of instance {server_id} is missing where it should be: its database is older than the "
        "region's, or another one. Nothing was removed; an administrator sees more in `moorage status`.",
        private=f"in cell {looked}",
    )


async def find_partial(context: AppContext, server_id: str) -> Partial | None:
    """What the region alone knows of a placed server."""
    return await context.region.read(lambda tx: region_lists.partial(tx, server_id))


async def gather(
    context: AppContext, query: ServerQuery, marker: str | None = None, *, partial: bool = False
) -> ServerPage:
    """One page. Raises Invalid for a marker that names no server."""
    if marker is not None:
        try:
            last = await find_server(context, marker, deleted=True)
        except NotFound:
            raise Invalid(f"marker [{marker}] not found") from None
        query = msgspec.structs.replace(query, after=sort_values(last, query.sort))
    if query.limit == 0:
        return ServerPage([], {})

    cells, placed, recorded = context.cells, dict[str, set[str]](), set[str]()
    lost: list[Partial] = []

    async def query_cell(name: str, database: Database, look: CellQuery) -> list[ServerRow] | None:
        answer = await _of_cell(database, _query_for_cell(query, look), placed.get(name, set()))
        if answer is None:
            return None
        recorded.update(answer[1])
        return answer[0]

    def in_cells_out(tx: Tx, out: Sequence[str]) -> None:
        lost[:] = region_lists.in_cells(tx, out, query.project, query.limit or region_lists.PARTIAL_MAX) if out else ()

    every = EveryCell(
        context.region,
        cells,
        now_us(context.clock),
        query_cell,
        lambda row: row.id,
        limit=query.limit,
        also=in_cells_out if partial else None,
    )

    def of_region(tx: Tx) -> tuple[list[tuple[ServerRow, str | None]], dict[ServerId, BusyTask], Hidden]:
        return region_lists.orders(tx, query), region_servers.busy_tasks(tx), every.hidden(tx)

    orders, tasks, hidden = await context.region.read(of_region)
    for row, cell in orders:
        if cell is not None:
            placed.setdefault(cell, set()).add(row.id)
    shown = await every.rows(hidden)
    recorded |= {row.id for row in shown.rows}
    merged = in_order([*shown.rows, *(row for row, _ in orders if row.id not in recorded)], query.sort)[: query.limit]
    known = {row.id for row in merged}
    room = (query.limit or region_lists.PARTIAL_MAX) - len(merged)
    unknown = [each for each in lost if each.id not in known][: max(room, 0)]
    return ServerPage(merged, tasks, shown.out, unknown)


def _query_for_cell(query: ServerQuery, look: CellQuery) -> ServerQuery:
    """What one cell is asked for."""
    if look.only is not None:
        ids = look.only if query.ids is None else tuple(set(look.only) & set(query.ids))
        query = msgspec.structs.replace(query, ids=ids)
    limit = None if query.limit is None else query.limit + look.more
    return msgspec.structs.replace(query, without=look.without, limit=limit)


async def _of_cell(database: Database, query: ServerQuery, orders: set[str]) -> tuple[list[ServerRow], set[str]] | None:
    """A cell's page, and which of the orders it has the record of; None when it is out."""

    def work(tx: Tx) -> tuple[list[ServerRow], set[str]]:
        return cell_lists.page(tx, query), cell_lists.having(tx, orders)

    try:
        return await database.read(work)
    except (Unavailable, OSError):
        return None
