"""The changes since a horizon, for the cache in memory: a state transfer of absolute values (RULES §6.2).

PostgreSQL: rows whose writer's transaction id is at or above the horizon; the next horizon is the oldest transaction
that was still running when the *first* statement began. Later statements may see more, and such rows are read again
next time. A sequence number would not work: a transaction that commits late with a lower number would be missed for
ever.
SQLite: one counter, one writer; unchanged means there is nothing to read.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import aggregate_order_by

from moorage.sql import RawStatement, Tx
from moorage.store.region.placement.tables import (
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
ROWS_AT_ONCE = 10_000
NAMED_MAX = 500
"""With more providers, the queries do not list them one by one."""


PROVIDER = [providers.c[name] for name in ("uuid", "name", "parent", "root", "generation", "version", "updated_at")]
STOCK = [
    inventories.c[name]
    for name in ("class", "total", "reserved", "ratio", "min_unit", "max_unit", "step", "cap", "used", "version")
]
HOST = [
    hosts.c[name]
    for name in ("host", "node", "cell", "zone", "physnets", "level", "kind", "forced_down", "cell_disabled")
]

Plain: TypeAlias = Sequence[Sequence[Any]]


@dataclass
class ProviderChanges:
    """The current rows; `providers` have all their traits, aggregates and inventories."""

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


@dataclass(frozen=True)
class Everything:
    """All rows, streamed in batches in any order: one answer with a whole fleet would need twice the memory.

    Read each iterator to its end before the next, `horizon` first: changes made meanwhile are read again afterwards. A
    row that names a provider which was not read was written after the providers were read.
    """

    tx: Tx

    def horizon(self) -> int:
        return _probe(self.tx, NEVER)[0]

    def providers(self) -> Iterator[Plain]:
        """Rows of PROVIDER."""
        return self.tx.stream(_ALL_PROVIDERS, ROWS_AT_ONCE)

    def stocks(self) -> Iterator[Plain]:
        """The provider, and STOCK."""
        return self.tx.stream(_ALL_STOCKS, ROWS_AT_ONCE)

    def traits(self) -> Iterator[Plain]:
        """The provider, and all of its traits in one text, separated by commas."""
        return self.tx.stream(_ALL_TRAITS[self.tx.dialect], ROWS_AT_ONCE)

    def aggregates(self) -> Iterator[Plain]:
        """The provider, and all of its aggregates in one text, separated by commas."""
        return self.tx.stream(_ALL_AGGREGATES[self.tx.dialect], ROWS_AT_ONCE)

    def hosts(self) -> Iterator[Plain]:
        """The provider, and HOST."""
        return self.tx.stream(_ALL_HOSTS, ROWS_AT_ONCE)

    def groups(self) -> ProviderChanges:
        """The server groups."""
        changes = ProviderChanges(NEVER)
        changes.group_hosts = self.tx.rows(_ALL_GROUP_HOSTS)
        changes.group_homes = self.tx.rows(_ALL_GROUP_HOMES)
        return changes


_ALL_PROVIDERS, _ALL_HOSTS = (
    sa.select(*PROVIDER),
    sa.select(hosts.c.provider, *HOST),
)
_ALL_STOCKS = sa.select(inventories.c.provider, *STOCK)
_ALL_GROUP_HOSTS, _ALL_GROUP_HOMES = (
    sa.select(*group_hosts.c),
    sa.select(*group_homes.c),
)


def _named(name: sa.Column[Any]) -> dict[str, sa.Executable]:
    """By dialect. Sorted, so that providers with the same names have equal texts."""
    key = name.table.c.provider
    comma: sa.ColumnElement[str] = sa.literal_column("','")
    together: Any = sa.func.string_agg(name, aggregate_order_by(comma, name))
    ordered = sa.select(key, name).order_by(key, name).subquery()
    in_order: Any = sa.func.group_concat(ordered.c[1])
    return {
        "postgresql": sa.select(key, together).group_by(key),
        "sqlite": sa.select(ordered.c[0], in_order).group_by(ordered.c[0]),
    }


_ALL_TRAITS, _ALL_AGGREGATES = _named(provider_traits.c.trait), _named(provider_aggregates.c.aggregate)


def _columns(table: sa.Table) -> list[sa.ColumnElement[Any]]:
    """All columns; `class`, a keyword of Python, is named `resource`."""
    return [each.label("resource") if each.name == "class" else each for each in table.c]


def since(tx: Tx, horizon: int = NEVER, known: Callable[[str], int | None] | None = None) -> ProviderChanges:
    """Everything that may have changed since `horizon`; all rows, in one answer, when it is NEVER.

    `known` returns the version that the reader has of a provider: a process that raised a generation itself need not
    read the provider again.
    """
    following, news = _probe(tx, horizon)
    changes = ProviderChanges(following, everything=horizon == NEVER)
    if not any(news):
        return changes
    fresh = _unknown(tx, horizon, known) if news[0] else None
    if fresh is not None:
        statements, values = fresh
        changes.providers = tx.rows(statements.providers, values)
        changes.whole = tx.rows(statements.whole, values)
        changes.traits = tx.rows(statements.traits, values)
        changes.aggregates = tx.rows(statements.aggregates, values)
        changes.hosts = tx.rows(statements.hosts, values)
    since_then = {"b_horizon": horizon}
    if news[1] and horizon != NEVER:
        changes.inventories = tx.rows(_INVENTORIES, since_then)
    if news[2]:
        changes.gone = [row[0] for row in tx.rows(_GONE, since_then)]
    if news[3]:
        changes.group_hosts = tx.rows(_GROUP_HOSTS, since_then)
        changes.group_homes = tx.rows(_GROUP_HOMES, since_then)
    return changes


def _unknown(
    tx: Tx, horizon: int, known: Callable[[str], int | None] | None
) -> "tuple[_ProviderQueries, dict[str, Any]] | None":
    """The condition for those of the changed providers that must be read; None: the reader has them all."""
    since_then: dict[str, Any] = {"b_horizon": horizon}
    if known is None:
        return _SINCE, since_then
    unknown = [uuid for uuid, version in tx.rows(_VERSIONS, since_then) if known(uuid) != version]
    if len(unknown) > NAMED_MAX:
        return _SINCE, since_then
    return (_AMONG, {"b_providers": unknown}) if unknown else None


_CHANGED_STOCK = ("provider", "class", "used", "cap", "version")
_AT = RawStatement(sqlite="SELECT at FROM placement_counter WHERE id = 1", writes=False)
_NEWEST = ", ".join(
    f"coalesce((SELECT max(changed) FROM {table.name}) >= :horizon, false)"
    for table in (providers, inventories, gone, group_hosts)
)
"""The newest row of each table, from the end of its index. To find out whether a newer one *exists*, PostgreSQL would
read the whole table, because it does not know how few there are.
"""
_NEWS = RawStatement(
    sqlite=f"SELECT 0, {_NEWEST}",
    postgresql=f"SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint, {_NEWEST}",
    writes=False,
)
_NO_END = sa.literal_column(str(2**63 - 1), sa.BigInteger)
_HORIZON = sa.bindparam("b_horizon", type_=sa.BigInteger)


def _fresh(table: sa.Table) -> sa.ColumnElement[bool]:
    """Rows since then. With an upper bound too, PostgreSQL expects few rows and uses the index; without it, it expects
    a third of the table.
    """
    return (table.c.changed >= _HORIZON) & (table.c.changed < _NO_END)


class _ProviderQueries:
    """Some providers, and all that belongs to them."""

    def __init__(self, these: sa.ColumnElement[bool]) -> None:
        def of(table: sa.Table) -> sa.Executable:
            joined = table.join(providers, table.c.provider == providers.c.uuid)
            return sa.select(*_columns(table)).select_from(joined).where(these)

        self.providers = sa.select(*providers.c).where(these)
        self.whole, self.traits = of(inventories), of(provider_traits)
        self.aggregates, self.hosts = of(provider_aggregates), of(hosts)


_SINCE = _ProviderQueries(_fresh(providers))
_AMONG = _ProviderQueries(providers.c.uuid.in_(sa.bindparam("b_providers", expanding=True)))
_VERSIONS = sa.select(providers.c.uuid, providers.c.version).where(_fresh(providers))
_INVENTORIES = sa.select(
    *(inventories.c[name].label("resource" if name == "class" else name) for name in _CHANGED_STOCK)
).where(_fresh(inventories))
_GONE = sa.select(gone.c.provider).where(_fresh(gone))
_GROUP_HOSTS = sa.select(*group_hosts.c).where(_fresh(group_hosts))
_GROUP_HOMES = sa.select(*group_homes.c).where(_fresh(group_homes))


def _probe(tx: Tx, horizon: int) -> tuple[int, tuple[bool, bool, bool, bool]]:
    """The next horizon, and which kinds of rows have changes."""
    following = 0
    if tx.dialect == "sqlite":
        at = tx.found(_AT, {})
        following = (at[0][0] if at else 0) + 1
        if following <= horizon:
            return following, (False, False, False, False)
    xmin, *news = tx.found(_NEWS, {"horizon": horizon})[0]
    return following or xmin, (bool(news[0]), bool(news[1]), bool(news[2]), bool(news[3]))
