"""A server's record in a second cell: it is sealed in its cell, copied to the other one, and removed where it is
hidden.

A row is sealed before it is copied, so that nothing is written to it that the copy would lack: a request's write to a
sealed row is refused, and goes to the other cell a moment later (`operations/records/servers.py`). The operation that
holds the server may still write to it, under the fence.

The copy is made in one transaction of the target's database (docs/decisions/0021).
"""

from collections.abc import Sequence

import msgspec
import sqlalchemy as sa

from moorage.model.action import Action
from moorage.model.errors import NotFound, Overtaken
from moorage.model.ids import CellId, ServerId
from moorage.model.migration import Migration
from moorage.model.server import Server
from moorage.sql import Tx
from moorage.store.cell import actions, migrations
from moorage.store.cell import servers as cell_servers
from moorage.store.cell.servers import Fence, not_later, servers
from moorage.store.servers import record_columns, server_of

COPIED = frozenset({"servers", "actions", "migrations", "fences"})
"""Tables whose rows of a server are copied."""
OF_THE_CELL = frozenset({"hosts", "store_identity", "usage_audits", "notifications"})
"""Tables that are not copied: they are about the cell, and its outbox is sent from the cell."""
SEALED_MAX = 1_000


class RecordCopy(msgspec.Struct, frozen=True):
    """Everything that a cell has of one server."""

    server: Server
    actions: Sequence[Action] = ()
    """With their events, newest first."""
    migrations: Sequence[Migration] = ()
    """Oldest first. Each cell has its own numbers."""


_set_hidden = (
    servers.update()
    .where(
        servers.c.id == sa.bindparam("b_server"),
        not_later(sa.bindparam("b_rank", type_=sa.BigInteger), sa.bindparam("b_line", type_=sa.BigInteger)),
    )
    .values(
        hidden=sa.bindparam("b_hidden", type_=sa.Boolean),
        generation=servers.c.generation + 1,
        operation=sa.bindparam("b_operation"),
        op_epoch=sa.bindparam("b_rank"),
        op_line=sa.bindparam("b_line"),
    )
    .returning(*record_columns(servers))
)


def seal(tx: Tx, server: ServerId, fence: Fence) -> Server:
    """Seal the row: requests can no longer write to it, even if they have read it already. Returns the record. A repeat
    is safe.

    Raises NotFound when it is not here, Stale when it belongs to a later operation or executor.
    """
    return _sealed(tx, server, fence, hidden=True)


def unseal(tx: Tx, server: ServerId, fence: Fence) -> Server:
    """Let requests write to it again. Raises NotFound, Stale."""
    return _sealed(tx, server, fence, hidden=False)


def _sealed(tx: Tx, server: ServerId, fence: Fence, *, hidden: bool) -> Server:
    values = {"b_operation": fence.operation, "b_rank": fence.rank, "b_line": fence.line, "b_hidden": hidden}
    row = tx.row(_set_hidden, {"b_server": server, **values})
    if row is not None:
        return server_of(row)
    if cell_servers.get(tx, server) is None:
        raise NotFound(f"server {server} is not in this cell")
    raise Overtaken(f"server {server} belongs to a later operation")


_IS_SEALED = sa.select(servers.c.hidden).where(servers.c.id == sa.bindparam("b_server"))


def is_sealed(tx: Tx, server: ServerId) -> bool:
    """Whether its row is here and sealed."""
    row = tx.row(_IS_SEALED, {"b_server": server})
    return row is not None and bool(row.hidden)


def sealed(tx: Tx, after: str = "", limit: int = SEALED_MAX) -> Sequence[ServerId]:
    """A page of servers whose row here is sealed, with ids greater than `after`, in the order of ids."""
    query = sa.select(servers.c.id).where(servers.c.hidden, servers.c.id > after).order_by(servers.c.id).limit(limit)
    return [ServerId(row.id) for row in tx.rows(query)]


def read(tx: Tx, server: ServerId) -> RecordCopy | None:
    """Everything of a server that is here; None when its record is not."""
    record = cell_servers.get(tx, server)
    if record is None:
        return None
    return RecordCopy(record, actions.of_server(tx, server), migrations.of_server(tx, server))


def has_rows(tx: Tx, server: ServerId) -> bool:
    """Whether there are actions or moves of it here, even without a record."""
    return bool(actions.of_server(tx, server) or migrations.of_server(tx, server))


_COPIED_BEFORE = sa.select(*record_columns(servers)).where(
    servers.c.id == sa.bindparam("b_server"),
    servers.c.op_epoch == sa.bindparam("b_rank"),
    servers.c.op_line == sa.bindparam("b_line"),
)


def copy(tx: Tx, record: RecordCopy, fence: Fence) -> Server:
    """Write the record (not sealed), its actions and its moves. A repeat is safe: what was written since stays.

    It gets the next generation, so that it differs from the row from which it was copied: lists cache by generation.
    Raises Stale when a later operation, executor or step wrote or removed it here; then nothing is written.
    """
    cell_servers.leave_fence(tx, record.server.id, fence.rank, 0)
    before = tx.row(_COPIED_BEFORE, {"b_server": record.server.id, "b_rank": fence.rank, "b_line": fence.line})
    if before is not None:
        return server_of(before)
    copied = msgspec.structs.replace(record.server, generation=record.server.generation + 1)
    written = cell_servers.record(tx, copied, fence)
    actions.write_all(tx, record.actions)
    migrations.put_all(tx, record.migrations)
    return written


def remove_unless_waited_for(tx: Tx, server: ServerId, cell: CellId, fence: Fence) -> bool:
    """Remove everything of the server, as `remove_record` does, unless a host of that cell, which was taken for dead,
    has not returned since the server was evacuated from it.

    Returns False when the record stays, sealed. Its move is the only record of what the move holds on that host, and of
    what is released when the host returns or is removed. Raises Stale.
    """
    if not migrations.waits_for_host(tx, server, cell):
        remove_record(tx, server, fence)
        return True
    if cell_servers.get(tx, server) is not None and not is_sealed(
        tx, server
    ):  # a copy was written over the record that was left
        seal(tx, server, fence)
    return False


def remove_record(tx: Tx, server: ServerId, fence: Fence) -> None:
    """Remove everything of the server; the fence stays, so that no earlier copy puts it back. Safe when nothing is
    here.

    Raises Overtaken when the row belongs to a later operation or executor.
    """
    cell_servers.leave_fence(tx, server, fence.rank, fence.line)  # first: this ends a copy that is being made
    cell_servers.remove(tx, server, fence)
    if cell_servers.get(tx, server) is not None:
        raise Overtaken(f"server {server} belongs to a later operation")
    actions.forget(tx, [server])
    migrations.forget(tx, [server])
