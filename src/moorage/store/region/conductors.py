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
    sa.Column("reaches_bus", sa.Integer, nullable=False, server_default="1"),
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
    tx: Tx,
    me: ConductorId,
    former: Sequence[ConductorId],
    host: str,
    sagas: Sequence[str],
    lease_s: float = LEASE_S,
    *,
    reaches_bus: bool = True,
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
    columns = ["id", "host", "alive_until", "started_at", "sagas", "reaches_bus"]
    values = (sa.literal(each) for each in (me, host))
    more = (sa.literal(",".join(sagas)), sa.literal(int(reaches_bus)))
    tx.run(conductors.insert().from_select(columns, sa.select(*values, now + lease_s, now, *more)))


@cache
def _renew(dialect: str) -> sa.Executable:
    now = clock_of(dialect)
    values = {
        "alive_until": now + sa.bindparam("b_lease_s", type_=sa.Float),
        "reaches_bus": sa.bindparam("b_reaches_bus", type_=sa.Integer),
    }
    return (
        conductors.update()
        .where(conductors.c.id == sa.bindparam("b_me"), conductors.c.alive_until > now)
        .values(values)
        .returning(conductors.c.id)
    )


def renew(tx: Tx, me: ConductorId, lease_s: float = LEASE_S, *, reaches_bus: bool = True) -> bool:
    """Renew my lease. Returns False, and writes nothing, when it has ended already: its operations may have been
    adopted.
    """
    values = {"b_me": me, "b_lease_s": lease_s, "b_reaches_bus": int(reaches_bus)}
    return tx.row(_renew(tx.dialect), values) is not None


def retire(tx: Tx, me: ConductorId) -> None:
    """End my lease now: another conductor may adopt at once.

    The row stays as long as that of any dead conductor, because an operation may still be accepted in its name.
    """
    tx.run(conductors.update().where(conductors.c.id == me).values(alive_until=clock(tx)))


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
    """Those that it can execute."""
    reaches_bus: bool = True
    """As it said with its last renewal."""


@cache
def _peers(dialect: str, only_living: bool) -> sa.Executable:
    lives = conductors.c.alive_until > clock_of(dialect)
    query = sa.select(conductors, sa.case((lives, 1), else_=0).label("lives"))
    return (query.where(lives) if only_living else query).order_by(conductors.c.started_at, conductors.c.id)


def peers(tx: Tx, *, only_living: bool = False) -> Sequence[Peer]:
    """Every conductor that lives, or died within the last hour; the longest living first."""
    return [
        Peer(
            id=ConductorId(row.id),
            host=row.host,
            alive_until=row.alive_until,
            started_at=row.started_at,
            lives=bool(row.lives),
            sagas=frozenset(row.sagas.split(",")),
            reaches_bus=bool(row.reaches_bus),
        )
        for row in tx.rows(_peers(tx.dialect, only_living))
    ]


def living(tx: Tx) -> Sequence[Peer]:
    """Every conductor whose lease is valid."""
    return peers(tx, only_living=True)


def reaching_bus(living: Sequence[Peer]) -> Sequence[Peer]:
    """Those that reach the message bus; if none does, all of them: their operations wait for the bus."""
    return [each for each in living if each.reaches_bus] or living


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
