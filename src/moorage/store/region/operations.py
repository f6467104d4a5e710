"""Operations and their journals (RULES §2, §3, §9).

One row per operation: `head` counts the commits of its executor; `journal` has the lines as JSON, one a line, appended
by the same UPDATE that checks the fence. Above 64 KiB the lines go to `operation_lines`.
"""

import time
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from moorage.model.ids import ConductorId, OperationId, ProviderId, ServerId, new_uuid
from moorage.model.operation import Accepted, Operation, OperationStatus
from moorage.sql import Tx
from moorage.store.region.placement.claim_statements import MIGRATION
from moorage.store.region.placement.tables import allocations, consumers
from moorage.store.region.tables import region_metadata

JOURNAL_MAX_BYTES = 64 * 1024
PAGE_MAX = 1000
ASLEEP = ConductorId("asleep")
"""Owns what nobody executes before it is woken: no conductor polls, adopts or keeps it (`waiting.py`)."""

operations = sa.Table(
    "operations",
    region_metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("saga", sa.String(64), nullable=False),
    sa.Column("server", sa.String(36), nullable=False),
    sa.Column("project", sa.String(255), nullable=False),
    sa.Column("user", sa.String(255), nullable=False),
    sa.Column("owner", sa.String(64), nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("head", sa.Integer, nullable=False),
    sa.Column("seq", sa.Integer, nullable=False),
    sa.Column("cancel", sa.String(32)),
    sa.Column("after", sa.String(36)),
    sa.Column("request_id", sa.String(64), nullable=False, server_default=""),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
    sa.Column("ended_at", sa.BigInteger),
    sa.Column("waiting", sa.Text),
    sa.Column("fault", sa.Text),
    sa.Column("asked", sa.Text, nullable=False),
    sa.Column("journal", sa.Text, nullable=False),
    sa.Column("ledger", sa.Text),
    sa.Index("operations_of_server", "server"),
    sa.Index(
        "operations_open",
        "owner",
        sqlite_where=sa.text("ended_at IS NULL"),
        postgresql_where=sa.text("ended_at IS NULL"),
    ),
    sa.Index(
        "operations_waiting",
        "after",
        sqlite_where=sa.text("after IS NOT NULL"),
        postgresql_where=sa.text("after IS NOT NULL"),
    ),
    sa.Index("operations_ended", "ended_at"),
    sa.Index(
        "operations_cancelled",
        "owner",
        sqlite_where=sa.text("cancel IS NOT NULL"),
        postgresql_where=sa.text("cancel IS NOT NULL"),
    ),
)

operation_lines = sa.Table(
    "operation_lines",
    region_metadata,
    sa.Column("operation", sa.String(36), primary_key=True),
    sa.Column("line", sa.Integer, primary_key=True),
    sa.Column("text", sa.Text, nullable=False),
)


def now_us() -> int:
    """The wall clock, for display; no decision depends on it."""
    return time.time_ns() // 1000


def new_id() -> OperationId:
    """A random id, so that no other process must be asked."""
    return OperationId(new_uuid())


def accept(tx: Tx, accepted: Sequence[Accepted]) -> None:
    """Write the operations of one request, with their first intent, in one statement."""
    tx.run(
        _insert,
        [
            {
                "id": each.id,
                "saga": each.saga,
                "server": each.server,
                "project": each.project,
                "user": each.user,
                "owner": each.owner,
                "status": OperationStatus.OPEN.value,
                "epoch": each.epoch,
                "head": each.head,
                "seq": each.seq,
                "after": each.after,
                "request_id": each.request_id,
                "created_at": each.created_at,
                "updated_at": each.created_at,
                "asked": each.asked.decode(),
                "journal": each.journal.decode(),
            }
            for each in accepted
        ],
    )


_insert = operations.insert()

_append = (
    operations.update()
    .where(
        operations.c.id == sa.bindparam("b_id"),
        operations.c.epoch == sa.bindparam("b_epoch"),
        operations.c.head == sa.bindparam("b_head"),
        operations.c.ended_at.is_(None),
    )
    .values(
        head=sa.bindparam("b_next"),
        journal=operations.c.journal + sa.bindparam("b_more", type_=sa.Text),
        status=sa.bindparam("b_status"),
        updated_at=sa.bindparam("b_now"),
        ended_at=sa.bindparam("b_ended"),
        waiting=sa.bindparam("b_waiting"),
        fault=sa.func.coalesce(sa.bindparam("b_fault", type_=sa.Text), operations.c.fault),
        ledger=sa.func.coalesce(sa.bindparam("b_ledger", type_=sa.Text), operations.c.ledger),
    )
    .returning(operations.c.cancel)
)


class JournalWrite(NamedTuple):
    """Lines to append to an operation's journal, and the new values of its row."""

    epoch: int
    """With `head` the fence: the row must still have both."""
    head: int
    after: int
    """The number of the next line."""
    more: bytes
    spill: bool
    """The lines go to a row of their own, because the operation's row is large already."""
    status: OperationStatus
    ended: bool
    waiting: str | None = None
    fault: str | None = None


def append(tx: Tx, operation: OperationId, write: JournalWrite) -> tuple[bool, str | None]:
    """Check the fence and append the lines in one statement.

    Returns (whether it is still ours, the row's `cancel`); if not ours, nothing was written.
    """
    now = now_us()
    row = tx.row(
        _append,
        {
            "b_id": operation,
            "b_epoch": write.epoch,
            "b_head": write.head,
            "b_next": write.after,
            "b_more": "" if write.spill else write.more.decode(),
            "b_status": write.status.value,
            "b_now": now,
            "b_ended": now if write.ended else None,
            "b_waiting": write.waiting,
            "b_fault": write.fault,
            "b_ledger": None,
        },
    )
    if row is None:
        return False, None
    if write.spill and write.more:
        tx.run(operation_lines.insert().values(operation=operation, line=write.after, text=write.more.decode()))
    return True, row.cancel


_BY_IDS = sa.select(operations).where(operations.c.id.in_(sa.bindparam("b_operations", expanding=True)))


def by_ids(tx: Tx, ids: Sequence[OperationId]) -> Sequence[Operation]:
    rows = tx.rows(_BY_IDS, {"b_operations": list(ids)})
    return [operation_from(tx, row) for row in rows]


_GET = sa.select(operations).where(operations.c.id == sa.bindparam("b_operation"))
_SPILLED = (
    sa.select(operation_lines.c.text)
    .where(operation_lines.c.operation == sa.bindparam("b_operation"))
    .order_by(operation_lines.c.line)
)


def get(tx: Tx, operation: OperationId) -> Operation | None:
    row = tx.row(_GET, {"b_operation": operation})
    return None if row is None else operation_from(tx, row)


def of_server(tx: Tx, server: ServerId, limit: int = 100) -> Sequence[Operation]:
    """The operations of one server, newest first."""
    rows = tx.rows(
        sa.select(operations)
        .where(operations.c.server == server)
        .order_by(operations.c.created_at.desc(), operations.c.seq.desc())
        .limit(limit)
    )
    return [_operation(row, b"") for row in rows]


def listed(
    tx: Tx,
    *,
    project: str | None = None,
    statuses: Sequence[OperationStatus] = (),
    server: ServerId | None = None,
    marker: OperationId | None = None,
    limit: int = PAGE_MAX,
) -> Sequence[Operation]:
    """A page of operations, newest first."""
    c = operations.c
    query = sa.select(operations).order_by(c.created_at.desc(), c.id.desc()).limit(min(limit, PAGE_MAX))
    if project is not None:
        query = query.where(c.project == project)
    if statuses:
        query = query.where(c.status.in_([status.value for status in statuses]))
    if server is not None:
        query = query.where(c.server == server)
    if marker is not None:
        at = sa.select(c.created_at).where(c.id == marker).scalar_subquery()
        query = query.where(sa.or_(c.created_at < at, sa.and_(c.created_at == at, c.id < marker)))
    return [_operation(row, b"") for row in tx.rows(query)]


def ask_to_cancel(tx: Tx, operation: OperationId, word: str, wakes: ConductorId | None = None) -> None:
    """Leave word for the executor; it reads it with its next line.

    `wakes`: who executes it from now on if it sleeps; None: whoever wakes sleepers sees to it within a second.
    """
    c = operations.c
    values: dict[str, Any] = {"cancel": word}
    if wakes is not None:
        asleep = c.owner == ASLEEP
        values |= {
            "owner": sa.case((asleep, wakes), else_=c.owner),
            "epoch": sa.case((asleep, c.epoch + 1), else_=c.epoch),
        }
    tx.run(operations.update().where(c.id == operation, c.ended_at.is_(None)).values(values))


def owner_of(tx: Tx, operation: OperationId) -> ConductorId | None:
    """The conductor that executes an open operation."""
    row = tx.row(sa.select(operations.c.owner).where(operations.c.id == operation, operations.c.ended_at.is_(None)))
    return None if row is None else ConductorId(row.owner)


def let_begin(tx: Tx, heir: OperationId) -> None:
    """Let an operation begin, because the one for which it waited has ended."""
    tx.run(operations.update().where(operations.c.id == heir).values(after=None))


def forget_part(tx: Tx, operation: OperationId, input: bytes) -> None:
    """In the commit that ends it: replace its input by `input`, without the parts that are no longer needed."""
    tx.run(operations.update().where(operations.c.id == operation).values(asked=input.decode()))


def forget_old(tx: Tx, before_us: int, limit: int = 1000) -> int:
    """Delete operations that ended before `before_us`, at most `limit`; return how many.

    An operation that began a move whose claim is still held is kept: it names the claim's owner when no cell has the
    move's record.
    """
    c = consumers.c
    held = sa.select(c.operation).where(c.type == MIGRATION, c.operation.is_not(None))
    old = (
        sa.select(operations.c.id)
        .where(operations.c.ended_at.is_not(None), operations.c.ended_at < before_us, operations.c.id.not_in(held))
        .limit(limit)
        .scalar_subquery()
    )
    gone = tx.rows(operations.delete().where(operations.c.id.in_(old)).returning(operations.c.id))
    if gone:
        tx.run(operation_lines.delete().where(operation_lines.c.operation.in_([row[0] for row in gone])))
    return len(gone)


def held_by_moves(
    tx: Tx, server: ServerId, resource: str, providers: Collection[ProviderId], *, but: str | None = None
) -> frozenset[ProviderId]:
    """Those of these providers of which a move of the server holds this class; without the move `but`."""
    a, c, o = allocations.c, consumers.c, operations.c
    query = (
        sa.select(a.provider)
        .select_from(allocations.join(consumers, c.uuid == a.consumer).join(operations, o.id == c.operation))
        .where(a.provider.in_(providers), a["class"] == resource, c.type == MIGRATION, o.server == server)
    )
    if but is not None:
        query = query.where(c.uuid != but)
    return frozenset(ProviderId(row.provider) for row in tx.rows(query))


def raise_epoch(tx: Tx, operation: OperationId, epoch: int) -> None:
    """Make later executors use epochs above this one: cells and hosts know executors that this database has lost."""
    c = operations.c
    tx.run(operations.update().where(c.id == operation, c.epoch < epoch).values(epoch=epoch))


def operation_from(tx: Tx, row: Any) -> Operation:
    """The operation of a row, with all lines of its journal."""
    return _operation(row, _spilled(tx, row.id))


def _spilled(tx: Tx, operation: str) -> bytes:
    rows = tx.rows(_SPILLED, {"b_operation": operation})
    return "".join(row[0] for row in rows).encode()


def _operation(row: Any, spilled: bytes) -> Operation:
    return Operation(
        id=row.id,
        saga=row.saga,
        server=row.server,
        project=row.project,
        user=row.user,
        owner=row.owner,
        status=OperationStatus(row.status),
        epoch=row.epoch,
        head=row.head,
        created_at=row.created_at,
        updated_at=row.updated_at,
        ended_at=row.ended_at,
        cancel=row.cancel,
        after=row.after,
        seq=row.seq,
        request_id=row.request_id,
        waiting=row.waiting,
        fault=row.fault,
        asked=row.asked.encode(),
        journal=row.journal.encode() + spilled,
        ledger=None if row.ledger is None else row.ledger.encode(),
    )
