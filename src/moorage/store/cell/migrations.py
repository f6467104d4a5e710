"""Moves of servers, in the cell of the source host: written with the server's record, under its fence."""

from collections.abc import Collection, Sequence
from functools import cache
from typing import Any

import msgspec
import sqlalchemy as sa

from moorage.model.ids import CellId, ServerId
from moorage.model.migration import ENDED, SENDING, Migration, MigrationStatus, MigrationType
from moorage.sql import Tx
from moorage.sql.dialect import insert
from moorage.store.cell.tables import cell_metadata

OPEN_MAX = 100
"""The most open moves of one server that are read; normally there is one."""
KEPT_OF_SERVER_MAX = 1000
SENDING_MAX = 1000
"""The most live migrations of one host, under way or queued, that are read at once."""
EVACUATED_MAX = 1000
"""The most evacuations of one host that are read at once."""

migrations = sa.Table(
    "migrations",
    cell_metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("uuid", sa.String(36), nullable=False, unique=True),
    sa.Column("server", sa.String(36), nullable=False),
    sa.Column("project", sa.String(255), nullable=False),
    sa.Column("user", sa.String(255), nullable=False),
    sa.Column("type", sa.String(32), nullable=False),
    sa.Column("status", sa.String(32), nullable=False),
    sa.Column("source_host", sa.String(255), nullable=False),
    sa.Column("dest_host", sa.String(255)),
    sa.Column("is_open", sa.Boolean, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
    sa.Column("doc", sa.Text, nullable=False),
    sa.Index("migrations_by_time", "created_at", "number"),
    sa.Index("migrations_of_server", "server", "created_at"),
    sa.Index(
        "migrations_open",
        "source_host",
        sqlite_where=sa.text("is_open"),
        postgresql_where=sa.text("is_open"),
    ),
)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Migration).decode


class MigrationQuery(msgspec.Struct, frozen=True):
    """Which moves to list, newest first; all given conditions must hold."""

    limit: int
    server: str | None = None
    servers: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()
    """Leave out moves of these servers, whose records in this cell are hidden."""
    type: str | None = None
    status: str | None = None
    host: str | None = None
    """Source or destination host."""
    source_host: str | None = None
    user: str | None = None
    project: str | None = None
    changes_since: int | None = None
    changes_before: int | None = None
    after: tuple[int, int, str] | None = None
    """`place_of` the last move of the previous page."""


def place_of(migration: Migration) -> tuple[int, int, str]:
    """Its sort key in lists: time, number, and uuid, because two cells may use the same number."""
    return migration.created_at, migration.number, migration.uuid


@cache
def _put(dialect: str) -> sa.Executable:
    statement = insert(dialect, migrations).inline()
    kept = ("number", "uuid", "server", "created_at")
    changed = {each.name: statement.excluded[each.name] for each in migrations.c if each.name not in kept}
    return statement.on_conflict_do_update(index_elements=["uuid"], set_=changed)


def put(tx: Tx, migration: Migration) -> None:
    """Insert, or replace the one with this uuid: a step that is executed twice leaves one row, with one number and the
    time of its beginning.
    """
    tx.run(_put(tx.dialect), _values(migration))


def put_all(tx: Tx, those: Sequence[Migration]) -> None:
    """Insert or replace several moves; new ones get numbers in their order."""
    if those:
        tx.run(_put(tx.dialect), [_values(each) for each in those])


_READ = (migrations.c.number, migrations.c.created_at, migrations.c.doc)
_GET = sa.select(*_READ).where(migrations.c.uuid == sa.bindparam("b_uuid"))


def get(tx: Tx, uuid: str) -> Migration | None:
    row = tx.row(_GET, {"b_uuid": uuid})
    return None if row is None else _migration(row)


def of_number(tx: Tx, server: ServerId, number: int) -> Migration | None:
    """The server's move with the number that the API shows as its id."""
    c = migrations.c
    row = tx.row(sa.select(*_READ).where(c.number == number, c.server == server))
    return None if row is None else _migration(row)


_OF_SERVER = sa.select(*_READ).where(migrations.c.server == sa.bindparam("b_server"))
_OPEN = _OF_SERVER.where(migrations.c.is_open).order_by(migrations.c.number).limit(OPEN_MAX)
_NEWEST = _OF_SERVER.order_by(migrations.c.number.desc()).limit(KEPT_OF_SERVER_MAX)


def open_of(tx: Tx, server: ServerId) -> Sequence[Migration]:
    """The moves of a server that have not ended, oldest first."""
    return [_migration(row) for row in tx.rows(_OPEN, {"b_server": server})]


def open_among(tx: Tx, servers: Collection[ServerId]) -> Sequence[Migration]:
    """The moves of these servers that have not ended."""
    c = migrations.c
    query = sa.select(*_READ).where(c.server.in_(sorted(servers)), c.is_open).order_by(c.number)
    return [_migration(row) for row in tx.rows(query)] if servers else []


def of_server(tx: Tx, server: ServerId) -> Sequence[Migration]:
    """All moves of one server, oldest first (the newest 1,000)."""
    return [_migration(row) for row in reversed(tx.rows(_NEWEST, {"b_server": server}))]


def listed(tx: Tx, query: MigrationQuery) -> Sequence[Migration]:
    """A page, newest first."""
    c = migrations.c
    wanted = sa.select(*_READ).where(*_conditions(query))
    wanted = wanted.order_by(c.created_at.desc(), c.number.desc(), c.uuid.desc()).limit(query.limit)
    return [_migration(row) for row in tx.rows(wanted)]


class MoveState(msgspec.Struct, frozen=True):
    """The state of a move, without its record."""

    server: ServerId
    is_open: bool
    waits_for_host: bool = False
    """It is over except for a dead host, which may keep something of the server until it returns."""


def move_states(tx: Tx, uuids: Sequence[str]) -> dict[str, MoveState]:
    """The states of those of these moves that are recorded here: their servers, and whether they have ended."""
    c = migrations.c
    rows = tx.rows(sa.select(c.uuid, c.server, c.is_open, c.status).where(c.uuid.in_(uuids)))
    return {
        row.uuid: MoveState(ServerId(row.server), bool(row.is_open), row.status == MigrationStatus.DONE.value)
        for row in rows
    }


class Leaving(msgspec.Struct, frozen=True):
    """Servers that are being moved away from a host, or were."""

    stay: frozenset[ServerId] = frozenset()
    """They may come back: their guests stay there until the move is over."""
    stay_off: frozenset[ServerId] = frozenset()
    """They are about to be evacuated: their guests stay, and are not started."""
    evacuated: frozenset[ServerId] = frozenset()
    """They are being started elsewhere: their guests are destroyed. For finished evacuations the servers' records name
    the new host.
    """


_LEAVING = sa.select(migrations.c.server, migrations.c.type, migrations.c.status).where(
    migrations.c.is_open, migrations.c.source_host == sa.bindparam("b_host")
)
STARTED_ELSEWHERE = (MigrationStatus.MIGRATING, MigrationStatus.DONE)
"""Statuses of an evacuation whose guest the returning old host destroys."""
_EVACUATED = (
    sa.select(*_READ)
    .where(
        migrations.c.is_open,
        migrations.c.source_host == sa.bindparam("b_host"),
        migrations.c.type == MigrationType.EVACUATION.value,
        migrations.c.status.in_([each.value for each in STARTED_ELSEWHERE]),
    )
    .order_by(migrations.c.number)
    .limit(EVACUATED_MAX)
)


def leaving(tx: Tx, host: str) -> Leaving:
    """What open moves say about guests on their source host."""
    stay, stay_off, evacuated = set[ServerId](), set[ServerId](), set[ServerId]()
    for row in tx.rows(_LEAVING, {"b_host": host}):
        if row.type != MigrationType.EVACUATION.value:
            stay.add(ServerId(row.server))
        elif row.status == MigrationStatus.MIGRATING.value:
            evacuated.add(ServerId(row.server))
        elif row.status != MigrationStatus.DONE.value:
            stay_off.add(ServerId(row.server))
    return Leaving(frozenset(stay), frozenset(stay_off), frozenset(evacuated))


_SENDING = (
    sa.select(*_READ)
    .where(
        migrations.c.is_open,
        migrations.c.source_host == sa.bindparam("b_host"),
        migrations.c.type == MigrationType.LIVE_MIGRATION.value,
        migrations.c.status.in_([each.value for each in SENDING]),
    )
    .order_by(migrations.c.number)
    .limit(SENDING_MAX)
)


def sending_from(tx: Tx, host: str) -> Sequence[Migration]:
    """Live migrations from this host that hold a place or wait for one, in the order of their requests."""
    return [_migration(row) for row in tx.rows(_SENDING, {"b_host": host})]


_ARRIVING = sa.select(migrations.c.dest_host, migrations.c.server).where(
    migrations.c.is_open,
    migrations.c.dest_host.in_(sa.bindparam("b_hosts", expanding=True)),
    migrations.c.type == MigrationType.LIVE_MIGRATION.value,
    migrations.c.status.in_([MigrationStatus.PREPARING.value, MigrationStatus.RUNNING.value]),
)


def arriving_at(tx: Tx, hosts: Collection[str]) -> dict[str, list[ServerId]]:
    """Host → servers for which the host has prepared a place, or is about to, while their ports are plugged and they
    are sent.
    """
    by_host = dict[str, list[ServerId]]()
    for row in tx.rows(_ARRIVING, {"b_hosts": list(hosts)}):
        by_host.setdefault(row.dest_host, []).append(ServerId(row.server))
    return by_host


def evacuated_from(tx: Tx, host: str) -> Sequence[Migration]:
    """Evacuations that are done, or still `migrating`, and whose host has not returned since, oldest first."""
    return [_migration(row) for row in tx.rows(_EVACUATED, {"b_host": host})]


def waits_for_host(tx: Tx, server: ServerId, cell: CellId) -> bool:
    """Whether the server was evacuated from a host of the given cell, the one of this database, and the host has not
    returned since.
    """
    return any(
        each.type is MigrationType.EVACUATION and each.status in STARTED_ELSEWHERE and each.source_cell in (None, cell)
        for each in open_of(tx, server)
    )


_FORGET = migrations.delete().where(migrations.c.server.in_(sa.bindparam("b_servers", expanding=True)))


def forget(tx: Tx, servers: Sequence[ServerId]) -> None:
    """Remove them with the rows of servers that are removed for good."""
    tx.run(_FORGET, {"b_servers": list(servers)})


def shorten(tx: Tx, most: int = KEPT_OF_SERVER_MAX, servers_max: int = 50) -> int:
    """Remove the oldest moves of servers with more than `most`, for at most `servers_max` servers at a time. Returns
    how many were removed.
    """
    c = migrations.c
    often = tx.rows(sa.select(c.server).group_by(c.server).having(sa.func.count() > most).limit(servers_max))
    went = 0
    for (server,) in often:
        newest = sa.select(c.number).where(c.server == server).order_by(c.number.desc()).offset(most - 1).limit(1)
        too_old = migrations.delete().where(c.server == server, c.number < newest.scalar_subquery(), sa.not_(c.is_open))
        went += len(tx.rows(too_old.returning(c.number)))
    return went


def _conditions(query: MigrationQuery) -> list[sa.ColumnElement[bool]]:
    c = migrations.c
    equal = {
        "server": query.server,
        "type": query.type,
        "status": query.status,
        "source_host": query.source_host,
        "user": query.user,
        "project": query.project,
    }
    conditions: list[sa.ColumnElement[bool]] = [c[name] == value for name, value in equal.items() if value is not None]
    if query.servers is not None:
        conditions.append(c.server.in_(query.servers))
    if query.without:
        conditions.append(c.server.not_in(query.without))
    if query.host is not None:
        conditions.append(sa.or_(c.source_host == query.host, c.dest_host == query.host))
    if query.changes_since is not None:
        conditions.append(c.updated_at >= query.changes_since)
    if query.changes_before is not None:
        conditions.append(c.updated_at <= query.changes_before)
    if query.after is not None:
        at, number, uuid = query.after
        same_time = sa.or_(c.number < number, sa.and_(c.number == number, c.uuid < uuid))
        conditions.append(sa.or_(c.created_at < at, sa.and_(c.created_at == at, same_time)))
    return conditions


def _values(migration: Migration) -> dict[str, Any]:
    return {
        "uuid": migration.uuid,
        "server": migration.server,
        "project": migration.project,
        "user": migration.user,
        "type": migration.type.value,
        "status": migration.status.value,
        "source_host": migration.source_host,
        "dest_host": migration.dest_host,
        "is_open": migration.status not in ENDED,
        "created_at": migration.created_at,
        "updated_at": migration.updated_at,
        "doc": _encode(migration).decode(),
    }


def _migration(row: Any) -> Migration:
    return msgspec.structs.replace(_decode(row.doc), number=row.number, created_at=row.created_at)
