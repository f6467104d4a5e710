"""Servers for which volumes are about to be made: written before the first one is made, removed by the commit that
accepts the boot.

A row that stays was left by a process that died in between; its volumes have the server's id, and no request was
answered with them.
"""

from collections.abc import Sequence

import sqlalchemy as sa

from moorage.model.ids import ServerId
from moorage.sql import Tx
from moorage.store.region.tables import region_metadata

OLD_MAX = 100
"""The largest number of one read."""

volume_intents = sa.Table(
    "volume_intents",
    region_metadata,
    sa.Column("server", sa.String(36), primary_key=True),
    sa.Column("began_at", sa.BigInteger, nullable=False),
)


def begin(tx: Tx, servers: Sequence[ServerId], now_us: int) -> None:
    tx.run(sa.insert(volume_intents), [{"server": each, "began_at": now_us} for each in servers])


def done(tx: Tx, servers: Sequence[ServerId]) -> None:
    tx.run(sa.delete(volume_intents).where(volume_intents.c.server.in_(list(servers))))


_OLD = (
    sa.select(volume_intents.c.server)
    .where(volume_intents.c.began_at < sa.bindparam("b_before"))
    .order_by(volume_intents.c.began_at)
    .limit(OLD_MAX)
)


def old(tx: Tx, before_us: int) -> Sequence[ServerId]:
    """Servers whose boot began so long ago that no process can still work on it."""
    return [ServerId(row.server) for row in tx.rows(_OLD, {"b_before": before_us})]
