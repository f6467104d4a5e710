"""Which cells have, or may have, a hidden record of a server.

`servers.cell` alone names the cell whose record is shown. A move across cells writes a row here before it writes
anything to the second cell, and ends it after the second record is removed. So at every moment a record in a cell is
shown if and only if no row of that server and cell is open (docs/decisions/0021).

Rows that ended are kept for a while: a reader that reads this table before and after the cells sees from them what
changed.
"""

from collections.abc import Collection, Sequence
from functools import cache
from typing import Any

import msgspec
import sqlalchemy as sa

from moorage.model.ids import CellId, ServerId
from moorage.sql import Tx
from moorage.sql.dialect import insert
from moorage.store.region.tables import region_metadata

READ_MAX = 100_000
OF_SERVER_MAX = 100

hidden_records = sa.Table(
    "hidden_records",
    region_metadata,
    sa.Column("server", sa.String(36), primary_key=True),
    sa.Column("cell", sa.String(64), primary_key=True),
    sa.Column("changed", sa.BigInteger, nullable=False),
    sa.Column("ended_at", sa.BigInteger),
    sa.Index("hidden_records_by_end", "ended_at"),
    sa.Index("hidden_records_of_cell", "cell", "server"),
)


class HiddenRecord(msgspec.Struct, frozen=True):
    """One server's record in one cell; it is hidden while `ended_at` is None."""

    server: ServerId
    cell: CellId
    changed: int
    """How often it was opened or ended: if two reads give the same value, nothing happened in between."""
    ended_at: int | None = None
    """Microseconds since 1970, UTC; None: it is open."""

    @property
    def is_open(self) -> bool:
        return self.ended_at is None


@cache
def _open(dialect: str) -> sa.Executable:
    c = hidden_records.c
    given = {"server": sa.bindparam("b_server"), "cell": sa.bindparam("b_cell"), "changed": 1, "ended_at": None}
    return (
        insert(dialect, hidden_records)
        .values(given)
        .on_conflict_do_update(
            index_elements=["server", "cell"],
            set_={"changed": c.changed + 1, "ended_at": None},
            where=c.ended_at.is_not(None),
        )
    )


def open_row(tx: Tx, server: ServerId, cell: CellId) -> None:
    """Hide that cell's record of the server from the commit on; safe when it is hidden already."""
    tx.run(_open(tx.dialect), {"b_server": server, "b_cell": cell})


_IS_OPEN = (
    hidden_records.c.server == sa.bindparam("b_server"),
    hidden_records.c.cell == sa.bindparam("b_cell"),
    hidden_records.c.ended_at.is_(None),
)
_END = (
    hidden_records.update()
    .where(*_IS_OPEN)
    .values(ended_at=sa.bindparam("b_now"), changed=hidden_records.c.changed + 1)
)
_FIND_OPEN = sa.select(hidden_records.c.server).where(*_IS_OPEN)


def end_row(tx: Tx, server: ServerId, cell: CellId, now_us: int) -> None:
    """Show that cell's record of the server, if any, from the commit on; safe when none is hidden."""
    tx.run(_END, {"b_server": server, "b_cell": cell, "b_now": now_us})


def is_open(tx: Tx, server: ServerId, cell: CellId) -> bool:
    return tx.row(_FIND_OPEN, {"b_server": server, "b_cell": cell}) is not None


_OF_SERVER = (
    sa.select(hidden_records)
    .where(hidden_records.c.server == sa.bindparam("b_server"))
    .order_by(hidden_records.c.cell)
    .limit(OF_SERVER_MAX)
)


def of_server(tx: Tx, server: ServerId) -> Sequence[HiddenRecord]:
    """The server's rows, also those that ended recently."""
    return [_row(row) for row in tx.rows(_OF_SERVER, {"b_server": server})]


_OPEN_OF = sa.select(hidden_records.c.server, hidden_records.c.cell).where(
    hidden_records.c.server.in_(sa.bindparam("b_servers", expanding=True)), hidden_records.c.ended_at.is_(None)
)


def open_of(tx: Tx, servers: Collection[ServerId]) -> dict[ServerId, frozenset[CellId]]:
    """Those of these servers that have a hidden record → the cells that have it."""
    by_server: dict[ServerId, frozenset[CellId]] = {}
    for row in tx.rows(_OPEN_OF, {"b_servers": sorted(servers)}) if servers else ():
        by_server[ServerId(row.server)] = by_server.get(ServerId(row.server), frozenset()) | {CellId(row.cell)}
    return by_server


_RECENT = (
    sa.select(hidden_records)
    .where(sa.or_(hidden_records.c.ended_at.is_(None), hidden_records.c.ended_at >= sa.bindparam("b_since")))
    .limit(READ_MAX)
)


def open_or_ended_since(tx: Tx, since_us: int) -> Sequence[HiddenRecord]:
    """All open rows, and those that ended since then."""
    return [_row(row) for row in tx.rows(_RECENT, {"b_since": since_us})]


def open_ones(tx: Tx, after: tuple[str, str], limit: int) -> Sequence[HiddenRecord]:
    """A page of open rows, in the order of (server, cell), after the given pair; `("", "")` begins."""
    c = hidden_records.c
    behind = sa.or_(c.server > after[0], sa.and_(c.server == after[0], c.cell > after[1]))
    query = sa.select(hidden_records).where(c.ended_at.is_(None), behind).order_by(c.server, c.cell).limit(limit)
    return [_row(row) for row in tx.rows(query)]


def count_open(tx: Tx, cell: CellId) -> int:
    """How many servers have a hidden record there."""
    c = hidden_records.c
    return int(tx.scalar(sa.select(sa.func.count()).where(c.cell == cell, c.ended_at.is_(None))))


def forget_ended(tx: Tx, before_us: int, limit: int = 1000) -> int:
    """Remove rows that ended before then, at most `limit`; return how many."""
    c = hidden_records.c
    old = sa.select(c.server, c.cell).where(c.ended_at < before_us).limit(limit)
    pairs = [(row.server, row.cell) for row in tx.rows(old)]
    for server, cell in pairs:
        tx.run(hidden_records.delete().where(c.server == server, c.cell == cell, c.ended_at < before_us))
    return len(pairs)


def _row(row: Any) -> HiddenRecord:
    return HiddenRecord(ServerId(row.server), CellId(row.cell), row.changed, row.ended_at)
