"""The identity of this database, how often its region was restored, and the cells' databases that it knows (RULES §22).

`mark` is a number that only grows, a few times a minute. The cells remember the region's and the region the cells'. So
a database that was restored from a backup has a lower mark than the others remember, without any transaction over both.
"""

import uuid as uuids
from collections.abc import Mapping, Sequence
from functools import cache

import msgspec
import sqlalchemy as sa

from moorage.model.ids import CellId, ServerId
from moorage.model.server import Server
from moorage.sql import Tx
from moorage.sql.dialect import insert
from moorage.store.region.servers import servers
from moorage.store.region.tables import region_metadata
from moorage.store.servers import server_values

ONLY = 1
PLACED_LOOKED_AT_MAX = 100

identity = sa.Table(
    "store_identity",
    region_metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("uuid", sa.String(36), nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("mark", sa.BigInteger, nullable=False),
)
known_cells = sa.Table(
    "known_cells",
    region_metadata,
    sa.Column("cell", sa.String(64), primary_key=True),
    sa.Column("uuid", sa.String(36), nullable=False),
    sa.Column("mark", sa.BigInteger, nullable=False),
)


class RegionIdentity(msgspec.Struct, frozen=True):
    uuid: str
    epoch: int
    """`moorage db adopt` raises it in every database of the region after one of them was restored."""
    mark: int


class KnownCell(msgspec.Struct, frozen=True):
    """What the region remembers of a cell's database."""

    uuid: str
    mark: int


_GET = sa.select(identity).where(identity.c.id == ONLY)
_CELLS = sa.select(known_cells)
_REMIND = (
    known_cells.update()
    .where(
        known_cells.c.cell == sa.bindparam("b_cell"),
        known_cells.c.uuid == sa.bindparam("b_uuid"),
        known_cells.c.mark < sa.bindparam("b_mark"),
    )
    .values(mark=sa.bindparam("b_mark"))
)
_RAISE = identity.update().where(identity.c.id == ONLY).values(mark=identity.c.mark + 1).returning(identity.c.mark)


@cache
def _remember(dialect: str) -> sa.Executable:
    statement = insert(dialect, known_cells).values(
        {name: sa.bindparam(f"b_{name}") for name in ("cell", "uuid", "mark")}
    )
    return statement.on_conflict_do_update(
        index_elements=["cell"],
        set_={"mark": statement.excluded.mark},
        where=(known_cells.c.uuid == statement.excluded.uuid) & (known_cells.c.mark < statement.excluded.mark),
    )


def get(tx: Tx) -> RegionIdentity | None:
    row = tx.row(_GET)
    return None if row is None else RegionIdentity(row.uuid, row.epoch, row.mark)


def make(tx: Tx) -> RegionIdentity:
    """Create the identity; if it exists already, return the existing one."""
    new = {"id": ONLY, "uuid": str(uuids.uuid4()), "epoch": 1, "mark": 0}
    tx.run(insert(tx.dialect, identity).values(new).on_conflict_do_nothing())
    made = get(tx)
    assert made is not None
    return made


def cells(tx: Tx) -> dict[CellId, KnownCell]:
    return {row.cell: KnownCell(row.uuid, row.mark) for row in tx.rows(_CELLS)}


def remember(tx: Tx, marks: Mapping[CellId, KnownCell]) -> int:
    """Raise this database's mark and the remembered marks of cells; return the own mark."""
    mark = tx.scalar(_RAISE)
    for cell, known in sorted(marks.items()):
        tx.run(_remember(tx.dialect), {"b_cell": cell, "b_uuid": known.uuid, "b_mark": known.mark})
    return int(mark or 0)


def remind(tx: Tx, marks: Mapping[CellId, KnownCell]) -> int:
    """Like `remember`, for known cells only; a cell that an administrator has removed stays removed."""
    mark = tx.scalar(_RAISE)
    for cell, known in sorted(marks.items()):
        tx.run(_REMIND, {"b_cell": cell, "b_uuid": known.uuid, "b_mark": known.mark})
    return int(mark or 0)


def forget_cell(tx: Tx, cell: CellId) -> None:
    """Remove the cell."""
    tx.run(known_cells.delete().where(known_cells.c.cell == cell))


def adopt(tx: Tx, mine: RegionIdentity, marks: Mapping[CellId, KnownCell]) -> None:
    """Set the identity after a deliberate restore."""
    tx.run(identity.update().where(identity.c.id == ONLY).values(epoch=mine.epoch, mark=mine.mark))
    for cell, known in marks.items():
        statement = insert(tx.dialect, known_cells).values(cell=cell, uuid=known.uuid, mark=known.mark)
        change = {"uuid": statement.excluded.uuid, "mark": statement.excluded.mark}
        tx.run(statement.on_conflict_do_update(index_elements=["cell"], set_=change))


def placed_in(
    tx: Tx, cell: CellId, after: str = "", limit: int = PLACED_LOOKED_AT_MAX, project: str | None = None
) -> Sequence[ServerId]:
    """Servers whose record this cell must have, in the order of their ids; of one project, or of all."""
    c = servers.c
    query = sa.select(c.id).where(c.cell == cell, c.doc.is_(None), c.deleted_at.is_(None), c.id > after)
    if project is not None:
        query = query.where(c.project == project)
    return [ServerId(row.id) for row in tx.rows(query.order_by(c.id).limit(limit))]


class PlacedServer(msgspec.Struct, frozen=True):
    """What the region has of a server whose record is in a cell."""

    seq: int
    deleted: bool
    busy: bool
    """Whether an operation holds it."""


def known(tx: Tx, ids: Sequence[ServerId]) -> dict[ServerId, PlacedServer]:
    """What is known here of these servers; unknown servers are left out."""
    c = servers.c
    rows = tx.rows(sa.select(c.id, c.op_seq, c.deleted_at, c.operation).where(c.id.in_(ids)))
    return {
        ServerId(row.id): PlacedServer(row.op_seq, row.deleted_at is not None, row.operation is not None)
        for row in rows
    }


def raise_turns(tx: Tx, turns: Mapping[ServerId, int]) -> None:
    """Raise the sequence numbers of servers' operations above what their cell and host have seen (RULES §3, §10)."""
    for server, seq in turns.items():
        tx.run(servers.update().where(servers.c.id == server, servers.c.op_seq < seq).values(op_seq=seq))


def list_again(tx: Tx, records: Sequence[Server], cell: CellId, turns: Mapping[ServerId, int]) -> None:
    """Insert servers that were accepted after this database was backed up, from their cell's records."""
    for each in records:
        row = {
            **server_values(each),
            "op_seq": turns[each.id],
            "cell": cell,
            "task": None,
            "doc": None,
            "operation": None,
        }
        tx.run(insert(tx.dialect, servers).values(row).on_conflict_do_nothing())
