"""Turns of hosts that an operator takes back, because no conductor gave them (`conductor/turn_resets.py`)."""

from collections.abc import Sequence

import msgspec
import sqlalchemy as sa

from moorage.model.fencing_token import FencingToken
from moorage.model.ids import CellId, ServerId
from moorage.sql import Tx
from moorage.sql.dialect import insert
from moorage.store.region.tables import region_metadata

RESETS_MAX = 1_000
"""How many are stored; the oldest is dropped first."""

turn_resets = sa.Table(
    "turn_resets",
    region_metadata,
    sa.Column("host", sa.String(255), primary_key=True),
    sa.Column("server", sa.String(36), primary_key=True),
    sa.Column("cell", sa.String(64), nullable=False),
    sa.Column("operation_seq", sa.BigInteger, nullable=False),
    sa.Column("attempt", sa.BigInteger, nullable=False),
    sa.Column("phase", sa.Integer, nullable=False),
    sa.Column("requested_at", sa.BigInteger, nullable=False),
    sa.Column("requested_by", sa.String(255), nullable=False),
    sa.Index("turn_resets_by_time", "requested_at"),
)
"""`operation_seq`, `attempt`, `phase`: the turn that the host had. `requested_at`: µs since 1970."""

NEWEST = sa.select(sa.func.coalesce(sa.func.max(turn_resets.c.requested_at), 0)).scalar_subquery()


class StoredReset(msgspec.Struct, frozen=True):
    """One row."""

    host: str
    server: ServerId
    forged: FencingToken
    """The host's turn; it is taken back only while the host has it."""
    requested_at: int


def taken_back(server: sa.ColumnElement[str], operation_seq: sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
    """Whether an operator said that no conductor gave a turn of this number for the server, as a condition."""
    c = turn_resets.c
    return sa.exists().where(c.server == server, c.operation_seq == operation_seq)


def add(tx: Tx, cell: CellId, reset: StoredReset, by: str) -> None:
    """Ask for a reset, in place of an earlier one of this server on this host."""
    turn = reset.forged
    columns = {
        "cell": cell,
        "operation_seq": turn.operation_seq,
        "attempt": turn.attempt,
        "phase": turn.phase,
        "requested_at": reset.requested_at,
        "requested_by": by,
    }
    statement = insert(tx.dialect, turn_resets).values(host=reset.host, server=reset.server, **columns)
    tx.run(statement.on_conflict_do_update(index_elements=["host", "server"], set_=columns))
    c = turn_resets.c
    old = tx.rows(sa.select(c.requested_at).order_by(c.requested_at.desc()).offset(RESETS_MAX).limit(1))
    if old:
        tx.run(turn_resets.delete().where(c.requested_at <= old[0].requested_at))


def since(tx: Tx, cell: CellId, requested_at: int) -> Sequence[StoredReset]:
    """The resets of a cell's hosts that were asked for after this time."""
    c = turn_resets.c
    rows = tx.rows(sa.select(turn_resets).where(c.cell == cell, c.requested_at > requested_at).order_by(c.requested_at))
    return [
        StoredReset(
            row.host, ServerId(row.server), FencingToken(row.operation_seq, row.attempt, row.phase), row.requested_at
        )
        for row in rows
    ]
