"""Writes of providers: trees, inventories, traits, aggregates. Nothing here writes `used` (RULES §5)."""

import time
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa

from moorage.model.errors import Conflict
from moorage.model.ids import HostId, ProviderId
from moorage.model.resources import DISABLED_TRAIT, Inventory
from moorage.sql import Tx, insert, upsert
from moorage.store.region.placement.tables import (
    Stamp,
    allocations,
    consumers,
    functions,
    gone,
    hosts,
    inventories,
    provider_aggregates,
    provider_traits,
    providers,
    stamp_columns,
)

GONE_KEPT_S = 3600
NAMES_AT_ONCE = 1000

# # Executed for every report of a host or device, so very often.
_PROVIDER = sa.bindparam("b_provider", type_=providers.c.uuid.type)
_FIND = sa.select(*providers.c).where(providers.c.uuid == _PROVIDER)
_FIND_BY_NAME = sa.select(*providers.c).where(providers.c.name == sa.bindparam("b_name"))
_CHILDREN = sa.select(providers.c.uuid).where(providers.c.parent == _PROVIDER)
_INVENTORY = tuple(
    inventories.c[name] for name in ("class", "total", "reserved", "ratio", "min_unit", "max_unit", "step", "used")
)
_INVENTORIES = sa.select(*_INVENTORY).where(inventories.c.provider == _PROVIDER)
_TRAITS = sa.select(provider_traits.c.trait).where(provider_traits.c.provider == _PROVIDER)
_AGGREGATES = sa.select(provider_aggregates.c.aggregate).where(provider_aggregates.c.provider == _PROVIDER)
_HOST = sa.select(*hosts.c).where(hosts.c.provider == _PROVIDER)
_NODE = (
    sa.select(hosts.c.node)
    .where(hosts.c.host == sa.bindparam("b_host"), hosts.c.cell == sa.bindparam("b_cell"))
    .limit(1)
)
_HOST_COLUMNS = tuple(each.name for each in hosts.c)
_MEMBERS = sa.select(provider_aggregates.c.provider).where(
    provider_aggregates.c.aggregate == sa.bindparam("b_aggregate")
)
_NAMED_HOSTS = sa.select(hosts.c.provider).where(hosts.c.host.in_(sa.bindparam("b_names", expanding=True)))
_REMOVED = {
    column.table: (
        sa.delete(column.table).where(
            column.table.c.provider == _PROVIDER, column.in_(sa.bindparam("b_names", expanding=True))
        )
    )
    for column in (provider_traits.c.trait, provider_aggregates.c.aggregate)
}


def now_s() -> int:
    """The wall clock in seconds, for `Last-Modified` and for the removal of old rows."""
    return int(time.time())


def create(tx: Tx, uuid: str, name: str, parent: str | None, root: str, at: Stamp) -> None:
    """Insert a provider at generation 0. The caller has checked that uuid and name are free; constraints decide races."""
    tx.run(
        sa.insert(providers).values(
            uuid=uuid,
            name=name,
            parent=parent,
            root=root,
            generation=0,
            changed=at.changed,
            version=at.version,
            updated_at=now_s(),
        )
    )


def ensure_root(tx: Tx, uuid: str, name: str, at: Stamp) -> None:
    """The same for a root whose id says who it is: whoever reports it at the same moment means the same provider.

    Raises Conflict when another provider has the name.
    """
    _ensure(tx, uuid, name, None, uuid, at)


def ensure_child(tx: Tx, uuid: str, name: str, parent: str, root: str, at: Stamp) -> None:
    """Insert a provider below another one, unless it exists."""
    _ensure(tx, uuid, name, parent, root, at)


@cache
def _insert_missing(dialect: str) -> sa.Executable:
    """No index is named: the name is unique as well, and of two that write the same at once one may meet the other there first."""
    given = {each.name: sa.bindparam(f"b_{each.name}", type_=each.type) for each in providers.c}
    given |= stamp_columns(dialect)
    return insert(dialect, providers).values(given).on_conflict_do_nothing().returning(providers.c.uuid)


def _ensure(tx: Tx, uuid: str, name: str, parent: str | None, root: str, at: Stamp) -> None:
    place = {"b_uuid": uuid, "b_name": name, "b_parent": parent, "b_root": root, "b_generation": 0}
    row = {**place, **at.parameters(tx.dialect), "b_updated_at": now_s()}
    if tx.row(_insert_missing(tx.dialect), row) is None and find(tx, uuid) is None:
        raise Conflict(f"another resource provider has the name {name}")


def find(tx: Tx, uuid: str) -> sa.Row[Any] | None:
    row: sa.Row[Any] | None = tx.row(_FIND, {"b_provider": uuid})
    return row


def children(tx: Tx, uuid: str) -> set[ProviderId]:
    """The direct children of a provider."""
    return {ProviderId(row[0]) for row in tx.rows(_CHILDREN, {"b_provider": uuid})}


def find_by_name(tx: Tx, name: str) -> sa.Row[Any] | None:
    row: sa.Row[Any] | None = tx.row(_FIND_BY_NAME, {"b_name": name})
    return row


def advance(tx: Tx, uuid: str, at: Stamp, expected: int | None = None) -> int | None:
    """Raise the provider's generation and stamp it. Returns None when it is gone, or no longer at the expected
    generation.
    """
    statement = sa.update(providers).where(providers.c.uuid == uuid)
    if expected is not None:
        statement = statement.where(providers.c.generation == expected)
    generation: int | None = tx.scalar(
        statement.values(
            generation=providers.c.generation + 1, changed=at.changed, version=at.version, updated_at=now_s()
        ).returning(providers.c.generation)
    )
    return generation


def lock(tx: Tx, uuids: Collection[str]) -> dict[ProviderId, int]:
    """Lock the existing providers and return their versions. Until the commit no other transaction changes them or
    claims from them; call it before inventories are locked.
    """
    p = providers.c
    query = sa.select(p.uuid, p.version).where(p.uuid.in_(sorted(uuids))).order_by(p.uuid)
    return {ProviderId(uuid): version for uuid, version in tx.rows(query.with_for_update(key_share=True))}


def stale(tx: Tx, versions: Mapping[ProviderId, int]) -> tuple[ProviderId, ...]:
    """Those that have another version, or are gone."""
    if not versions:
        return ()
    now = lock(tx, versions)
    return tuple(sorted(uuid for uuid, version in versions.items() if now.get(uuid) != version))


def touch(tx: Tx, uuid: str, at: Stamp) -> None:
    """Stamp it without a new generation: readers must see the change, clients do not count it."""
    tx.run(sa.update(providers).where(providers.c.uuid == uuid).values(changed=at.changed, version=at.version))


def touch_hosts(tx: Tx, names: Collection[str], at: Stamp) -> None:
    """Stamp the hosts with these names, locked in a fixed order."""
    ordered = sorted(names)
    ids: list[HostId] = []
    for start in range(0, len(ordered), NAMES_AT_ONCE):
        ids += providers_named_hosts(tx, ordered[start : start + NAMES_AT_ONCE])
    ids.sort()
    for start in range(0, len(ids), NAMES_AT_ONCE):
        batch = ids[start : start + NAMES_AT_ONCE]
        lock(tx, batch)
        tx.run(sa.update(providers).where(providers.c.uuid.in_(batch)).values(changed=at.changed, version=at.version))


def inventories_of(tx: Tx, uuid: str) -> dict[str, tuple[Inventory, int]]:
    """Class → (inventory, used)."""
    rows = tx.rows(_INVENTORIES, {"b_provider": uuid})
    return {resource: (Inventory(*facts), used) for resource, *facts, used in rows}


@cache
def _put_inventory(dialect: str) -> sa.Executable:
    given = {each.name: sa.bindparam(f"b_{each.name}", type_=each.type) for each in inventories.c}
    given |= stamp_columns(dialect)
    change = [name for name in given if name not in {"provider", "class", "used"}]
    return upsert(dialect, inventories, given, key=("provider", "class"), change=change)


def put_inventory(tx: Tx, uuid: str, resource: str, inventory: Inventory, at: Stamp) -> None:
    """Write one inventory; `used` stays as it is, and may exceed the new capacity."""
    values = {
        "provider": uuid,
        "class": resource,
        "used": 0,
        "total": inventory.total,
        "reserved": inventory.reserved,
        "ratio": inventory.ratio,
        "min_unit": inventory.min_unit,
        "max_unit": inventory.max_unit,
        "step": inventory.step,
        "cap": inventory.capacity,
    }
    given = {f"b_{name}": value for name, value in values.items()}
    tx.run(_put_inventory(tx.dialect), given | at.parameters(tx.dialect))


def drop_inventories(tx: Tx, uuid: str, resources: Collection[str]) -> list[str]:
    """Delete these; return those that are in use and were kept."""
    if not resources:
        return []
    i = inventories.c
    dropped = tx.rows(
        sa.delete(inventories)
        .where(i.provider == uuid, i["class"].in_(sorted(resources)), i.used == 0)
        .returning(i["class"])
    )
    left = set(resources) - {row[0] for row in dropped}
    if not left:
        return []
    kept = tx.rows(sa.select(i["class"]).where(i.provider == uuid, i["class"].in_(sorted(left))))
    return sorted(row[0] for row in kept)


def traits_of(tx: Tx, uuid: str) -> frozenset[str]:
    rows = tx.rows(_TRAITS, {"b_provider": uuid})
    return frozenset(row[0] for row in rows)


def set_traits(tx: Tx, uuid: str, have: Collection[str], want: Collection[str]) -> None:
    _set_members(tx, provider_traits, "trait", uuid, have, want)


def aggregates_of(tx: Tx, uuid: str) -> frozenset[str]:
    rows = tx.rows(_AGGREGATES, {"b_provider": uuid})
    return frozenset(row[0] for row in rows)


def set_aggregates(tx: Tx, uuid: str, have: Collection[str], want: Collection[str]) -> None:
    _set_members(tx, provider_aggregates, "aggregate", uuid, have, want)


def _set_members(tx: Tx, table: sa.Table, column: str, uuid: str, have: Collection[str], want: Collection[str]) -> None:
    have, want = set(have), set(want)
    if removed := have - want:
        tx.run(_REMOVED[table], {"b_provider": uuid, "b_names": sorted(removed)})
    if added := want - have:
        tx.run(_add(tx.dialect, table), [{"b_provider": uuid, f"b_{column}": name} for name in sorted(added)])


@cache
def _add(dialect: str, table: sa.Table) -> sa.Executable:
    given = {each.name: sa.bindparam(f"b_{each.name}", type_=each.type) for each in table.c}
    return insert(dialect, table).values(given).on_conflict_do_nothing()


def delete(tx: Tx, uuid: str, at: Stamp) -> None:
    """Remove a provider without children, allocations or used inventory (the caller has checked this), and leave a row
    in `gone`.
    """
    lock(tx, (uuid,))
    for table in (hosts, provider_traits, provider_aggregates, functions, inventories):
        tx.run(sa.delete(table).where(table.c.provider == uuid))
    tx.run(sa.delete(providers).where(providers.c.uuid == uuid))
    bury(tx, uuid, at)


def tree_of(tx: Tx, root: str) -> list[str]:
    """All providers of a tree, children before parents: the order in which they can be deleted."""
    query = sa.select(providers.c.uuid, providers.c.parent).where(providers.c.root == root).order_by(providers.c.uuid)
    below: dict[str | None, list[str]] = {}
    for uuid, parent in tx.rows(query):
        below.setdefault(parent, []).append(uuid)
    order = list(below.get(None, ()))
    for uuid in order:  # the list grows during the loop
        order += below.get(uuid, ())
    return order[::-1]


def delete_all(tx: Tx, uuids: Sequence[str], at: Stamp) -> None:
    for uuid in uuids:
        delete(tx, uuid, at)


def bury(tx: Tx, uuid: str, at: Stamp) -> None:
    statement = insert(tx.dialect, gone).values(provider=uuid, changed=at.changed, at=now_s())
    tx.run(
        statement.on_conflict_do_update(
            index_elements=[gone.c.provider], set_={"changed": statement.excluded.changed, "at": statement.excluded.at}
        )
    )


def forget_gone(tx: Tx) -> None:
    """Remove old rows of `gone`; readers whose horizon is older load everything again."""
    tx.run(sa.delete(gone).where(gone.c.at < now_s() - GONE_KEPT_S))


def in_use(tx: Tx, uuid: str) -> bool:
    return tx.row(sa.select(allocations.c.consumer).where(allocations.c.provider == uuid).limit(1)) is not None


def consumers_at(tx: Tx, uuids: Sequence[str], limit: int) -> Sequence[tuple[str, str | None]]:
    """The consumers at any of these providers, in order, each with our operation that made the claim; None: another
    user's consumer.
    """
    c = consumers.c
    both = allocations.outerjoin(consumers, c.uuid == allocations.c.consumer)
    holders = sa.select(allocations.c.consumer, c.operation).select_from(both).where(allocations.c.provider.in_(uuids))
    return [tuple(row) for row in tx.rows(holders.distinct().order_by(allocations.c.consumer).limit(limit))]


def host_row(tx: Tx, uuid: str) -> Mapping[str, Any] | None:
    row = tx.row(_HOST, {"b_provider": uuid})
    return None if row is None else dict(zip(_HOST_COLUMNS, row, strict=True))


def node_of(tx: Tx, host: str, cell: str) -> str:
    """The node of a host of this cell; empty when there is none."""
    row = tx.row(_NODE, {"b_host": host, "b_cell": cell})
    return "" if row is None else row.node


@cache
def _put_host(dialect: str, names: tuple[str, ...]) -> sa.Executable:
    given = {name: sa.bindparam(f"b_{name}", type_=hosts.c[name].type) for name in ("provider", *names)}
    return upsert(dialect, hosts, given, key=("provider",))


def put_host(tx: Tx, uuid: str, facts: Mapping[str, Any]) -> None:
    tx.run(_put_host(tx.dialect, tuple(facts)), {"b_provider": uuid, **{f"b_{name}": facts[name] for name in facts}})


def force_down(tx: Tx, uuid: str, forced: bool, at: Stamp, version: int | None = None) -> bool:
    """Note whether an administrator has forced the host down. Returns False when there is no such host, or not at this
    version.
    """
    known = lock(tx, (uuid,)).get(ProviderId(uuid))
    if known is None or version not in (None, known):
        return False
    tx.run(sa.update(hosts).where(hosts.c.provider == uuid).values(forced_down=forced))
    touch(tx, uuid, at)
    return True


def hosts_forced_down(tx: Tx, names: Collection[str]) -> dict[str, tuple[HostId, int, bool]]:
    """Host → (its provider, version, whether it is noted as forced down)."""
    h, p = hosts.c, providers.c
    query = (
        sa.select(h.host, h.provider, p.version, h.forced_down)
        .select_from(hosts.join(providers, p.uuid == h.provider))
        .where(h.host.in_(sorted(names)[:NAMES_AT_ONCE]))
    )
    return {row[0]: (HostId(row[1]), row[2], bool(row[3])) for row in tx.rows(query)}


def hosts_disabled(tx: Tx, names: Collection[str]) -> dict[str, tuple[HostId, int, bool]]:
    """Host → (its provider, version, whether it has the trait of disabled hosts)."""
    h, p, t = hosts.c, providers.c, provider_traits.c
    query = (
        sa.select(h.host, h.provider, p.version, t.trait)
        .select_from(
            hosts.join(providers, p.uuid == h.provider).outerjoin(
                provider_traits, sa.and_(t.provider == h.provider, t.trait == DISABLED_TRAIT)
            )
        )
        .where(h.host.in_(sorted(names)[:NAMES_AT_ONCE]))
    )
    return {row[0]: (HostId(row[1]), row[2], row[3] is not None) for row in tx.rows(query)}


def host_levels(tx: Tx) -> list[tuple[str, str, int]]:
    """(host, cell, level of its agent) of every host."""
    rows = tx.rows(sa.select(hosts.c.host, hosts.c.cell, hosts.c.level).order_by(hosts.c.cell, hosts.c.host))
    return [(row[0], row[1], row[2]) for row in rows]


def providers_named_hosts(tx: Tx, names: Collection[str]) -> list[HostId]:
    """The providers of the hosts with these names."""
    if not names:
        return []
    rows = tx.rows(_NAMED_HOSTS, {"b_names": sorted(names)})
    return [HostId(row[0]) for row in rows]


def members(tx: Tx, aggregate: str) -> set[ProviderId]:
    rows = tx.rows(_MEMBERS, {"b_aggregate": aggregate})
    return {ProviderId(row[0]) for row in rows}


def hosts_of_cells(tx: Tx, cells: Collection[str]) -> list[str]:
    """Names of the hosts of some cells, as the region knows them while the cells do not answer."""
    query = sa.select(hosts.c.host).where(hosts.c.cell.in_(cells)).order_by(hosts.c.host)
    return [row.host for row in tx.rows(query)]
