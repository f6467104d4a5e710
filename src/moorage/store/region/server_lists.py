"""Lists of servers that only the region can answer: orders without a cell, and servers of cells that do not answer."""

from collections.abc import Collection, Sequence

import msgspec
import sqlalchemy as sa

from moorage.model.ids import ServerId
from moorage.sql import Tx
from moorage.store.region.servers import servers
from moorage.store.server_lists import ServerQuery, ServerRow, list_servers

PARTIAL_MAX = 1_000


class Partial(msgspec.Struct, frozen=True):
    """What the region knows of a server whose cell does not answer."""

    id: ServerId
    project: str
    created_at: int
    cell: str


def orders(tx: Tx, query: ServerQuery) -> list[tuple[ServerRow, str | None]]:
    """Rows of servers whose record is still in the region, each with the cell of its claim (if any)."""
    rows = list_servers(tx, servers, query)
    if not rows:
        return []
    placed = tx.rows(sa.select(servers.c.id, servers.c.cell).where(servers.c.id.in_([row.id for row in rows])))
    cells = {row.id: row.cell for row in placed}
    return [(row, cells.get(row.id)) for row in rows]


def partial(tx: Tx, server: str) -> Partial | None:
    """What the region knows of one server in a cell."""
    c = servers.c
    known = sa.select(c.id, c.project, c.created_at, c.cell)
    row = tx.row(known.where(c.id == server, c.cell.is_not(None), c.deleted_at.is_(None)))
    return None if row is None else Partial(ServerId(row.id), row.project, row.created_at, row.cell)


def in_cells(tx: Tx, cells: Collection[str], project: str | None, limit: int) -> Sequence[Partial]:
    """Servers of cells that do not answer, newest first; without those whose order the region still has."""
    query = (
        sa.select(servers.c.id, servers.c.project, servers.c.created_at, servers.c.cell)
        .where(servers.c.cell.in_(cells), servers.c.doc.is_(None), servers.c.deleted_at.is_(None))
        .order_by(servers.c.created_at.desc(), servers.c.id.desc())
        .limit(min(limit, PARTIAL_MAX))
    )
    if project is not None:
        query = query.where(servers.c.project == project)
    return [Partial(ServerId(row.id), row.project, row.created_at, row.cell) for row in tx.rows(query)]
