"""Servers in their cell, and the fence around them (RULES §3).

A saga writes with `write`: the generation must be the one that it read, and no later operation, and no later executor
of the same operation, may have written since. Their order is one number, `fence_of(seq, epoch)`: a server's operations
count up, and executors of an operation count up within it; so it never needs a reset. The cell conductor writes only
observed columns, with `observe`, and changes neither the fence nor the generation.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import msgspec
import sqlalchemy as sa

from moorage.model.errors import Doubtful, NotFound, Overtaken, Stale
from moorage.model.ids import OperationId, ServerId
from moorage.model.migration import MigrationStatus, MigrationType
from moorage.model.server import Server, VmState
from moorage.sql import Tx
from moorage.sql.dialect import insert
from moorage.store.cell.migrations import get as find_migration
from moorage.store.cell.migrations import migrations
from moorage.store.cell.migrations import put as put_migration
from moorage.store.cell.tables import cell_metadata
from moorage.store.doubts import EPOCHS_PER_OPERATION as EPOCHS_PER_OPERATION
from moorage.store.servers import (
    record_columns,
    server_columns,
    server_indexes,
    server_of,
    server_values,
)

IN_WRONG_POWER_STATE = sa.text(
    "deleted_at IS NULL AND (vm_state IN ('active', 'paused') AND power_state IN (4, 6)"
    " OR vm_state = 'stopped' AND power_state IN (1, 3))"
)
"""Servers whose guests have ended although they are shown as running, or run although they are shown as stopped.

Queries repeat it word by word: else neither database sees that the index serves them.
"""

servers = sa.Table(
    "servers",
    cell_metadata,
    *server_columns(),
    sa.Column("hidden", sa.Boolean, nullable=False, server_default=sa.false()),
    *server_indexes("servers"),
    sa.Index(
        "servers_in_wrong_power_state",
        "id",
        sqlite_where=IN_WRONG_POWER_STATE,
        postgresql_where=IN_WRONG_POWER_STATE,
    ),
)
"""`hidden`: the row is sealed, because the server's record is being copied to another cell, or is shown there
(`record_transfer.py`).

`record` removes the mark and `write` keeps it. It is not in the record itself, which is the same in both cells.
"""

fences = sa.Table(
    "fences",
    cell_metadata,
    sa.Column("server", sa.String(36), primary_key=True),
    sa.Column("rank", sa.BigInteger, nullable=False),
    sa.Column("line", sa.BigInteger, nullable=False, server_default="0"),
)
"""The rank of the operation that last removed a server's row from this cell, or took it over; and the journal line of a
removal.

Within one rank the lines decide: a write that hung may arrive after later writes of the same executor, which had given
it up.
"""


class Fence(msgspec.Struct, frozen=True):
    """The writer: the operation, its place among the server's operations, its executor's epoch, and the journal line."""

    operation: OperationId
    seq: int
    epoch: int
    line: int
    after: int = 0
    """The rank of the record with which the operation was accepted: an older one is doubtful (`store/doubts.py`)."""

    @property
    def rank(self) -> int:
        return self.seq * EPOCHS_PER_OPERATION + self.epoch


_NAMES = [column.name for column in servers.c if column.name != "hidden"]


def _bound(values: Mapping[str, object]) -> dict[str, object]:
    return {f"b_{name}": value for name, value in values.items()}


def not_later(rank: sa.ColumnElement[int], line: sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
    """The row was not written later than by this writer."""
    earlier, same = servers.c.op_epoch < rank, servers.c.op_epoch == rank
    return sa.or_(earlier, sa.and_(same, servers.c.op_line <= line))


@cache
def _record(dialect: str) -> sa.Executable:
    """Compiled once: a statement with thirty columns costs more to compile than to run."""
    given: dict[str, sa.BindParameter[Any]] = {
        name: sa.bindparam(f"b_{name}", type_=servers.c[name].type) for name in _NAMES
    }
    same = sa.and_(fences.c.rank == given["op_epoch"], fences.c.line > given["op_line"])
    later = sa.exists().where(fences.c.server == given["id"], sa.or_(fences.c.rank > given["op_epoch"], same))
    names = [*_NAMES, "hidden"]
    statement = insert(dialect, servers).from_select(names, sa.select(*given.values(), sa.false()).where(~later))
    return statement.on_conflict_do_update(
        index_elements=["id"],
        set_={name: statement.excluded[name] for name in names if name != "id"},
        where=not_later(statement.excluded.op_epoch, statement.excluded.op_line),
    ).returning(servers.c.id)


_write = (
    servers.update()
    .where(
        servers.c.id == sa.bindparam("b_id"),
        servers.c.generation == sa.bindparam("b_was"),
        servers.c.op_epoch <= sa.bindparam("b_op_epoch"),
    )
    .values({name: sa.bindparam(f"b_{name}") for name in _NAMES if name != "id"})
    .returning(servers.c.id)
)
_NOT_LATER = not_later(sa.bindparam("b_op_epoch", type_=sa.BigInteger), sa.bindparam("b_op_line", type_=sa.BigInteger))
_remove = servers.delete().where(servers.c.id == sa.bindparam("b_server"), _NOT_LATER)


@cache
def _raise_fence(dialect: str) -> sa.Executable:
    given: dict[str, sa.BindParameter[Any]] = {name: sa.bindparam(f"b_{name}") for name in ("server", "rank", "line")}
    statement = insert(dialect, fences).values(given)
    new = statement.excluded
    same = sa.and_(fences.c.rank == new.rank, fences.c.line < new.line)
    return statement.on_conflict_do_update(
        index_elements=["server"],
        set_={"rank": new.rank, "line": new.line},
        where=sa.or_(fences.c.rank < new.rank, same),
    )


def generations(tx: Tx, after: str, limit: int) -> dict[ServerId, int]:
    """The generation of each record of a page, in the order of ids; without deleted records and records that another
    cell shows.
    """
    c = servers.c
    query = sa.select(c.id, c.generation).where(c.id > after, c.deleted_at.is_(None), sa.not_(c.hidden))
    return {ServerId(row.id): row.generation for row in tx.rows(query.order_by(c.id).limit(limit))}


def record(tx: Tx, server: Server, fence: Fence) -> Server:
    """Insert the server, or replace what an earlier attempt of this saga left.

    Raises Overtaken when a later operation, executor or step wrote or removed it: a removed row leaves its fence behind. A
    sealed row is unsealed.
    """
    ours = fenced(server, fence)
    if tx.row(_record(tx.dialect), _bound(server_values(ours))) is None:
        raise Overtaken(f"server {server.id} belongs to a later operation")
    return ours


def write(tx: Tx, server: Server, fence: Fence) -> Server:
    """Replace the record that was read with generation `server.generation`; return the new one.

    Raises Stale when it changed in between, Overtaken when it belongs to a later operation or executor, Doubtful when it is
    older than the operation's own reading of it; NotFound when it is not here.
    If an earlier write of the same step succeeded and its answer was lost, the write counts as done.
    """
    if server.op_epoch < fence.after:
        raise Doubtful(f"The record of instance {server.id} is older than it was when this was asked.")
    after = fenced(msgspec.structs.replace(server, generation=server.generation + 1), fence)
    if tx.row(_write, {**_bound(server_values(after)), "b_was": server.generation}) is not None:
        return after
    record = get(tx, server.id)
    if record is None:
        raise NotFound(f"server {server.id} is not in this cell")
    if record.operation == fence.operation and record.op_line >= fence.line and record.op_epoch <= fence.rank:
        return record
    if record.op_epoch > fence.rank:
        raise Overtaken(f"server {server.id} belongs to a later operation")
    raise Stale(f"server {server.id} was changed meanwhile")


_BY = {name: sa.bindparam(f"b_{name}", type_=servers.c[name].type) for name in ("operation", "op_epoch", "op_line")}
_TOUCH = (
    servers.update()
    .where(servers.c.id == sa.bindparam("b_id"), servers.c.op_epoch >= sa.bindparam("b_after"), _NOT_LATER)
    .values(generation=servers.c.generation + 1, **_BY)
    .returning(servers.c.id)
)


def touch(tx: Tx, server: ServerId, fence: Fence) -> bool:
    """Write the fence alone. False: the record is missing, of a later writer, or too old; `write` says which."""
    by = {"b_operation": fence.operation, "b_op_epoch": fence.rank, "b_op_line": fence.line}
    return tx.row(_TOUCH, {"b_id": server, "b_after": fence.after, **by}) is not None


def remove(tx: Tx, server: ServerId, fence: Fence) -> None:
    """Remove the row (the server is to be in another cell, or in none); safe when it is not here.

    The fence stays, so that neither an executor that was overtaken nor a hanging write of our own puts the row back.
    """
    tx.run(_remove, {"b_server": server, "b_op_epoch": fence.rank, "b_op_line": fence.line})
    leave_fence(tx, server, fence.rank, fence.line)


def leave_fence(tx: Tx, server: ServerId, rank: int, line: int) -> None:
    """Earlier writers can put no row of the server here. Until the transaction ends, no other transaction changes the
    fence.
    """
    tx.run(_raise_fence(tx.dialect), {"b_server": server, "b_rank": rank, "b_line": line})


_TAKE_OVER = (
    servers.update()
    .where(
        servers.c.id == sa.bindparam("b_server"),
        servers.c.operation == sa.bindparam("b_operation"),
        servers.c.op_epoch < sa.bindparam("b_rank"),
    )
    .values(op_epoch=sa.bindparam("b_rank"))
)


def take_over(tx: Tx, server: ServerId, fence: Fence) -> Server | None:
    """The first write of an adopter in the cell: earlier executors of the operation can no longer write here. Returns
    the current row.

    Its journal line does not count: the adopter may repeat earlier steps.
    """
    tx.run(_TAKE_OVER, {"b_server": server, "b_operation": fence.operation, "b_rank": fence.rank})
    leave_fence(tx, server, fence.rank, 0)
    return get(tx, server)


_GET = sa.select(*record_columns(servers)).where(servers.c.id == sa.bindparam("b_server"))


def get(tx: Tx, server: ServerId) -> Server | None:
    row = tx.row(_GET, {"b_server": server})
    return None if row is None else server_of(row)


_LOOK = sa.select(*record_columns(servers), servers.c.hidden).where(servers.c.id == sa.bindparam("b_server"))


def get_with_seal(tx: Tx, server: ServerId) -> tuple[Server | None, bool]:
    """The record, and whether its row is sealed: another cell's record is shown, or is about to be."""
    row = tx.row(_LOOK, {"b_server": server})
    return (None, False) if row is None else (server_of(row), bool(row.hidden))


_ALL_ON_HOST = sa.select(*record_columns(servers)).where(
    servers.c.host == sa.bindparam("b_host"), servers.c.deleted_at.is_(None)
)
_on_host, _also_sealed = (
    _ALL_ON_HOST.where(sa.not_(servers.c.hidden)),
    _ALL_ON_HOST,
)


def on_host(tx: Tx, host: str, *, sealed: bool = False) -> Sequence[Server]:
    """The servers that belong on a host and are not deleted.

    `sealed`: include sealed rows, for callers that know from the region which records are shown.
    """
    return [server_of(row) for row in tx.rows(_also_sealed if sealed else _on_host, {"b_host": host})]


def living(tx: Tx, after: str, limit: int) -> Sequence[Server]:
    """A page of the cell's servers that are on a host, with ids greater than `after`, in the order of ids."""
    query = sa.select(*record_columns(servers)).where(
        servers.c.id > after, servers.c.deleted_at.is_(None), servers.c.host.is_not(None), sa.not_(servers.c.hidden)
    )
    return [server_of(row) for row in tx.rows(query.order_by(servers.c.id).limit(limit))]


def in_state(tx: Tx, state: VmState, after: str, limit: int) -> Sequence[Server]:
    """A page of the cell's servers in this state, with ids greater than `after`, in the order of ids; without those
    that another cell shows.
    """
    query = sa.select(*record_columns(servers)).where(
        servers.c.id > after,
        servers.c.deleted_at.is_(None),
        servers.c.vm_state == state.value,
        sa.not_(servers.c.hidden),
    )
    return [server_of(row) for row in tx.rows(query.order_by(servers.c.id).limit(limit))]


def placed(tx: Tx, ids: Sequence[ServerId]) -> frozenset[ServerId]:
    """Those of these servers that are here, not deleted, and on a host or shelved: shelved ones keep their addresses."""
    somewhere = servers.c.host.is_not(None) | (servers.c.vm_state == VmState.SHELVED_OFFLOADED.value)
    query = sa.select(servers.c.id).where(servers.c.id.in_(ids), servers.c.deleted_at.is_(None), somewhere)
    return frozenset(ServerId(row[0]) for row in tx.rows(query))


_OBSERVE = (
    servers.update()
    .where(
        servers.c.id.in_(sa.bindparam("b_servers", expanding=True)),
        servers.c.host == sa.bindparam("b_host"),
        servers.c.power_state != sa.bindparam("b_state"),
    )
    .values(power_state=sa.bindparam("b_state"))
    .returning(servers.c.id)
)


def observe(tx: Tx, host: str, power_states: Mapping[ServerId, int]) -> Sequence[ServerId]:
    """Write the power states that a host reports; return the servers whose state changed."""
    changed: list[ServerId] = []
    for state in set(power_states.values()):
        ids = [server for server, power in power_states.items() if power == state]
        rows = tx.rows(_OBSERVE, {"b_servers": ids, "b_host": host, "b_state": state})
        changed += [ServerId(row.id) for row in rows]
    return changed


def forget_deleted(tx: Tx, before_us: int, limit: int = 1000) -> Sequence[ServerId]:
    """Remove rows of servers deleted before then, at most `limit`; rows stay while a host that the server left keeps
    something of it.
    """
    left = sa.exists().where(migrations.c.server == servers.c.id, migrations.c.is_open)
    old = (
        sa.select(servers.c.id)
        .where(servers.c.deleted_at.is_not(None), servers.c.deleted_at < before_us, sa.not_(left))
        .limit(limit)
        .scalar_subquery()
    )
    rows = tx.rows(servers.delete().where(servers.c.id.in_(old)).returning(servers.c.id))
    tx.run(fences.delete().where(fences.c.server.in_([row.id for row in rows])))
    return [ServerId(row.id) for row in rows]


def end_moves_of_deleted(tx: Tx, before_us: int, now_us: int, limit: int = 1000) -> Sequence[ServerId]:
    """End open moves of servers deleted before then, whose operation was lost when a database was restored. Returns the
    servers.

    Evacuated servers are left out: their old host may keep something of them, and reports it when it returns.
    """
    c = migrations.c
    done = sa.and_(c.type == MigrationType.EVACUATION.value, c.status == MigrationStatus.DONE.value)
    lost = (
        sa.select(c.uuid)
        .select_from(migrations.join(servers, servers.c.id == c.server))
        .where(c.is_open, sa.not_(done), servers.c.deleted_at.is_not(None), servers.c.deleted_at < before_us)
        .limit(limit)
    )
    ended: list[ServerId] = []
    for row in tx.rows(lost):
        if (move := find_migration(tx, row.uuid)) is not None:
            put_migration(tx, msgspec.structs.replace(move, status=MigrationStatus.ERROR, updated_at=now_us))
            ended.append(move.server)
    return ended


def forget_fences(tx: Tx, ids: Sequence[ServerId]) -> None:
    """Remove fences of servers that are gone for good: a failed boot leaves one in every cell."""
    tx.run(fences.delete().where(fences.c.server.in_(ids)))


def fenced(server: Server, fence: Fence) -> Server:
    """The record, and its last writer."""
    return msgspec.structs.replace(server, operation=fence.operation, op_epoch=fence.rank, op_line=fence.line)
