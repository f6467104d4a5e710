"""Counts of the region's rows, for monitoring. Each is one bounded statement, and reads no user's data."""

import msgspec
import sqlalchemy as sa

from moorage.model.ids import CellId
from moorage.model.operation import OperationStatus
from moorage.sql import Tx
from moorage.store.outbox import OutboxTable
from moorage.store.region.inbox import inbox
from moorage.store.region.operations import operations
from moorage.store.region.servers import servers

COUNTED_MAX = 100_001
"""Rows of an outbox or the inbox; more are not counted."""
OPEN_STATES = ("queued", "running", "waiting", "cleaning", "stuck")


class OpenOperations(msgspec.Struct, frozen=True):
    """The open operations of one saga in one state."""

    saga: str
    state: str
    """One of `OPEN_STATES`: `queued` waits behind another operation, `waiting` waits for a service."""
    count: int
    oldest_at: int


class Backlog(msgspec.Struct, frozen=True):
    """The rows that wait in a table."""

    count: int
    oldest_at: int | None
    """µs; None: there are none."""


def _by_state() -> sa.Executable:
    c = operations.c
    state = sa.case(
        (c.status == OperationStatus.STUCK.value, "stuck"),
        (c.status == OperationStatus.CLEANING.value, "cleaning"),
        (c.after.is_not(None), "queued"),
        (c.waiting.is_not(None), "waiting"),
        else_="running",
    )
    kept = sa.select(c.saga, state.label("state"), c.created_at).where(c.ended_at.is_(None)).subquery()
    k = kept.c
    return sa.select(k.saga, k.state, sa.func.count(), sa.func.min(k.created_at)).group_by(k.saga, k.state)


_BY_STATE = _by_state()


def open_operations(tx: Tx) -> tuple[OpenOperations, ...]:
    """By saga and state; `operations_open` has only operations that have not ended."""
    return tuple(OpenOperations(row[0], row[1], row[2], row[3]) for row in tx.rows(_BY_STATE))


class CellCount(msgspec.Struct, frozen=True):
    """The number of servers that the region has in one cell."""

    servers: int
    deleted: int
    """Deleted, and not yet removed."""


def counts_by_cell(tx: Tx) -> dict[CellId, CellCount]:
    """Of all cells that have any."""
    gone = servers.c.deleted_at.is_not(None)
    query = sa.select(
        servers.c.cell,
        sa.func.sum(sa.case((gone, 0), else_=1)).label("there"),
        sa.func.sum(sa.case((gone, 1), else_=0)).label("gone"),
    ).where(servers.c.cell.is_not(None))
    return {row.cell: CellCount(int(row.there), int(row.gone)) for row in tx.rows(query.group_by(servers.c.cell))}


class Doings(msgspec.Struct, frozen=True):
    """How busy a project is; two equal values mean that no operation began in between.

    `turns`: how many operations ever began on its servers. `at_work`: how many of its servers an operation holds.
    """

    servers: int
    turns: int
    at_work: int


def doings(tx: Tx, project: str | None = None) -> dict[str, Doings]:
    """Of one project, or of every one that ever had a server."""
    query = sa.select(
        servers.c.project,
        sa.func.count().label("servers"),
        sa.func.sum(servers.c.op_seq).label("turns"),
        sa.func.count(servers.c.operation).label("at_work"),
    ).group_by(servers.c.project)
    if project is not None:
        query = query.where(servers.c.project == project)
    return {row.project: Doings(row.servers, int(row.turns), row.at_work) for row in tx.rows(query)}


def inbox_backlog(tx: Tx) -> Backlog:
    """The external events that are stored."""
    return _backlog(tx, inbox, inbox.c.seen_at)


def outbox_backlog(tx: Tx, outbox: OutboxTable) -> Backlog:
    """The messages that are not sent yet."""
    return _backlog(tx, outbox.table, outbox.table.c.created_at)


def _backlog(tx: Tx, table: sa.Table, at: sa.Column[int]) -> Backlog:
    sample = sa.select(at.label("at")).limit(COUNTED_MAX).subquery()
    row = tx.row(sa.select(sa.func.count(), sa.func.min(sample.c.at)).select_from(sample))
    return Backlog(int(row[0]), row[1])


def is_there(tx: Tx) -> None:
    """Reads nothing: it only checks that the database answers."""
    tx.scalar(sa.select(1))
