"""External events, kept before they are answered (RULES §20): whoever waits for one reads here, however late it comes."""

from collections.abc import Iterable, Sequence

import msgspec
import sqlalchemy as sa

from moorage.model.ids import ServerId
from moorage.sql import Tx, upsert
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
    """What a neighbour says has happened to a server; `tag` is a port's or volume's id, or empty."""

    server: ServerId
    name: str
    tag: str = ""
    status: str = "completed"
    seen_at: int = 0


def put(tx: Tx, events: Iterable[ExternalEvent]) -> None:
    """Insert or replace by (server, name, tag): the last word counts."""
    last = {(each.server, each.name, each.tag): each for each in events}
    for each in last.values():
        tx.run(upsert(tx.dialect, inbox, msgspec.structs.asdict(each), key=("server", "name", "tag")))


def of_server(tx: Tx, server: str, name: str | None = None) -> Sequence[ExternalEvent]:
    """What is known of one server, oldest first."""
    query = sa.select(inbox).where(inbox.c.server == server).order_by(inbox.c.seen_at)
    if name is not None:
        query = query.where(inbox.c.name == name)
    return [ExternalEvent(ServerId(row.server), row.name, row.tag, row.status, row.seen_at) for row in tx.rows(query)]


def drop(tx: Tx, server: str) -> None:
    """With the operation that used them."""
    tx.run(inbox.delete().where(inbox.c.server == server))


def forget_old(tx: Tx, before_us: int) -> None:
    """Events nobody waited for."""
    tx.run(inbox.delete().where(inbox.c.seen_at < before_us))
