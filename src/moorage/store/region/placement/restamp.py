"""Stamps rows again after a dump was loaded into another PostgreSQL cluster, which numbers its transactions anew.

`changed` is the id of the transaction that wrote a row. Ids of another cluster may lie in this cluster's future, and
every catch-up would read those rows again until the numbers have reached them. They are stamped once with a transaction
of this cluster.
"""

import sqlalchemy as sa

from moorage.sql import Tx
from moorage.store.region.placement.tables import gone, group_homes, group_hosts, inventories, providers

STAMPED = (providers, inventories, gone, group_hosts, group_homes)
_NOW = sa.literal_column("pg_current_xact_id()::text::bigint", sa.BigInteger)
_NEXT = sa.literal_column("pg_snapshot_xmax(pg_current_snapshot())::text::bigint", sa.BigInteger)


def restamp(tx: Tx) -> int:
    """Return how many rows had stamps of the future; on SQLite none has, because the counter is in the same file."""
    if tx.dialect == "sqlite":
        return 0
    newest = [sa.select(sa.func.max(table.c.changed)).scalar_subquery() for table in STAMPED]
    if not tx.scalar(sa.select(sa.func.coalesce(sa.func.greatest(*newest), 0) >= _NEXT)):
        return 0
    mended = 0
    for table in STAMPED:
        ahead = table.update().where(table.c.changed >= _NEXT).values(changed=_NOW)
        counted = ahead.returning(sa.literal(1)).cte("mended")
        mended += int(tx.scalar(sa.select(sa.func.count()).select_from(counted)) or 0)
    return mended
