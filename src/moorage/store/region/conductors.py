"""Leases of conductors, on the database's clock (RULES §3)."""

from collections.abc import Sequence

import sqlalchemy as sa

from moorage.model.ids import ConductorId
from moorage.sql import Tx
from moorage.store.region.tables import region_metadata

LEASE_S = 15.0
BEAT_S = 5.0
FORGET_AFTER_S = 3600.0

conductors = sa.Table(
    "conductors",
    region_metadata,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("host", sa.String(255), nullable=False),
    sa.Column("alive_until", sa.Float, nullable=False),
    sa.Column("started_at", sa.Float, nullable=False),
    sa.Column("sagas", sa.Text, nullable=False),
)


def clock(tx: Tx) -> sa.ColumnElement[float]:
    """Seconds since 1970 by the database's own clock, as an expression."""
    if tx.dialect == "sqlite":
        return sa.literal_column("(julianday('now') - 2440587.5) * 86400.0", sa.Float)
    return sa.literal_column("extract(epoch from clock_timestamp())::float8", sa.Float)


def beat(tx: Tx, me: ConductorId, host: str, sagas: Sequence[str], lease_s: float = LEASE_S) -> None:
    """Renew (or begin) my lease."""
    now = clock(tx)
    updated = tx.row(
        conductors.update()
        .where(conductors.c.id == me)
        .values(alive_until=now + lease_s, sagas=",".join(sagas))
        .returning(conductors.c.id)
    )
    if updated is None:
        tx.run(
            conductors.insert().from_select(
                ["id", "host", "alive_until", "started_at", "sagas"],
                sa.select(sa.literal(me), sa.literal(host), now + lease_s, now, sa.literal(",".join(sagas))),
            )
        )


def retire(tx: Tx, me: ConductorId) -> None:
    """End my lease now: another may adopt at once.

    The row stays for as long as that of any dead conductor: an operation may still be accepted in its name.
    """
    tx.run(conductors.update().where(conductors.c.id == me).values(alive_until=clock(tx)))


def living(tx: Tx) -> Sequence[tuple[ConductorId, frozenset[str], str]]:
    """(id, the sagas it can tell, its host) of every conductor whose lease holds."""
    rows = tx.rows(
        sa.select(conductors.c.id, conductors.c.sagas, conductors.c.host).where(conductors.c.alive_until > clock(tx))
    )
    return [(ConductorId(row[0]), frozenset(row[1].split(",")), row[2]) for row in rows]


def dead(tx: Tx, *, all_but: ConductorId | None = None) -> Sequence[ConductorId]:
    """Conductors whose lease has run out; `all_but`: every other one (I hold the data directory alone)."""
    query = sa.select(conductors.c.id)
    query = (
        query.where(conductors.c.alive_until <= clock(tx))
        if all_but is None
        else query.where(conductors.c.id != all_but)
    )
    return [ConductorId(row[0]) for row in tx.rows(query)]


def forget(tx: Tx) -> None:
    """Remove the rows of those long dead; their work was adopted long ago."""
    tx.run(conductors.delete().where(conductors.c.alive_until < clock(tx) - FORGET_AFTER_S))


def listed(tx: Tx) -> Sequence[tuple[str, bool, float]]:
    """(host, whether a conductor there lives, when its lease ends or ended) of every host that has or lately had one."""
    lives = conductors.c.alive_until > clock(tx)
    rows = tx.rows(
        sa.select(conductors.c.host, sa.func.max(sa.case((lives, 1), else_=0)), sa.func.max(conductors.c.alive_until))
        .group_by(conductors.c.host)
        .order_by(conductors.c.host)
    )
    return [(row[0], bool(row[1]), row[2]) for row in rows]
