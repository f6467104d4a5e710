"""External events, stored before they are answered (RULES §20): an operation that waits for one reads them here,
however late.
"""

from collections.abc import Iterable, Sequence
from functools import cache

import msgspec
import sqlalchemy as sa

from moorage.model.ids import ServerId
from moorage.sql import Tx
from moorage.sql.dialect import insert
from moorage.store.region.servers import servers
from moorage.store.region.tables import region_metadata

inbox = sa.Table(
    "inbox",
    region_metadata,
    sa.Column("server", sa.String(36), primary_key=True),
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("tag", sa.String(255), primary_key=True),
    sa.Column("status", sa.String(32), nullable=False),
    sa.Column("seen_at", sa.BigInteger, nullable=False),
    sa.Index("inbox_seen", "seen_at"),
)


class ExternalEvent(msgspec.Struct, frozen=True):
    """An event that a service sent about a server; `tag` is a port's or volume's id, or empty."""

    server: ServerId
    name: str
    tag: str = ""
    status: str = "completed"
    seen_at: int = 0


@cache
def _put_placed(dialect: str) -> sa.Executable:
    """Store one event, if the region knows its server and a cell has it: check and write are one statement."""
    given = [
        servers.c.id,
        *(sa.bindparam(f"b_{name}", type_=inbox.c[name].type) for name in ("name", "tag", "status", "seen_at")),
    ]
    placed = sa.select(*given).where(servers.c.id == sa.bindparam("b_server"), servers.c.cell.is_not(None))
    statement = insert(dialect, inbox).from_select([each.name for each in inbox.c], placed)
    return statement.on_conflict_do_update(
        index_elements=["server", "name", "tag"],
        set_={name: statement.excluded[name] for name in ("status", "seen_at")},
    ).returning(inbox.c.server)


def put_placed(tx: Tx, events: Iterable[ExternalEvent]) -> set[tuple[str, str, str]]:
    """Insert or replace by (server, name, tag), so the last event counts; return the keys of the stored events.

    An event of a server without a cell is not stored.
    """
    last = {(each.server, each.name, each.tag): each for each in events}
    kept: set[tuple[str, str, str]] = set()
    for key, each in last.items():
        values = {f"b_{name}": value for name, value in msgspec.structs.asdict(each).items()}
        if tx.row(_put_placed(tx.dialect), values) is not None:
            kept.add(key)
    return kept


_ORDER = (inbox.c.seen_at, inbox.c.server, inbox.c.name, inbox.c.tag)
_AFTER = tuple(sa.bindparam(f"b_{each.name}", type_=each.type) for each in _ORDER)


def _ready(*more: sa.ColumnElement[bool]) -> sa.Executable:
    free = sa.exists().where(servers.c.id == inbox.c.server, servers.c.operation.is_(None))
    named = inbox.c.name.in_(sa.bindparam("b_names", expanding=True))
    most = sa.bindparam("b_most", type_=sa.Integer)
    return sa.select(inbox).where(named, free, *more).order_by(*_ORDER).limit(most)


_READY = _ready()
_READY_AFTER = _ready(sa.tuple_(*_ORDER) > sa.tuple_(*_AFTER))


def of_server(tx: Tx, server: str, name: str | None = None) -> Sequence[ExternalEvent]:
    """The events of one server, oldest first."""
    query = sa.select(inbox).where(inbox.c.server == server).order_by(inbox.c.seen_at)
    if name is not None:
        query = query.where(inbox.c.name == name)
    return [ExternalEvent(ServerId(row.server), row.name, row.tag, row.status, row.seen_at) for row in tx.rows(query)]


def ready(tx: Tx, names: Sequence[str], limit: int, after: ExternalEvent | None = None) -> Sequence[ExternalEvent]:
    """Events of these names whose servers no operation holds, oldest first; only those after `after`, if given."""
    values: dict[str, object] = {"b_names": list(names), "b_most": limit}
    if after is None:
        rows = tx.rows(_READY, values)
    else:
        values |= {f"b_{each.name}": getattr(after, each.name) for each in _ORDER}
        rows = tx.rows(_READY_AFTER, values)
    return [ExternalEvent(ServerId(row.server), row.name, row.tag, row.status, row.seen_at) for row in rows]


def taken(tx: Tx, events: Iterable[ExternalEvent]) -> None:
    """Remove handled events; an event that arrived again since then stays."""
    for each in events:
        tx.run(
            inbox.delete().where(
                inbox.c.server == each.server,
                inbox.c.name == each.name,
                inbox.c.tag == each.tag,
                inbox.c.seen_at <= each.seen_at,
            )
        )


_DROP = inbox.delete().where(inbox.c.server == sa.bindparam("b_server"), inbox.c.name == sa.bindparam("b_name"))


def drop(tx: Tx, server: str, name: str) -> None:
    """Remove events about the server's earlier host: they say nothing about the next one."""
    tx.run(_DROP, {"b_server": server, "b_name": name})


def forget_old(tx: Tx, before_us: int, limit: int = 1000) -> int:
    """Remove events for which no operation waited, at most `limit`; return how many."""
    c = inbox.c
    old = tx.rows(sa.select(c.server, c.name, c.tag).where(c.seen_at < before_us).limit(limit))
    if old:
        keys = sa.tuple_(c.server, c.name, c.tag).in_([tuple(row) for row in old])
        tx.run(inbox.delete().where(keys, c.seen_at < before_us))
    return len(old)


def count_old(tx: Tx, before_us: int) -> int:
    """How many events arrived before then."""
    return int(tx.scalar(sa.select(sa.func.count()).where(inbox.c.seen_at < before_us)) or 0)
