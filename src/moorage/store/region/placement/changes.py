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
PROVIDERS_PER_PAGE = 10_000


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


def begin(tx: Tx) -> int:
    """The horizon for a reader that is about to read all pages: what changes while it reads is read again afterwards."""
    return _look(tx, NEVER)[0]


def page(tx: Tx, horizon: int, after: str) -> tuple[Changes, str | None]:
    """The providers behind `after`, in the order of their ids, and where the next page begins (None: this is the last).

    A fleet in one answer would be in memory twice.  Server groups come with the last page.
    """
    uuid = providers.c.uuid
    found = tx.rows(sa.select(*providers.c).where(uuid > after).order_by(uuid).limit(PROVIDERS_PER_PAGE))
    changes = Changes(horizon, providers=found)
    following = found[-1].uuid if len(found) == PROVIDERS_PER_PAGE else None
    if found:
        until = found[-1].uuid
        changes.whole = _between(tx, inventories, after, until)
        changes.traits = _between(tx, provider_traits, after, until)
        changes.aggregates = _between(tx, provider_aggregates, after, until)
        changes.hosts = _between(tx, hosts, after, until)
    if following is None:
        changes.group_hosts = tx.rows(sa.select(*group_hosts.c))
        changes.group_homes = tx.rows(sa.select(*group_homes.c))
    return changes, following


def _between(tx: Tx, table: sa.Table, after: str, until: str) -> Sequence[sa.Row[Any]]:
    key = table.c.provider
    return tx.rows(sa.select(*_columns(table)).where(key > after, key <= until))


def _columns(table: sa.Table) -> list[sa.ColumnElement[Any]]:
    """All of them; `class`, which Python keeps for itself, as `resource`."""
    return [each.label("resource") if each.name == "class" else each for each in table.c]


def since(tx: Tx, horizon: int = NEVER) -> Changes:
    """Everything that may have changed since `horizon`; all there is, in one answer, when it is NEVER."""
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
            sa.select(i.provider, i["class"].label("resource"), i.used, i.cap, i.version).where(i.changed >= horizon)
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
        sa.select(*_columns(table))
        .select_from(table.join(providers, table.c.provider == providers.c.uuid))
        .where(fresh)
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
