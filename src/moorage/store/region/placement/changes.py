"""What is new since a horizon, for the picture in memory: a state transfer of absolute values (RULES §6.2).

PostgreSQL: rows whose writer's transaction id is at or above the horizon, and as the next horizon the oldest transaction that
was still running when the *first* statement began.  Later statements see more, and what they may see twice comes again.  A
sequence number would not do: a transaction that commits late with a lower number would be missed for ever.
SQLite: one counter, one writer; unchanged means there is nothing to read.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from moorage.sql import Tx
from moorage.store.region.placement.tables import (
    counter,
    gone,
    group_homes,
    group_hosts,
    hosts,
    inventories,
    provider_aggregates,
    provider_traits,
    providers,
)

NEVER = -1


@dataclass
class Changes:
    """Rows as they are now; `providers` carry their whole traits, aggregates and inventories."""

    horizon: int
    everything: bool = False
    providers: Sequence[sa.Row[Any]] = ()
    whole: Sequence[sa.Row[Any]] = ()
    """Every inventory of the changed providers."""
    inventories: Sequence[sa.Row[Any]] = ()
    """Changed inventories, of any provider."""
    traits: Sequence[sa.Row[Any]] = ()
    aggregates: Sequence[sa.Row[Any]] = ()
    hosts: Sequence[sa.Row[Any]] = ()
    gone: Sequence[str] = ()
    group_hosts: Sequence[sa.Row[Any]] = ()
    group_homes: Sequence[sa.Row[Any]] = ()
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        return not (
            self.everything or self.providers or self.inventories or self.gone or self.group_hosts or self.group_homes
        )


def since(tx: Tx, horizon: int = NEVER) -> Changes:
    """Everything that may have changed since `horizon`; all there is when it is NEVER."""
    following, news = _look(tx, horizon)
    changes = Changes(following, everything=horizon == NEVER)
    if not any(news):
        return changes
    p, i = providers.c, inventories.c
    if news[0]:
        fresh = p.changed >= horizon
        changes.providers = tx.rows(sa.select(*p).where(fresh))
        changes.whole = _of_providers(tx, inventories, fresh)
        changes.traits = _of_providers(tx, provider_traits, fresh)
        changes.aggregates = _of_providers(tx, provider_aggregates, fresh)
        changes.hosts = _of_providers(tx, hosts, fresh)
    if news[1] and horizon != NEVER:
        changes.inventories = tx.rows(
            sa.select(i.provider, i["class"], i.used, i.cap, i.version).where(i.changed >= horizon)
        )
    if news[2]:
        changes.gone = [row[0] for row in tx.rows(sa.select(gone.c.provider).where(gone.c.changed >= horizon))]
    if news[3]:
        changes.group_hosts = tx.rows(sa.select(*group_hosts.c).where(group_hosts.c.changed >= horizon))
        changes.group_homes = tx.rows(sa.select(*group_homes.c).where(group_homes.c.changed >= horizon))
    return changes


def _of_providers(tx: Tx, table: sa.Table, fresh: sa.ColumnElement[bool]) -> Sequence[sa.Row[Any]]:
    """Rows of the table that belong to changed providers."""
    return tx.rows(
        sa.select(*table.c).select_from(table.join(providers, table.c.provider == providers.c.uuid)).where(fresh)
    )


def _look(tx: Tx, horizon: int) -> tuple[int, tuple[bool, bool, bool, bool]]:
    """The next horizon, and which kinds of rows have news."""
    if tx.dialect == "sqlite":
        at = tx.scalar(sa.select(counter.c.at).where(counter.c.id == 1)) or 0
        if at < horizon:
            return at + 1, (False, False, False, False)
        following = at + 1
    else:
        following = 0
    parts = [
        sa.exists(sa.select(sa.literal(1)).where(table.c.changed >= horizon))
        for table in (providers, inventories, gone)
    ]
    groups = sa.exists(sa.select(sa.literal(1)).where(group_hosts.c.changed >= horizon))
    xmin = sa.literal_column(
        "pg_snapshot_xmin(pg_current_snapshot())::text::bigint" if tx.dialect == "postgresql" else "0", sa.BigInteger
    )
    found = tx.row(sa.select(xmin, *parts, groups))
    assert found is not None
    return (following or found[0]), (bool(found[1]), bool(found[2]), bool(found[3]), bool(found[4]))
