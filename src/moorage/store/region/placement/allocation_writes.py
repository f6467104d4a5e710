"""Sets the allocations of many consumers at once: the statements behind `PUT /allocations` (P10, RULES §5, §17).

    rows = lock_rows(tx, consumers, named, keys)   # consumers, allocations, inventories: locked until the commit
    ... each request in turn is checked against these numbers ...
    result = write(tx, plan, rows)                 # counters, generations, consumers, allocations

On SQLite two statements read and five write; on PostgreSQL three in all, and one more when a consumer has allocations
already; their number does not depend on the number of requests. With the rows locked the check is plain arithmetic, and
the result is the same as with one transaction per request in that order. Locks are taken in a fixed order: consumers,
providers, inventories. A consumer that does not exist cannot be locked, so the insert of its row tells which
transaction was first; the other reads everything again.

On SQLite one statement runs for each row: this costs half of a statement that unpacks rows from JSON.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from moorage.model.errors import Internal
from moorage.model.ids import ProviderId
from moorage.model.verdict import InventoryState
from moorage.sql import RawStatement, Tx
from moorage.store.region.placement.claim_statements import Key
from moorage.store.region.placement.provider_statements import now_s
from moorage.store.region.placement.tables import bump

NOT_SEEN = -1, -1


class Consumer(NamedTuple):
    """An existing consumer, locked."""

    uuid: str
    generation: int
    type: str


class NewAllocations(NamedTuple):
    """The new allocations of a consumer; `before` is None for a new consumer."""

    consumer: str
    project: str
    user: str
    type: str
    before: Consumer | None
    amounts: Mapping[Key, int]


class LockedInventory(NamedTuple):
    """One inventory while its row is locked."""

    used: int
    cap: int
    min_unit: int
    max_unit: int
    step: int
    version: int


@dataclass
class LockedRows:
    """The locked rows."""

    consumers: dict[str, Consumer]
    held: dict[str, dict[Key, int]]
    providers: dict[str, tuple[int, int]]
    """Of the named providers, those that exist: generation and version."""
    levels: dict[Key, LockedInventory]


@dataclass
class WritePlan:
    """What to write, collected from all accepted requests."""

    change: dict[Key, int] = field(default_factory=dict[Key, int])
    advanced: dict[str, int] = field(default_factory=dict[str, int])
    """Provider → the number to add to its generation."""
    holders: list[NewAllocations] = field(default_factory=list[NewAllocations])
    dropped: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    """(consumer, provider, class) of allocations that are removed and not written again."""


class GenerationChange(NamedTuple):
    """A provider's generation after the transaction, and the versions of its row after and before it."""

    provider: ProviderId
    generation: int
    version: int
    before: int
    updated_at: int


class WriteResult(NamedTuple):
    """The numbers after the transaction, for the cache."""

    rows: Sequence[InventoryState] = ()
    moved: Sequence[GenerationChange] = ()


def _array(name: str, kind: str = "text") -> str:
    """The planner cannot count the elements of an array behind a SELECT, so it always uses the index."""
    return f"(SELECT :{name}::{kind}[])"


_CONSUMERS = RawStatement(
    sqlite="""SELECT c.uuid, c.generation, c.type, a.provider, a.class, a.used
FROM json_each(:consumers) AS w CROSS JOIN consumers AS c ON c.uuid = w.value
LEFT JOIN allocations AS a ON a.consumer = c.uuid""",
    postgresql=f"""WITH mine AS (
    SELECT c.uuid, c.generation, c.type FROM unnest({_array("consumers")}) AS w(uuid) JOIN consumers AS c ON c.uuid = w.uuid
    ORDER BY c.uuid FOR UPDATE OF c
), locked AS (
    SELECT p.uuid, p.generation, p.version FROM unnest({_array("providers")}) AS w(uuid) JOIN providers AS p ON p.uuid = w.uuid
    ORDER BY p.uuid FOR NO KEY UPDATE OF p
)
SELECT uuid, generation, type, NULL FROM mine UNION ALL SELECT uuid, generation, NULL, version FROM locked""",
    writes=False,
)
_HELD = RawStatement(
    postgresql=f"""SELECT a.consumer, a.provider, a.class, a.used
FROM unnest({_array("consumers")}) AS w(uuid) JOIN allocations AS a ON a.consumer = w.uuid""",
    writes=False,
)
_LEVELS = RawStatement(
    sqlite="""SELECT p.uuid, p.generation, p.version, i.class, i.used, i.cap, i.min_unit, i.max_unit, i.step, i.version
FROM json_each(:providers) AS w CROSS JOIN providers AS p ON p.uuid = w.value
LEFT JOIN inventories AS i ON i.provider = p.uuid""",
    postgresql=f"""SELECT i.provider, i.class, i.used, i.cap, i.min_unit, i.max_unit, i.step, i.version
FROM unnest({_array("providers")}, {_array("classes")}) AS w(provider, class)
JOIN inventories AS i ON i.provider = w.provider AND i.class = w.class
ORDER BY i.provider, i.class FOR UPDATE OF i""",
    writes=False,
)


def lock_rows(tx: Tx, consumers: Collection[str], named: Collection[str], keys: Iterable[Key]) -> LockedRows:
    """Lock and read the existing ones of these consumers and providers, all allocations of the consumers, and the
    inventories of those and of `keys`.
    """
    if tx.dialect == "postgresql":
        return _lock_rows_postgresql(tx, consumers, named, keys)
    sight = LockedRows({}, {}, {}, {})
    for uuid, generation, kind, provider, resource, used in tx.found(_CONSUMERS, {"consumers": _json(consumers)}):
        if uuid not in sight.consumers:
            sight.consumers[uuid] = Consumer(uuid, generation, kind)
            sight.held[uuid] = {}
        if provider is not None:
            sight.held[uuid][ProviderId(provider), resource] = used
    wanted = set(named)
    for held in sight.held.values():
        wanted.update(provider for provider, _ in held)
    for row in tx.found(_LEVELS, {"providers": _json(wanted)}):
        sight.providers[row[0]] = row[1], row[2]
        if row[3] is not None:
            sight.levels[ProviderId(row[0]), row[3]] = LockedInventory(*row[4:])
    return sight


def _lock_rows_postgresql(
    tx: Tx, consumers: Collection[str], named: Collection[str], keys: Iterable[Key]
) -> LockedRows:
    sight = LockedRows({}, {}, {}, {})
    parameters = {"consumers": sorted(consumers), "providers": sorted(named)}
    for uuid, generation, kind, version in tx.found(_CONSUMERS, parameters):
        if kind is None:
            sight.providers[uuid] = generation, version
        else:
            sight.consumers[uuid] = Consumer(uuid, generation, kind)
            sight.held[uuid] = {}
    if sight.consumers:
        for consumer, provider, resource, used in tx.found(_HELD, {"consumers": sorted(sight.consumers)}):
            sight.held[consumer][ProviderId(provider), resource] = used
    wanted = sorted({*keys, *(key for held in sight.held.values() for key in held)})
    rows = tx.found(_LEVELS, {"providers": [key[0] for key in wanted], "classes": [key[1] for key in wanted]})
    sight.levels.update(((ProviderId(row[0]), row[1]), LockedInventory(*row[2:])) for row in rows)
    return sight


_COUNT = RawStatement(
    sqlite="""UPDATE inventories SET used = ?, changed = ?, version = ?
WHERE provider = ? AND class = ? AND used = ?""",
    writes=True,
)
_ADVANCE = RawStatement(
    sqlite="""UPDATE providers SET generation = generation + ?, changed = ?, version = ?, updated_at = ?
WHERE uuid = ?""",
    writes=True,
)
_OWN = RawStatement(
    sqlite="""INSERT INTO consumers (uuid, generation, project, user_id, type, attempt, updated_at) VALUES (?, 1, ?, ?, ?, 0, ?)
ON CONFLICT (uuid) DO UPDATE SET generation = consumers.generation + 1, project = excluded.project, user_id = excluded.user_id,
    type = excluded.type, updated_at = excluded.updated_at""",
    writes=True,
)
_DROP = RawStatement(sqlite="DELETE FROM allocations WHERE consumer = ? AND provider = ? AND class = ?", writes=True)
_HOLD = RawStatement(
    sqlite="""INSERT INTO allocations (consumer, provider, class, used) VALUES (?, ?, ?, ?)
ON CONFLICT (consumer, provider, class) DO UPDATE SET used = excluded.used""",
    writes=True,
)
_WRITE = RawStatement(
    postgresql=f"""WITH counted AS (
    UPDATE inventories AS i
    SET used = i.used + w.change, changed = pg_current_xact_id()::text::bigint, version = nextval('placement_versions')
    FROM unnest({_array("i_provider")}, {_array("i_class")}, {_array("i_change", "bigint")}) AS w(provider, class, change)
    WHERE i.provider = w.provider AND i.class = w.class AND (w.change < 0 OR i.used + w.change <= i.cap)
    RETURNING i.provider, i.class, i.used, i.cap, i.version
), moved AS (
    UPDATE providers AS p
    SET generation = p.generation + w.steps, changed = pg_current_xact_id()::text::bigint,
        version = nextval('placement_versions'), updated_at = :now
    FROM unnest({_array("p_uuid")}, {_array("p_steps", "bigint")}) AS w(uuid, steps)
    WHERE p.uuid = w.uuid
    RETURNING p.uuid, p.generation, p.version
), owned AS (
    INSERT INTO consumers (uuid, generation, project, user_id, type, attempt, updated_at)
    SELECT c.uuid, c.generation, c.project, c.user_id, c.type, 0, :now
    FROM unnest({_array("c_uuid")}, {_array("c_generation", "bigint")}, {_array("c_project")}, {_array("c_user")},
        {_array("c_type")}) AS c(uuid, generation, project, user_id, type)
    ON CONFLICT (uuid) DO UPDATE SET generation = excluded.generation, project = excluded.project,
        user_id = excluded.user_id, type = excluded.type, updated_at = excluded.updated_at
        WHERE consumers.generation = excluded.generation - 1
    RETURNING uuid
), dropped AS (
    DELETE FROM allocations AS a
    USING unnest({_array("d_consumer")}, {_array("d_provider")}, {_array("d_class")}) AS w(consumer, provider, class)
    WHERE a.consumer = w.consumer AND a.provider = w.provider AND a.class = w.class
), held AS (
    INSERT INTO allocations (consumer, provider, class, used)
    SELECT * FROM unnest({_array("a_consumer")}, {_array("a_provider")}, {_array("a_class")}, {_array("a_used", "bigint")})
    ON CONFLICT (consumer, provider, class) DO UPDATE SET used = excluded.used
)
SELECT provider, class, used, cap, version FROM counted
UNION ALL SELECT uuid, NULL, generation, NULL, version FROM moved
UNION ALL SELECT NULL, NULL, count(*), NULL, NULL FROM owned""",
    writes=True,
)


def write(tx: Tx, plan: WritePlan, sight: LockedRows) -> WriteResult:
    """Write the whole plan; return the numbers after it. Raises Internal when fewer rows changed than were checked."""
    changes = sorted((*key, change) for key, change in plan.change.items() if change)
    moved = sorted(plan.advanced.items())
    holders = sorted((each for each in plan.holders if each.amounts), key=lambda each: each.consumer)
    held = [(each.consumer, *key, amount) for each in holders for key, amount in each.amounts.items()]
    if tx.dialect == "postgresql":
        return _write_postgresql(tx, sight, changes, moved, holders, plan.dropped, held)
    now, at = now_s(), bump(tx)
    rows: list[InventoryState] = []
    for provider, resource, change in changes:
        level = sight.levels[provider, resource]
        rows.append(InventoryState(provider, resource, change, level.used + change, level.cap, at))
    counted = (
        tx.each(_COUNT, [(r.used, at, at, r.provider, r.resource, r.used - r.amount) for r in rows]) if rows else 0
    )
    advanced = tx.each(_ADVANCE, [(steps, at, at, now, uuid) for uuid, steps in moved]) if moved else 0
    if counted != len(rows) or advanced != len(moved):
        raise Internal(
            "allocations were checked wrongly", private=f"{counted} of {len(rows)}, {advanced} of {len(moved)}"
        )
    if plan.dropped:
        tx.each(_DROP, plan.dropped)
    if holders:
        tx.each(_OWN, [(each.consumer, each.project, each.user, each.type, now) for each in holders])
        tx.each(_HOLD, held)
    generations: list[GenerationChange] = []
    for uuid, steps in moved:
        generation, before = sight.providers[uuid]
        generations.append(GenerationChange(ProviderId(uuid), generation + steps, at, before, now))
    return WriteResult(rows, generations)


def _write_postgresql(
    tx: Tx,
    sight: LockedRows,
    changes: Sequence[tuple[ProviderId, str, int]],
    moved: Sequence[tuple[str, int]],
    holders: Sequence[NewAllocations],
    dropped: Sequence[tuple[str, str, str]],
    held: Sequence[tuple[str, str, str, int]],
) -> WriteResult:
    now = now_s()
    owners = [
        (each.consumer, 1 if each.before is None else each.before.generation + 1, each.project, each.user, each.type)
        for each in holders
    ]
    columns = {
        "now": now,
        **_columns(("i_provider", "i_class", "i_change"), changes),
        **_columns(("p_uuid", "p_steps"), moved),
        **_columns(("c_uuid", "c_generation", "c_project", "c_user", "c_type"), owners),
        **_columns(("d_consumer", "d_provider", "d_class"), sorted(dropped)),
        **_columns(("a_consumer", "a_provider", "a_class", "a_used"), held),
    }
    change = {(provider, resource): amount for provider, resource, amount in changes}
    rows: list[InventoryState] = []
    steps: list[GenerationChange] = []
    owned = 0
    for provider, resource, number, cap, version in tx.found(_WRITE, columns):
        if provider is None:
            owned = number
        elif resource is None:
            before = sight.providers.get(provider, NOT_SEEN)[1]
            steps.append(GenerationChange(ProviderId(provider), number, version, before, now))
        else:
            rows.append(InventoryState(provider, resource, change[provider, resource], number, cap, version))
    if owned != len(holders):
        tx.lost()
    if len(rows) != len(changes) or len(steps) != len(moved):
        raise Internal("allocations were checked wrongly", private=f"{len(rows)} of {len(changes)} rows taken")
    return WriteResult(rows, steps)


def _columns(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> dict[str, list[Any]]:
    columns = zip(*rows, strict=True) if rows else ((),) * len(names)
    return {name: list(column) for name, column in zip(names, columns, strict=True)}


def _json(names: Iterable[str]) -> str:
    return msgspec.json.encode(list(names)).decode()
