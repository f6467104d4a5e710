"""Leases of conductors, on the database's clock (RULES §3)."""

from collections.abc import Mapping, Sequence
from functools import cache

import msgspec
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
    """Seconds since 1970 by the database's own clock, as an SQL expression."""
    return clock_of(tx.dialect)


def clock_of(dialect: str) -> sa.ColumnElement[float]:
    """Seconds since 1970 by the clock of that kind of database, as an SQL expression."""
    if dialect == "sqlite":
        return sa.literal_column("(julianday('now') - 2440587.5) * 86400.0", sa.Float)
    return sa.literal_column("extract(epoch from clock_timestamp())::float8", sa.Float)


def take(
    tx: Tx, me: ConductorId, former: Sequence[ConductorId], host: str, sagas: Sequence[str], lease_s: float = LEASE_S
) -> None:
    """Begin a lease under an id that had none before, and end those of my `former` ids.

    A lost lease is never renewed: its conductor comes back with a new id. So operations of the former id may be adopted
    without asking whether it lives again.
    """
    now = clock(tx)
    if former:
        tx.run(
            conductors.update()
            .where(conductors.c.id.in_(former), conductors.c.alive_until > now)
            .values(alive_until=now)
        )
    tx.run(
        conductors.insert().from_select(
            ["id", "host", "alive_until", "started_at", "sagas"],
            sa.select(sa.literal(me), sa.literal(host), now + lease_s, now, sa.literal(",".join(sagas))),
        )
    )


@cache
def _renew(dialect: str) -> sa.Executable:
    now = clock_of(dialect)
    return (
        conductors.update()
        .where(conductors.c.id == sa.bindparam("b_me"), conductors.c.alive_until > now)
        .values(alive_until=now + sa.bindparam("b_lease_s", type_=sa.Float))
        .returning(conductors.c.id)
    )


def renew(tx: Tx, me: ConductorId, lease_s: float = LEASE_S) -> bool:
    """Renew my lease. Returns False, and writes nothing, when it has ended already: its operations may have been
    adopted.
    """
    return tx.row(_renew(tx.dialect), {"b_me": me, "b_lease_s": lease_s}) is not None


def retire(tx: Tx, me: ConductorId) -> None:
    """End my lease now: another conductor may adopt at once.

    The row stays as long as that of any dead conductor, because an operation may still be accepted in its name.
    """
    tx.run(conductors.update().where(conductors.c.id == me).values(alive_until=clock(tx)))


@cache
def _living(dialect: str) -> sa.Executable:
    c = conductors.c
    return sa.select(c.id, c.sagas, c.host).where(c.alive_until > clock_of(dialect))


def living(tx: Tx) -> Sequence[tuple[ConductorId, frozenset[str], str]]:
    """(id, the sagas it can execute, its host) of every conductor whose lease is valid."""
    rows = tx.rows(_living(tx.dialect))
    return [(ConductorId(row[0]), _sagas(row[1]), row[2]) for row in rows]


class Peer(msgspec.Struct, frozen=True):
    """One conductor's row."""

    id: ConductorId
    host: str
    alive_until: float
    """Changes with every renewal."""
    started_at: float
    lives: bool
    """By the database's clock."""
    sagas: frozenset[str]


@cache
def _peers(dialect: str) -> sa.Executable:
    lives = sa.case((conductors.c.alive_until > clock_of(dialect), 1), else_=0)
    return sa.select(conductors, lives.label("lives")).order_by(conductors.c.started_at, conductors.c.id)


def peers(tx: Tx) -> Sequence[Peer]:
    """Every conductor that lives, or died within the last hour; the longest living first."""
    rows = tx.rows(_peers(tx.dialect))
    return [
        Peer(ConductorId(row.id), row.host, row.alive_until, row.started_at, bool(row.lives), _sagas(row.sagas))
        for row in rows
    ]


def _sagas(text: str) -> frozenset[str]:
    return frozenset(text.split(","))


def end_silent(tx: Tx, silent: Mapping[ConductorId, float]) -> None:
    """End leases that were not renewed since they were seen with this `alive_until`, whatever the database's clock says
    now.
    """
    now = clock(tx)
    for conductor, alive_until in silent.items():
        tx.run(
            conductors.update()
            .where(
                conductors.c.id == conductor, conductors.c.alive_until == alive_until, conductors.c.alive_until > now
            )
            .values(alive_until=now)
        )


def living_ids(dialect: str) -> sa.Select[tuple[str]]:
    """The ids of living conductors, as a subquery."""
    return sa.select(conductors.c.id).where(conductors.c.alive_until > clock_of(dialect))


def forget(tx: Tx) -> None:
    """Remove the rows of conductors that died long ago; their operations were adopted long ago."""
    tx.run(conductors.delete().where(conductors.c.alive_until < clock(tx) - FORGET_AFTER_S))


def listed(tx: Tx) -> Sequence[tuple[str, bool, float]]:
    """(host, whether a conductor lives there, when its lease ends or ended) of every host that has or recently had one."""
    lives = conductors.c.alive_until > clock(tx)
    rows = tx.rows(
        sa.select(conductors.c.host, sa.func.max(sa.case((lives, 1), else_=0)), sa.func.max(conductors.c.alive_until))
        .group_by(conductors.c.host)
        .order_by(conductors.c.host)
    )
    return [(row[0], bool(row[1]), row[2]) for row in rows]
