"""Which servers ran in a period, for usage reports; also deleted ones while their rows are kept."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import sqlalchemy as sa

from moorage.model.server import Server
from moorage.sql import Tx
from moorage.store.cell.servers import servers
from moorage.store.servers import record_columns, server_of


class Period(NamedTuple):
    start_us: int
    stop_us: int


def ran_between(
    tx: Tx,
    period: Period,
    project: str | None,
    after: str | None,
    limit: int,
    *,
    only: Collection[str] | None = None,
    without: Collection[str] = (),
) -> Sequence[Server]:
    """Servers launched before the period's end and not ended before its start; in the order of ids, after the given one.

    `only`: only these servers; `without`: not these, whose record here is hidden.
    """
    query = (
        sa.select(*record_columns(servers))
        .where(
            servers.c.launched_at <= period.stop_us,
            sa.or_(servers.c.terminated_at.is_(None), servers.c.terminated_at >= period.start_us),
        )
        .order_by(servers.c.id)
        .limit(limit)
    )
    if project is not None:
        query = query.where(servers.c.project == project)
    if after is not None:
        query = query.where(servers.c.id > after)
    if only is not None:
        query = query.where(servers.c.id.in_(only))
    if without:
        query = query.where(servers.c.id.not_in(without))
    return [server_of(row) for row in tx.rows(query)]
