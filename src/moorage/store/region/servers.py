"""Servers in the region: the cell of each, the operation that holds it, and, until a cell has it, the whole record.

`doc` is the order (RULES §1): it is shown until the cell's row exists, and for ever when no host was found. The commit
that ends the boot removes it. `task` is what the holding operation does, in Nova's terms, so that it shows from the
moment of acceptance. `recorded_seq` is the newest operation whose end the server's record shows (`store/doubts.py`).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa

from moorage.model.ids import CellId, OperationId, ServerId
from moorage.model.server import Server, TaskState
from moorage.sql import Tx
from moorage.store.doubts import Doubt
from moorage.store.region import debts
from moorage.store.region.hidden_records import hidden_records
from moorage.store.region.tables import region_metadata
from moorage.store.servers import (
    charged_to_projects,
    charged_to_user,
    classes_charged,
    record_columns,
    server_columns,
    server_indexes,
    server_of,
    server_values,
)

servers = sa.Table(
    "servers",
    region_metadata,
    *server_columns(doc_nullable=True),
    sa.Column("cell", sa.String(64)),
    sa.Column("op_seq", sa.BigInteger, nullable=False),
    sa.Column("task", sa.String(32)),
    sa.Column("heir", sa.String(36)),
    sa.Column("debts", sa.Integer, nullable=False, server_default="0"),
    sa.Column("recorded_seq", sa.BigInteger, nullable=False, server_default="0"),
    *server_indexes("servers"),
    sa.Index(
        "servers_with_order", "id", sqlite_where=sa.text("doc IS NOT NULL"), postgresql_where=sa.text("doc IS NOT NULL")
    ),
    sa.Index(
        "servers_busy",
        "id",
        sqlite_where=sa.text("operation IS NOT NULL"),
        postgresql_where=sa.text("operation IS NOT NULL"),
    ),
)


class Whereabouts(msgspec.Struct, frozen=True):
    """What the region knows of one server."""

    id: ServerId
    project: str
    cell: CellId | None
    operation: OperationId | None
    op_seq: int
    task: TaskState | None
    order: Server | None
    """Until a cell has the record."""
    deleted: bool = False
    """A delete was executed: the server is gone, whatever another store says."""
    debts: int = 0
    """Open debts of hosts that concern it."""
    recorded_seq: int = 0
    """The newest operation whose end the record is known to show."""

    @property
    def recorded_in(self) -> CellId | None:
        """The cell that must have its record: the boot ended there, and the server was not deleted since (RULES §22)."""
        return None if self.deleted or self.order is not None else self.cell

    @property
    def may_run(self) -> bool:
        """Whether a silent host may have a guest of it though it was deleted, or not built: it keeps what that uses (RULES §25)."""
        return self.recorded_in is None and self.debts > 0


class SlotTaken(msgspec.Struct, frozen=True):
    """A server was taken; or not, because another operation holds it, or a host owes it something: `seq` is the next one."""

    seq: int
    holder: OperationId | None = None
    owed: bool = False
    recorded: int = 0
    """The newest operation whose end the record is known to show."""

    def doubt(self, seq: int) -> Doubt | None:
        """Compare the record from which the operation was made, which operation `seq` wrote last (`store/doubts.py`)."""
        if seq < self.recorded:
            return Doubt.RECORD_OLDER
        return Doubt.REGION_OLDER if seq >= self.seq else None


_insert = servers.insert()
_SHOW_TASK = (
    servers.update()
    .where(
        servers.c.id == sa.bindparam("b_server"),
        servers.c.operation == sa.bindparam("b_operation"),
        servers.c.heir.is_(None),
    )
    .values(task=sa.bindparam("b_task"))
)
_SETTLED = sa.select(servers.c.id, servers.c.cell).where(
    servers.c.id.in_(sa.bindparam("b_ids", expanding=True)), servers.c.operation.is_(None)
)


def insert(tx: Tx, born: Sequence[Server]) -> None:
    """Write the orders of one request, each held by its boot, in one statement."""
    tx.run(_insert, [{**server_values(each), "op_seq": 1, "cell": None, "task": None} for each in born])


_place = (
    servers.update()
    .where(servers.c.id == sa.bindparam("b_id"), servers.c.operation == sa.bindparam("b_operation"))
    .values(cell=sa.bindparam("b_cell"), generation=servers.c.generation + 1)
    .returning(*record_columns(servers))
)


def place(tx: Tx, server: ServerId, operation: OperationId, cell: CellId) -> Server | None:
    """In the claim's transaction: set the server's cell; return the current order, or None when the operation does not
    hold the server. The generation rises, so that a request that is changing the order reads again.
    """
    row = tx.row(_place, {"b_id": server, "b_operation": operation, "b_cell": cell})
    return None if row is None or row.doc is None else server_of(row)


_take = (
    servers.update()
    .where(
        servers.c.id == sa.bindparam("b_id"),
        servers.c.operation.is_(None),
        sa.or_(servers.c.debts == 0, sa.bindparam("b_owed", type_=sa.Boolean)),
    )
    .values(operation=sa.bindparam("b_operation"), op_seq=servers.c.op_seq + 1, task=sa.bindparam("b_task"))
    .returning(servers.c.op_seq, servers.c.recorded_seq)
)


def take(
    tx: Tx, server: ServerId, operation: OperationId, task: TaskState | None, *, though_owed: bool = False
) -> SlotTaken | None:
    """Let an operation hold a free server (compare-and-set). Returns None when there is no such server.

    `though_owed`: also while a host owes something to the server and has not answered since (RULES §25).
    """
    task_value = None if task is None else task.value
    values = {"b_id": server, "b_operation": operation, "b_task": task_value, "b_owed": though_owed}
    if (row := tx.row(_take, values)) is not None:
        return SlotTaken(seq=row.op_seq, recorded=row.recorded_seq)
    held = tx.row(sa.select(servers.c.operation, servers.c.op_seq).where(servers.c.id == server))
    if held is not None and held.operation is None and not debts.is_any_unanswered(tx, server):
        return take(tx, server, operation, task, though_owed=True)
    return None if held is None else SlotTaken(held.op_seq + 1, held.operation, owed=held.operation is None)


def show_task(tx: Tx, server: ServerId, operation: OperationId, task: TaskState) -> None:
    """Show what the holding operation does now; not once another operation waits in line, whose task shows then."""
    tx.run(_SHOW_TASK, {"b_server": server, "b_operation": operation, "b_task": task.value})


def queue(tx: Tx, server: ServerId, operation: OperationId, task: TaskState) -> SlotTaken | None:
    """Wait in line behind the holder (RULES §9): the next sequence number is taken, and the task shows at once.

    In the result, `holder` is None when the server was free and is now held; a second waiting operation is refused with
    seq 0.
    """
    row = tx.row(
        servers.update()
        .where(servers.c.id == server, servers.c.heir.is_(None))
        .values(
            op_seq=servers.c.op_seq + 1,
            task=task.value,
            heir=sa.case((servers.c.operation.is_(None), None), else_=operation),
            operation=sa.func.coalesce(servers.c.operation, operation),
        )
        .returning(servers.c.op_seq, servers.c.operation, servers.c.recorded_seq)
    )
    if row is not None:
        holder = None if row.operation == operation else row.operation
        return SlotTaken(seq=row.op_seq, holder=holder, recorded=row.recorded_seq)
    held = tx.row(sa.select(servers.c.operation).where(servers.c.id == server))
    return None if held is None else SlotTaken(seq=0, holder=held.operation)


_RECORDED = sa.bindparam("b_recorded", type_=sa.BigInteger)
_let_go = (
    servers.update()
    .where(servers.c.id == sa.bindparam("b_id"), servers.c.operation == sa.bindparam("b_operation"))
    .values(
        operation=servers.c.heir,
        heir=None,
        task=sa.case((servers.c.heir.is_(None), None), else_=servers.c.task),
        doc=sa.case((sa.bindparam("b_drop", type_=sa.Boolean), None), else_=servers.c.doc),
        recorded_seq=sa.case((servers.c.recorded_seq < _RECORDED, _RECORDED), else_=servers.c.recorded_seq),
    )
    .returning(servers.c.operation)
)


def release(
    tx: Tx, server: ServerId, operation: OperationId, *, drop_order: bool = False, recorded: int = 0
) -> OperationId | None:
    """End an operation's hold; the operation that waited in line holds the server now, and is returned.

    `drop_order`: the cell's row is complete, and is the record from now on. `recorded`: the operation's number, if it has
    written the record.
    """
    values = {"b_id": server, "b_operation": operation, "b_drop": drop_order, "b_recorded": recorded}
    row = tx.row(_let_go, values)
    return None if row is None else row.operation


_SHOW_IN = (
    servers.update()
    .where(
        servers.c.id == sa.bindparam("b_id"),
        servers.c.operation == sa.bindparam("b_operation"),
        servers.c.cell == sa.bindparam("b_left"),
    )
    .values(cell=sa.bindparam("b_shown"), task=sa.case((servers.c.heir.is_(None), None), else_=servers.c.task))
    .returning(servers.c.id)
)


def show_in(tx: Tx, server: ServerId, operation: OperationId, left: CellId, shown: CellId) -> bool:
    """Make the record of cell `shown` the server's from the commit on, instead of that of `left`; its task ends.

    Returns False when the operation does not hold the server, or the server is not in `left`. The same transaction
    writes to `hidden_records` which records are hidden.
    """
    return tx.row(_SHOW_IN, {"b_id": server, "b_operation": operation, "b_left": left, "b_shown": shown}) is not None


def recorded_in(tx: Tx, server: ServerId, cell: CellId) -> None:
    """Set the cell whose row is the record, whatever was known here."""
    tx.run(servers.update().where(servers.c.id == server).values(cell=cell, doc=None))


_ORDER = [each.name for each in server_columns() if each.name not in {"id", "operation", "op_epoch", "op_line"}]
_WRITE_ORDER = (
    servers.update()
    .where(servers.c.id == sa.bindparam("b_id"), servers.c.doc.is_not(None))
    .values({name: sa.bindparam(f"b_{name}") for name in _ORDER})
    .returning(servers.c.id)
)


def write_order(tx: Tx, server: Server) -> bool:
    """Replace the order while the region still has it. Returns False when it has not."""
    values = server_values(server)
    return tx.row(_WRITE_ORDER, {"b_id": server.id, **{f"b_{name}": values[name] for name in _ORDER}}) is not None


_MARK_DELETED = (
    servers.update()
    .where(servers.c.id == sa.bindparam("b_server"))
    .values(deleted_at=sa.func.coalesce(servers.c.deleted_at, sa.bindparam("b_now", type_=sa.BigInteger)))
)


def mark_deleted(tx: Tx, server: ServerId, now_us: int) -> None:
    """Mark it as deleted, wherever its record is: its cell may not answer."""
    tx.run(_MARK_DELETED, {"b_server": server, "b_now": now_us})


def long_deleted(tx: Tx, before_us: int, limit: int = 1000) -> Sequence[ServerId]:
    """Servers deleted before then that no operation holds and no host owes anything to, at most `limit`; without those of
    which a cell has, or may have, another record.
    """
    hidden = sa.exists().where(hidden_records.c.server == servers.c.id, hidden_records.c.ended_at.is_(None))
    free = sa.and_(servers.c.operation.is_(None), servers.c.debts == 0)
    query = sa.select(servers.c.id).where(servers.c.deleted_at < before_us, free, sa.not_(hidden))
    return [ServerId(row.id) for row in tx.rows(query.limit(limit))]


def forget(tx: Tx, ids: Sequence[ServerId]) -> None:
    tx.run(servers.delete().where(servers.c.id.in_(ids), servers.c.operation.is_(None)))


_UNPLACE = (
    servers.update()
    .where(servers.c.id == sa.bindparam("b_server"), servers.c.operation == sa.bindparam("b_operation"))
    .values(cell=None)
)


def unplace(tx: Tx, server: ServerId, operation: OperationId) -> None:
    """The claim was released: the server has no cell."""
    tx.run(_UNPLACE, {"b_server": server, "b_operation": operation})


_SELECT_ONE = sa.select(
    *record_columns(servers),
    servers.c.id,
    servers.c.project,
    servers.c.cell,
    servers.c.op_seq,
    servers.c.task,
    servers.c.deleted_at.label("removed_at"),
    servers.c.debts,
    servers.c.recorded_seq,
).where(servers.c.id == sa.bindparam("b_server"))
_FIND = _SELECT_ONE
"""Compiled once: every show executes it, and compiling costs as much as executing."""


def find(tx: Tx, server: str) -> Whereabouts | None:
    row = tx.row(_FIND, {"b_server": server})
    return None if row is None else _whereabouts(row)


_FIND_AND_HOLD = _SELECT_ONE.with_for_update()


def find_and_hold(tx: Tx, server: str) -> Whereabouts | None:
    """Find a server, and let no operation take or release it before this transaction ends.

    For decisions that require that no operation holds the server: PostgreSQL shows each transaction its own snapshot,
    so an operation that takes the server between the read and the write would go unnoticed. SQLite has one writer, and
    needs no lock.
    """
    row = tx.row(_FIND_AND_HOLD, {"b_server": server})
    return None if row is None else _whereabouts(row)


def settled(tx: Tx, ids: Sequence[str]) -> dict[ServerId, CellId | None]:
    """Those of these servers that we have and no operation holds → the cell of each; None while it has no cell."""
    return {ServerId(row[0]): row[1] for row in tx.rows(_SETTLED, {"b_ids": list(ids)})} if ids else {}


def projects_in(tx: Tx, cells: Sequence[CellId]) -> frozenset[str]:
    """Projects that have, or had, a server in one of these cells."""
    query = sa.select(servers.c.project).where(servers.c.cell.in_(cells)).distinct()
    return frozenset(row.project for row in tx.rows(query))


def charged(tx: Tx) -> dict[str, dict[str, int]]:
    """The quota that servers without a cell use, by project."""
    return charged_to_projects(tx, servers, servers.c.cell.is_(None))


def charged_by(tx: Tx, project: str, user: str) -> dict[str, int]:
    """The quota that one user's servers without a cell use in one project."""
    return charged_to_user(tx, servers, project, user, servers.c.cell.is_(None))


def classes_of_orders(tx: Tx, project: str) -> dict[str, int]:
    """What the project's servers without a cell use of each class of resources."""
    return classes_charged(tx, servers, servers.c.project == project, servers.c.cell.is_(None))


class BusyTask(NamedTuple):
    """An operation on a server, and the task that it shows."""

    operation: OperationId
    task: TaskState


def busy_tasks(tx: Tx) -> dict[ServerId, BusyTask]:
    """Servers with a current task → the task; lists show it over the rows of cells."""
    c = servers.c
    rows = tx.rows(sa.select(c.id, c.operation, c.task).where(c.operation.is_not(None), c.task.is_not(None)))
    return {ServerId(row.id): BusyTask(OperationId(row.operation), TaskState(row.task)) for row in rows}


def cells_of(tx: Tx, ids: Sequence[ServerId]) -> dict[ServerId, CellId | None]:
    rows = tx.rows(sa.select(servers.c.id, servers.c.cell).where(servers.c.id.in_(ids)))
    return {ServerId(row.id): row.cell for row in rows}


def _whereabouts(row: Any) -> Whereabouts:
    return Whereabouts(
        id=row.id,
        project=row.project,
        cell=row.cell,
        operation=row.operation,
        op_seq=row.op_seq,
        task=None if row.task is None else TaskState(row.task),
        order=None if row.doc is None else server_of(row),
        deleted=row.removed_at is not None,
        debts=row.debts,
        recorded_seq=row.recorded_seq,
    )
