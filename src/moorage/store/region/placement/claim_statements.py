"""Claiming and releasing: these statements move `used`, always together with `allocations` (RULES §5).

One guarded UPDATE covers every (provider, class) row of a claim: host, NICs and segments. If it changes fewer rows than
requested, another claim was first, and the caller rolls back. "Lock the host, insert if it fits" is not enough: an
address shared by many hosts was over-committed in most trials. On PostgreSQL the rows are locked first, in (provider,
class) order, so that claims over several rows cannot deadlock; SQLite has one writer.

A claim names the version of each provider that its decision used (RULES §21). The same statement locks those rows,
before the inventories as everywhere, and takes nothing when one of them has changed: so an administrator's change holds
for every claim that commits after its answer, however old the cache was.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from moorage.model.ids import HostId, OperationId, ProviderId
from moorage.model.verdict import InventoryState
from moorage.sql import Tx
from moorage.store.region.placement.tables import Stamp, allocations, consumers, inventories

INSTANCE = "INSTANCE"
MIGRATION = "MIGRATION"

Key = tuple[ProviderId, str]
NOTHING: Mapping[ProviderId, int] = {}


class InventoryDelta(NamedTuple):
    """A change of one inventory: `change` in all, in portions between `least` and `most`, all multiples of `unit`."""

    provider: ProviderId
    resource: str
    change: int
    least: int = 0
    most: int = 0
    unit: int = 0


class Owner(NamedTuple):
    """The owner of a claim."""

    consumer: str
    project: str
    user: str
    type: str = INSTANCE
    host: HostId | None = None
    operation: str | None = None
    attempt: int = 0
    server_group: str | None = None
    group_policy: str | None = None


_GUARD = """(w.change <= 0 OR (i.used + w.change <= i.cap
        AND w.least >= i.min_unit AND w.most <= i.max_unit AND w.unit % i.step = 0))"""

_TAKE_POSTGRESQL = sa.text(
    f"""WITH want AS (
    SELECT * FROM unnest(:provider, :class, :change, :least, :most, :unit)
        AS w(provider, class, change, least, most, unit)
), seen AS (
    SELECT p.uuid FROM unnest(:s_uuid, :s_version) AS s(uuid, version)
    JOIN providers AS p ON p.uuid = s.uuid AND p.version = s.version
    ORDER BY p.uuid FOR NO KEY UPDATE OF p
), locked AS (
    SELECT i.provider, i.class FROM inventories AS i JOIN want AS w ON i.provider = w.provider AND i.class = w.class
    WHERE (SELECT count(*) FROM seen) = :seen
    ORDER BY i.provider, i.class FOR UPDATE OF i
)
UPDATE inventories AS i
SET used = i.used + w.change, changed = pg_current_xact_id()::text::bigint, version = nextval('placement_versions')
FROM want AS w JOIN locked AS l ON l.provider = w.provider AND l.class = w.class
WHERE i.provider = w.provider AND i.class = w.class
    AND {_GUARD}
RETURNING i.provider, i.class, i.used, i.cap, i.version"""
).bindparams(
    *(sa.bindparam(name, type_=ARRAY(sa.Text)) for name in ("provider", "class", "s_uuid")),
    *(sa.bindparam(name, type_=ARRAY(sa.BigInteger)) for name in ("change", "least", "most", "unit", "s_version")),
    sa.bindparam("seen", type_=sa.BigInteger),
)


@lru_cache(maxsize=64)
def _take_sqlite(count: int, checked: int = 0) -> sa.Executable:
    versions = ", ".join(f"(:sp{n}, :sv{n})" for n in range(checked))
    unchanged = f"""
    AND (SELECT count(*) FROM (VALUES {versions}) AS s JOIN providers AS p ON p.uuid = s.column1 AND p.version = s.column2) = {checked}"""
    rows = ", ".join(f"(:p{n}, :c{n}, :d{n}, :l{n}, :m{n}, :u{n})" for n in range(count))
    return sa.text(f"""WITH want(provider, class, change, least, most, unit) AS (VALUES {rows})
UPDATE inventories AS i
SET used = i.used + w.change, changed = :stamp, version = :stamp
FROM want AS w
WHERE i.provider = w.provider AND i.class = w.class
    AND {_GUARD}{unchanged if checked else ""}
RETURNING provider, class, used, cap, version""")


def take(
    tx: Tx, wants: Sequence[InventoryDelta], at: Stamp, versions: Mapping[ProviderId, int] = NOTHING
) -> list[InventoryState]:
    """Change the counters of all wants that fit, in one statement. Fewer rows than wants: another claim was first.

    Changes none when a provider of `versions` has another version, or is gone.
    """
    wants = sorted(want for want in wants if want.change)
    if not wants:
        return []
    if tx.dialect == "postgresql":
        columns = list(zip(*wants, strict=True))
        names = ("provider", "class", "change", "least", "most", "unit")
        parameters: dict[str, Any] = {name: list(c) for name, c in zip(names, columns, strict=True)}
        checked = sorted(versions.items())
        parameters |= {
            "s_uuid": [uuid for uuid, _ in checked],
            "s_version": [at for _, at in checked],
            "seen": len(checked),
        }
        rows = tx.rows(_TAKE_POSTGRESQL, parameters)
    else:
        parameters = {"stamp": at.changed}
        for n, want in enumerate(wants):
            parameters.update(zip((f"p{n}", f"c{n}", f"d{n}", f"l{n}", f"m{n}", f"u{n}"), want, strict=True))
        for n, (uuid, version) in enumerate(versions.items()):
            parameters |= {f"sp{n}": uuid, f"sv{n}": version}
        rows = tx.rows(_take_sqlite(len(wants), len(versions)), parameters)
    amounts = {(want.provider, want.resource): want.change for want in wants}
    return [InventoryState(p, c, amounts[p, c], used, cap, version) for p, c, used, cap, version in rows]


def short(
    tx: Tx, wants: Sequence[InventoryDelta], taken: Sequence[InventoryState]
) -> tuple[list[InventoryState], list[Key]]:
    """For the wants that were not taken: the rows without capacity, with their numbers, and the keys that do not allow
    such portions.
    """
    have = {(row.provider, row.resource) for row in taken}
    missing = {(w.provider, w.resource): w for w in wants if w.change and (w.provider, w.resource) not in have}
    i = inventories.c
    levels = tx.rows(
        sa.select(i.provider, i["class"], i.used, i.cap, i.version).where(
            i.provider.in_({provider for provider, _ in missing})
        )
    )
    rows = []
    for provider, resource, used, cap, version in levels:
        want = missing.get((provider, resource))
        if want is not None and used + want.change > cap:
            rows.append(InventoryState(provider, resource, want.change, used, cap, version))
            del missing[provider, resource]
    return rows, list(missing)


_OWN = """INSERT INTO consumers
    (uuid, generation, project, user_id, type, host, operation, attempt, server_group, group_policy, updated_at)
VALUES (:uuid, 1, :project, :user_id, :type, :host, :operation, :attempt, :server_group, :group_policy, :now)
ON CONFLICT (uuid) DO UPDATE SET generation = consumers.generation + 1, project = excluded.project,
    user_id = excluded.user_id, type = excluded.type, host = excluded.host, operation = excluded.operation,
    attempt = excluded.attempt, server_group = excluded.server_group, group_policy = excluded.group_policy,
    updated_at = excluded.updated_at"""

_OWN_SQLITE = sa.text(_OWN)
_OWN_TYPES: tuple[sa.BindParameter[Any], ...] = (
    *(
        sa.bindparam(name, type_=sa.Text)
        for name in ("uuid", "project", "user_id", "type", "host", "operation", "server_group", "group_policy")
    ),
    sa.bindparam("attempt", type_=sa.Integer),
    sa.bindparam("now", type_=sa.BigInteger),
)
_WRITE_POSTGRESQL = sa.text(
    f"""WITH owner AS ({_OWN} RETURNING uuid)
INSERT INTO allocations (consumer, provider, class, used)
SELECT owner.uuid, a.provider, a.class, a.used
FROM owner, unnest(:provider, :class, :used) AS a(provider, class, used)
ON CONFLICT (consumer, provider, class) DO UPDATE SET used = allocations.used + excluded.used"""
).bindparams(
    *_OWN_TYPES,
    *(sa.bindparam(name, type_=ARRAY(sa.Text)) for name in ("provider", "class")),
    sa.bindparam("used", type_=ARRAY(sa.BigInteger)),
)


@lru_cache(maxsize=64)
def _write_sqlite(count: int) -> sa.Executable:
    rows = ", ".join(f"(:uuid, :p{n}, :c{n}, :u{n})" for n in range(count))
    return sa.text(
        f"""INSERT INTO allocations (consumer, provider, class, used) VALUES {rows}
ON CONFLICT (consumer, provider, class) DO UPDATE SET used = allocations.used + excluded.used"""
    )


def write(tx: Tx, owner: Owner, amounts: Mapping[Key, int], now: int) -> None:
    """Write the consumer and its allocations; amounts are added to what the consumer already has of the same row."""
    parameters: dict[str, Any] = {
        "uuid": owner.consumer,
        "project": owner.project,
        "user_id": owner.user,
        "type": owner.type,
        "host": owner.host,
        "operation": owner.operation,
        "attempt": owner.attempt,
        "server_group": owner.server_group,
        "group_policy": owner.group_policy,
        "now": now,
    }
    ordered = sorted(amounts.items())
    if tx.dialect == "postgresql":
        parameters["provider"] = [provider for (provider, _), _ in ordered]
        parameters["class"] = [resource for (_, resource), _ in ordered]
        parameters["used"] = [amount for _, amount in ordered]
        tx.run(_WRITE_POSTGRESQL, parameters)
        return
    tx.run(_OWN_SQLITE, parameters)
    if ordered:
        values: dict[str, Any] = {"uuid": owner.consumer}
        for n, ((provider, resource), amount) in enumerate(ordered):
            values |= {f"p{n}": provider, f"c{n}": resource, f"u{n}": amount}
        tx.run(_write_sqlite(len(ordered)), values)


_A, _C = allocations.c, consumers.c
_DROP = (
    sa.delete(allocations).where(_A.consumer == sa.bindparam("consumer")).returning(_A.provider, _A["class"], _A.used)
)
_DROP_ROW = sa.delete(allocations).where(
    _A.consumer == sa.bindparam("consumer"),
    _A.provider == sa.bindparam("provider"),
    _A["class"] == sa.bindparam("class"),
)
_FORGET = sa.delete(consumers).where(_C.uuid == sa.bindparam("consumer")).returning(*_C)
_OWNER = sa.select(*_C).where(_C.uuid == sa.bindparam("consumer")).with_for_update()
_HELD = sa.select(_A.provider, _A["class"], _A.used).where(_A.consumer == sa.bindparam("consumer"))


def drop(tx: Tx, consumer: str) -> dict[Key, int]:
    """Remove the consumer's allocations and return them; the caller's next statement changes the counters."""
    rows = tx.rows(_DROP, {"consumer": consumer})
    return {(provider, resource): used for provider, resource, used in rows}


def drop_rows(tx: Tx, consumer: str, keys: Sequence[Key]) -> None:
    """Remove some of its allocations; the caller's next statement changes the counters."""
    if keys:
        rows = [{"consumer": consumer, "provider": provider, "class": resource} for provider, resource in keys]
        tx.run(_DROP_ROW, rows)


def forget(tx: Tx, consumer: str) -> Owner | None:
    """Remove the consumer's row and return it."""
    row = tx.row(_FORGET, {"consumer": consumer})
    return None if row is None else owner_of(row)


def owner(tx: Tx, consumer: str) -> Owner | None:
    """The owner, locked until the transaction ends: read it before the allocations, so that no transaction changes them
    meanwhile.
    """
    row = tx.row(_OWNER, {"consumer": consumer})
    return None if row is None else owner_of(row)


def owner_of(row: sa.Row[Any]) -> Owner:
    """The owner in a row of `consumers`."""
    return Owner(
        consumer=row.uuid,
        project=row.project,
        user=row.user_id,
        type=row.type,
        host=row.host,
        operation=row.operation,
        attempt=row.attempt,
        server_group=row.server_group,
        group_policy=row.group_policy,
    )


def held(tx: Tx, consumer: str) -> dict[Key, int]:
    """The allocations of a consumer."""
    rows = tx.rows(_HELD, {"consumer": consumer})
    return {(provider, resource): used for provider, resource, used in rows}


def held_of(tx: Tx, *resources: str) -> dict[str, dict[Key, int]]:
    """Consumer → its allocations of these resource classes; only consumers of our operations."""
    a = allocations.c
    query = (
        sa.select(a.consumer, a.provider, a["class"], a.used)
        .join(consumers, consumers.c.uuid == a.consumer)
        .where(a["class"].in_(resources), consumers.c.operation.is_not(None))
    )
    by_consumer: dict[str, dict[Key, int]] = {}
    for consumer, provider, resource, used in tx.rows(query):
        by_consumer.setdefault(consumer, {})[provider, resource] = used
    return by_consumer


def force(tx: Tx, key: Key, amount: int, at: Stamp) -> InventoryState | None:
    """Count an amount that is in use already, even beyond the capacity. Returns None when there is no such inventory."""
    i = inventories.c
    row = tx.row(
        sa.update(inventories)
        .where(i.provider == key[0], i["class"] == key[1])
        .values(used=i.used + amount, changed=at.changed, version=at.version)
        .returning(i.used, i.cap, i.version)
    )
    return None if row is None else InventoryState(*key, amount, row.used, row.cap, row.version)


_RENAME = (
    sa.update(allocations)
    .where(
        allocations.c.consumer == sa.bindparam("b_old"),
        allocations.c.provider == sa.bindparam("b_provider"),
        allocations.c["class"] == sa.bindparam("b_class"),
    )
    .values(consumer=sa.bindparam("b_new"))
)


def rename(tx: Tx, old: str, new: str, keys: Sequence[Key]) -> None:
    """Move these allocations of one consumer to another; `used` does not change."""
    for provider, resource in keys:
        tx.run(_RENAME, {"b_old": old, "b_new": new, "b_provider": provider, "b_class": resource})


def operations_consumers(tx: Tx) -> list[str]:
    """Consumers whose claim one of our operations made."""
    return [row.uuid for row in tx.rows(sa.select(consumers.c.uuid).where(consumers.c.operation.is_not(None)))]


def moves_consumers(tx: Tx) -> list[str]:
    """Consumers that are moves: they hold what a server had on its source host. Their ids are UUIDs of moves."""
    c = consumers.c
    return [row.uuid for row in tx.rows(sa.select(c.uuid).where(c.type == MIGRATION, c.operation.is_not(None)))]


def made_by(tx: Tx, uuids: Sequence[str]) -> dict[str, OperationId]:
    """Consumer → our operation that made its claim."""
    c = consumers.c
    rows = tx.rows(sa.select(c.uuid, c.operation).where(c.uuid.in_(uuids), c.operation.is_not(None)))
    return {row.uuid: OperationId(row.operation) for row in rows}


def drift(tx: Tx) -> list[tuple[ProviderId, str, int, int]]:
    """(provider, class, used, sum of allocations) wherever the two differ, for the reconciler and for tests."""
    i, a = inventories.c, allocations.c
    total = sa.func.coalesce(sa.func.sum(a.used), 0)
    query = (
        sa.select(i.provider, i["class"], i.used, sa.cast(total, sa.BigInteger))
        .select_from(inventories.outerjoin(allocations, (a.provider == i.provider) & (a["class"] == i["class"])))
        .group_by(i.provider, i["class"], i.used)
        .having(i.used != total)
    )
    return [(p, c, used, sum_) for p, c, used, sum_ in tx.rows(query)]
