"""Copies of the cells' servers and hosts, for the case that a cell's database is lost for ever.

They are kept only if configured, by a round of the leading conductor, and only `moorage db adopt` reads them: while a
cell's database exists, it is authoritative.
"""

from collections.abc import Collection, Sequence

import msgspec
import sqlalchemy as sa

from moorage.model.host import Host
from moorage.model.ids import CellId, ServerId
from moorage.model.record_copy import ServerCopy
from moorage.sql import Tx
from moorage.sql.dialect import insert
from moorage.store.region.servers import servers
from moorage.store.region.tables import region_metadata

HOSTS_MAX = 10_000

record_copies = sa.Table(
    "record_copies",
    region_metadata,
    sa.Column("server", sa.String(36), primary_key=True),
    sa.Column("cell", sa.String(64), nullable=False),
    sa.Column("generation", sa.BigInteger, nullable=False),
    sa.Column("copied_at", sa.BigInteger, nullable=False),
    sa.Column("doc", sa.Text, nullable=False),
)
host_copies = sa.Table(
    "host_copies",
    region_metadata,
    sa.Column("cell", sa.String(64), primary_key=True),
    sa.Column("host", sa.String(255), primary_key=True),
    sa.Column("doc", sa.Text, nullable=False),
)

_encode = msgspec.json.Encoder().encode
_server = msgspec.json.Decoder(ServerCopy).decode
_host = msgspec.json.Decoder(Host).decode


class StoredCopy(msgspec.Struct, frozen=True):
    copy: ServerCopy
    copied_at: int
    """Microseconds since 1970, UTC."""


def generations(tx: Tx, cell: CellId, ids: Collection[ServerId]) -> dict[ServerId, int]:
    """Those of these servers with a copy from that cell → the generation of the copied record."""
    c = record_copies.c
    rows = tx.rows(sa.select(c.server, c.generation).where(c.cell == cell, c.server.in_(sorted(ids))))
    return {ServerId(row.server): row.generation for row in rows}


def put(tx: Tx, cell: CellId, copies: Sequence[ServerCopy], now_us: int) -> None:
    """Write them, in place of earlier copies, also of copies from another cell that the server has left."""
    if not copies:
        return
    statement = insert(tx.dialect, record_copies)
    changed = {name: statement.excluded[name] for name in ("cell", "generation", "copied_at", "doc")}
    tx.run(
        statement.values(
            [
                {
                    "server": each.server.id,
                    "cell": cell,
                    "generation": each.server.generation,
                    "copied_at": now_us,
                    "doc": _encode(each).decode(),
                }
                for each in copies
            ]
        ).on_conflict_do_update(index_elements=["server"], set_=changed)
    )


def of_cell(tx: Tx, cell: CellId, ids: Collection[ServerId]) -> Sequence[StoredCopy]:
    """The copies of these servers, in the order of their ids."""
    c = record_copies.c
    rows = tx.rows(sa.select(c.doc, c.copied_at).where(c.cell == cell, c.server.in_(sorted(ids))).order_by(c.server))
    return [StoredCopy(_server(row.doc), row.copied_at) for row in rows]


def forget_gone(tx: Tx, most: int) -> int:
    """Remove copies of servers that are deleted, or unknown to the region; return how many."""
    c = record_copies.c
    living = sa.select(servers.c.id).where(servers.c.id == c.server, servers.c.deleted_at.is_(None)).exists()
    gone = [row.server for row in tx.rows(sa.select(c.server).where(~living).limit(most))]
    if gone:
        tx.run(record_copies.delete().where(c.server.in_(gone)))
    return len(gone)


def hosts_of(tx: Tx, cell: CellId) -> Sequence[Host]:
    """In the order of their names."""
    c = host_copies.c
    rows = tx.rows(sa.select(c.doc).where(c.cell == cell).order_by(c.host).limit(HOSTS_MAX))
    return [_host(row.doc) for row in rows]


def put_hosts(tx: Tx, cell: CellId, changed: Sequence[Host], gone: Collection[str]) -> None:
    """Write the changed hosts, and remove the others."""
    c = host_copies.c
    if gone:
        tx.run(host_copies.delete().where(c.cell == cell, c.host.in_(sorted(gone))))
    if changed:
        statement = insert(tx.dialect, host_copies)
        rows = [{"cell": cell, "host": each.host, "doc": _encode(each).decode()} for each in changed]
        tx.run(
            statement.values(rows).on_conflict_do_update(
                index_elements=["cell", "host"], set_={"doc": statement.excluded["doc"]}
            )
        )
