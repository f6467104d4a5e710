"""The progress of a usage audit of a period in this cell, and the servers that it reports.

The progress is written together with each page of notifications, so a later process neither leaves a server out nor
reports one twice.
"""

from collections.abc import Sequence

import msgspec
import sqlalchemy as sa

from moorage.model.ids import ServerId
from moorage.model.server import Server
from moorage.sql import Tx, upsert
from moorage.store.cell.servers import servers
from moorage.store.cell.tables import cell_metadata
from moorage.store.servers import record_columns, server_of

usage_audits = sa.Table(
    "usage_audits",
    cell_metadata,
    sa.Column("began", sa.BigInteger, primary_key=True),
    sa.Column("ended", sa.BigInteger, primary_key=True),
    sa.Column("after", sa.String(36), nullable=False),
    sa.Column("told", sa.Integer, nullable=False),
    sa.Column("finished_at", sa.BigInteger),
)


class UsageAuditKey(msgspec.Struct, frozen=True):
    """The progress of an audit."""

    after: ServerId = ServerId("")
    told: int = 0
    finished: bool = False


def place(tx: Tx, began: int, ended: int) -> UsageAuditKey:
    c = usage_audits.c
    row = tx.row(sa.select(usage_audits).where(c.began == began, c.ended == ended))
    return UsageAuditKey() if row is None else UsageAuditKey(ServerId(row.after), row.told, row.finished_at is not None)


def put(tx: Tx, began: int, ended: int, at: UsageAuditKey, now: int) -> None:
    values = {
        "began": began,
        "ended": ended,
        "after": at.after,
        "told": at.told,
        "finished_at": now if at.finished else None,
    }
    tx.run(upsert(tx.dialect, usage_audits, values, key=("began", "ended")))


def _existed(began: int, ended: int) -> sa.ColumnElement[bool]:
    """Launched before the end of the period, and not deleted before its start; a sealed row is reported by another
    cell.
    """
    c = servers.c
    return sa.and_(sa.not_(c.hidden), c.launched_at < ended, sa.or_(c.terminated_at.is_(None), c.terminated_at > began))


def page(tx: Tx, began: int, ended: int, after: ServerId, limit: int) -> Sequence[Server]:
    """The next servers, in the order of ids, that existed in the period."""
    query = sa.select(*record_columns(servers)).where(servers.c.id > after, _existed(began, ended))
    return [server_of(row) for row in tx.rows(query.order_by(servers.c.id).limit(limit))]


def by_host(tx: Tx, began: int, ended: int) -> dict[str, int]:
    """How many servers each host had in the period, by the servers' current or last host."""
    query = sa.select(servers.c.host, sa.func.count().label("servers")).where(_existed(began, ended))
    rows = tx.rows(query.where(servers.c.host.is_not(None)).group_by(servers.c.host))
    return {row.host: row.servers for row in rows}


def forget(tx: Tx, before_us: int) -> None:
    """Remove the progress of periods that ended before then."""
    tx.run(usage_audits.delete().where(usage_audits.c.ended < before_us))
