"""Servers from all databases as one list, and one server wherever it is.

The region is read first: a boot that ends meanwhile drops its order there only after its cell has the record, so no
server can slip through between the two reads.  A cell's row wins over an order (RULES §1), and what the operation that
holds a server is doing (`task`) is laid over the row.  A cell that does not answer is left out and named.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from moorage.api.desk import Desk
from moorage.model.errors import Invalid, NotFound, Unavailable
from moorage.model.ids import ServerId
from moorage.model.server import STAGES, Server, TaskState
from moorage.sql import Database, Tx
from moorage.store.cell import server_lists as cell_lists
from moorage.store.cell import servers as cell_servers
from moorage.store.region import server_lists as region_lists
from moorage.store.region import servers as region_servers
from moorage.store.region.server_lists import Partial
from moorage.store.server_lists import ServerQuery, ServerRow, in_order, sort_values


@dataclass(slots=True)
class Gathered:
    """One page of servers."""

    rows: list[ServerRow]
    tasks: Mapping[ServerId, TaskState]
    """What is being done to servers just now."""
    out: tuple[str, ...] = ()
    """Cells that did not answer."""
    partial: Sequence[Partial] = field(default_factory=tuple)

    def servers(self) -> list[Server]:
        return [self.shown(row) for row in self.rows]

    def shown(self, row: ServerRow) -> Server:
        return with_task(row.server, self.tasks.get(row.id))


def with_task(server: Server, task: TaskState | None) -> Server:
    """What is being done to it, as accepted, or how far that is, as the record says."""
    if task is None or server.deleted or server.task_state in STAGES.get(task, ()):
        return server
    return msgspec.structs.replace(server, task_state=task)


def cells_of(desk: Desk) -> Mapping[str, Database]:
    return {} if desk.cells is None else desk.cells.all()


async def find_server(desk: Desk, server_id: str, *, deleted: bool = False) -> Server:
    """The server wherever its record is. Raises NotFound; Unavailable when its cell is out, or has lost the record."""
    where = await desk.region.glance(lambda tx: region_servers.find(tx, server_id))
    server: Server | None = None
    if where is not None:
        database = cells_of(desk).get(where.cell) if where.cell is not None else None
        if database is not None:
            try:
                server = await database.glance(lambda tx: cell_servers.get(tx, ServerId(server_id)))
            except Unavailable:
                if where.order is None:
                    raise  # else it is being built, perhaps in another cell by now: the order is what is shown
        server = server or where.order
        if server is None and database is not None and where.recorded_in is not None:
            raise Unavailable(
                f"The record of instance {server_id} is missing in {where.recorded_in}: the cell's database is older than the "
                "region's, or another one. Nothing was removed; an administrator sees more in `moorage status`."
            )
        if server is not None:
            server = with_task(server, where.task)
    if server is None or (server.deleted and not deleted):
        raise NotFound(f"Instance {server_id} could not be found.")
    return server


async def find_partial(desk: Desk, server_id: str) -> Partial | None:
    """What the region alone knows of a placed server."""
    return await desk.region.read(lambda tx: region_lists.partial(tx, server_id))


async def gather(desk: Desk, query: ServerQuery, marker: str | None = None, *, partial: bool = False) -> Gathered:
    """One page. Raises Invalid for a marker that names no server."""
    if marker is not None:
        try:
            last = await find_server(desk, marker, deleted=True)
        except NotFound:
            raise Invalid(f"marker [{marker}] not found") from None
        query = msgspec.structs.replace(query, after=sort_values(last, query.sort))
    if query.limit == 0:
        return Gathered([], {})

    def of_region(tx: Tx) -> tuple[list[tuple[ServerRow, str | None]], dict[ServerId, TaskState]]:
        return region_lists.orders(tx, query), region_servers.busy_tasks(tx)

    orders, tasks = await desk.region.read(of_region)
    cells = cells_of(desk)
    placed: dict[str, set[str]] = {}
    for row, cell in orders:
        if cell is not None:
            placed.setdefault(cell, set()).add(row.id)
    answers = await asyncio.gather(*(_of_cell(cells[name], query, placed.get(name, set())) for name in cells))
    rows: list[ServerRow] = []
    recorded: set[str] = set()
    out = []
    for name, answer in zip(cells, answers, strict=True):
        if answer is None:
            out.append(name)
            continue
        rows += answer[0]
        recorded |= answer[1]
    recorded |= {row.id for row in rows}
    rows += [row for row, _ in orders if row.id not in recorded]
    merged = in_order(rows, query.sort)[: query.limit]
    lost: Sequence[Partial] = ()
    if out and partial:
        room = (query.limit or region_lists.PARTIAL_MAX) - len(merged)
        lost = await desk.region.read(lambda tx: region_lists.in_cells(tx, out, query.project, max(room, 0)))
    return Gathered(merged, tasks, tuple(out), lost)


async def _of_cell(database: Database, query: ServerQuery, orders: set[str]) -> tuple[list[ServerRow], set[str]] | None:
    """A cell's page, and which of the orders it has the record of; None when it is out."""

    def work(tx: Tx) -> tuple[list[ServerRow], set[str]]:
        return cell_lists.page(tx, query), cell_lists.having(tx, orders)

    try:
        return await database.read(work)
    except (Unavailable, OSError):
        return None
