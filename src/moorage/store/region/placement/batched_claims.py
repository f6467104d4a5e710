"""Claims of many consumers, judged one by one: two statements on PostgreSQL, five on SQLite, however many (P10, RULES §5, §17).

    stocks = lock(tx, keys)                 # every row concerned, in one order; nobody moves them until we commit
    ... each claim in turn is judged on these numbers, by itself ...
    rows = take(tx, accepted, at)           # counters by the sums, consumers, allocations

One statement with running sums would not do: the sum in front of a claim must leave out those that were refused, and whether
they were may hang on another of their rows.  With the rows locked the judgement is plain arithmetic, in the order in which the
claims came, and what comes out is what one transaction per claim would have brought in that order.  The counters are guarded
all the same: a row that does not come back means that the arithmetic was wrong, and nothing is kept.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa

from moorage.model.errors import Internal
from moorage.sql import PreparedStatement, Tx
from moorage.store.region.placement.claims import Key, Owner
from moorage.store.region.placement.tables import Stamp

CLAIMS_PER_BATCH_MAX = 1024


class LockedInventory(NamedTuple):
    """One inventory as it is while we hold its lock."""

    used: int
    cap: int
    min_unit: int
    max_unit: int
    step: int
    version: int


class Accepted(NamedTuple):
    """A claim that was judged to fit."""

    owner: Owner
    amounts: Mapping[Key, int]


_SEPARATOR = "\n"
_NULL = "\\N"
"""As COPY writes it."""


def column(name: str, kind: str = "") -> str:
    """A column sent as one text: a driver that looks at every element of an array costs more than the claim.

    Behind a SELECT the planner cannot count the elements, so it always looks the rows up by key, however many they are.
    """
    return f"(SELECT string_to_array(:{name}, E'\\n', '{_NULL}'){kind and f'::{kind}[]'})"


_LOCK_POSTGRESQL = sa.text(
    f"""SELECT i.provider, i.class, i.used, i.cap, i.min_unit, i.max_unit, i.step, i.version
FROM unnest({column("provider")}, {column("class")}) AS w(provider, class)
JOIN inventories AS i ON i.provider = w.provider AND i.class = w.class
ORDER BY i.provider, i.class FOR UPDATE OF i"""
).bindparams(*(sa.bindparam(name, type_=sa.Text) for name in ("provider", "class")))

_LOCK_SQLITE = PreparedStatement(
    sa.text(
        """SELECT i.provider, i.class, i.used, i.cap, i.min_unit, i.max_unit, i.step, i.version
FROM json_each(:want) AS w CROSS JOIN inventories AS i ON i.provider = w.value ->> 0 AND i.class = w.value ->> 1"""
    )
)

_AGAIN = """ON CONFLICT (uuid) DO UPDATE SET generation = consumers.generation + 1, project = excluded.project,
    user_id = excluded.user_id, type = excluded.type, host = excluded.host, operation = excluded.operation,
    attempt = excluded.attempt, server_group = excluded.server_group, group_policy = excluded.group_policy,
    updated_at = excluded.updated_at"""
_ADDED = "ON CONFLICT (consumer, provider, class) DO UPDATE SET used = allocations.used + excluded.used"
_OWNED = "uuid, generation, project, user_id, type, host, operation, attempt, server_group, group_policy, updated_at"

_OWNER_COLUMNS = (
    *("o_uuid", "o_project", "o_user_id", "o_type", "o_host"),
    *("o_operation", "o_attempt", "o_server_group", "o_group_policy"),
)
_ROW_COLUMNS = ("a_consumer", "a_provider", "a_class", "a_used")
_SUM_COLUMNS = ("w_provider", "w_class", "w_change")
_KINDS = {"o_attempt": "int", "a_used": "bigint", "w_change": "bigint"}


def _unnested(names: Sequence[str]) -> str:
    columns = (column(name, _KINDS.get(name, "")) for name in names)
    return "unnest(\n        " + ",\n        ".join(columns) + ")"


_TAKE_POSTGRESQL = sa.text(
    f"""WITH owned AS (
    INSERT INTO consumers ({_OWNED})
    SELECT o.uuid, 1, o.project, o.user_id, o.type, o.host, o.operation, o.attempt, o.server_group, o.group_policy, :now
    FROM {_unnested(_OWNER_COLUMNS)}
        AS o(uuid, project, user_id, type, host, operation, attempt, server_group, group_policy)
    {_AGAIN}
), allocated AS (
    INSERT INTO allocations (consumer, provider, class, used)
    SELECT * FROM {_unnested(_ROW_COLUMNS)}
    {_ADDED}
)
UPDATE inventories AS i
SET used = i.used + w.change, changed = pg_current_xact_id()::text::bigint, version = nextval('placement_versions')
FROM {_unnested(_SUM_COLUMNS)} AS w(provider, class, change)
WHERE i.provider = w.provider AND i.class = w.class AND i.used + w.change <= i.cap
RETURNING i.provider, i.class, i.used, i.cap, i.version"""
).bindparams(
    *(sa.bindparam(name, type_=sa.Text) for name in (*_OWNER_COLUMNS, *_ROW_COLUMNS, *_SUM_COLUMNS)),
    sa.bindparam("now", type_=sa.BigInteger),
)

_COUNT_SQLITE = PreparedStatement(
    sa.text(
        """UPDATE inventories AS i
SET used = i.used + (w.value ->> 2), changed = :stamp, version = :stamp
FROM json_each(:want) AS w
WHERE i.provider = w.value ->> 0 AND i.class = w.value ->> 1 AND i.used + (w.value ->> 2) <= i.cap
RETURNING provider, class, used, cap, version"""
    )
)
OWN_SQLITE = PreparedStatement(
    sa.text(
        f"""INSERT INTO consumers ({_OWNED})
SELECT value ->> 0, 1, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
    value ->> 8, :now FROM json_each(:owners) WHERE true
{_AGAIN}"""
    )
)
ALLOCATE_SQLITE = PreparedStatement(
    sa.text(
        f"""INSERT INTO allocations (consumer, provider, class, used)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3 FROM json_each(:rows) WHERE true
{_ADDED}"""
    )
)


def lock(tx: Tx, keys: Iterable[Key]) -> dict[Key, LockedInventory]:
    """The rows as they are, locked in (provider, class) order, so that two batches cannot wait for each other."""
    ordered = sorted(set(keys))
    if not ordered:
        return {}
    found = (
        tx.rows(_LOCK_POSTGRESQL, texts(("provider", "class"), ordered))
        if tx.dialect == "postgresql"
        else tx.rows(_LOCK_SQLITE, {"want": _json(ordered)})
    )
    return {(row[0], row[1]): LockedInventory(*row[2:]) for row in found}


def take(tx: Tx, accepted: Sequence[Accepted], at: Stamp, now: int) -> dict[Key, LockedInventory]:
    """Counters, consumers and allocations of claims that fit; the answer is `used`, `cap` and `version` afterwards."""
    if not accepted:
        return {}
    change: dict[Key, int] = {}
    for claim in accepted:
        for key, amount in claim.amounts.items():
            change[key] = change.get(key, 0) + amount
    sums = [(*key, amount) for key, amount in sorted(change.items()) if amount]
    owners = [_owner(claim.owner) for claim in sorted(accepted, key=lambda claim: claim.owner.consumer)]
    rows = [(claim.owner.consumer, *key, amount) for claim in accepted for key, amount in claim.amounts.items()]
    if tx.dialect == "postgresql":
        columns = texts(_OWNER_COLUMNS, owners) | texts(_ROW_COLUMNS, rows) | texts(_SUM_COLUMNS, sums)
        found = tx.rows(_TAKE_POSTGRESQL, columns | {"now": now})
    else:
        found = tx.rows(_COUNT_SQLITE, {"want": _json(sums), "stamp": at.changed})
        tx.run(OWN_SQLITE, {"owners": _json(owners), "now": now})
        tx.run(ALLOCATE_SQLITE, {"rows": _json(rows)})
    if len(found) != len(sums):
        raise Internal("a batch of claims was judged wrongly", private=f"{len(found)} of {len(sums)} rows taken")
    return {(p, c): LockedInventory(used, cap, 0, 0, 0, version) for p, c, used, cap, version in found}


def _owner(owner: Owner) -> tuple[Any, ...]:
    return (
        owner.consumer,
        owner.project,
        owner.user,
        owner.type,
        owner.host,
        owner.operation,
        owner.attempt,
        owner.server_group,
        owner.group_policy,
    )


def texts(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> dict[str, str]:
    """One text per column, an element per line."""
    found: dict[str, str] = {}
    for name, values in zip(names, zip(*rows, strict=True), strict=True):
        try:
            text = _SEPARATOR.join(values)
        except TypeError:  # numbers, or nothing
            text = _SEPARATOR.join([_NULL if each is None else str(each) for each in values])
        if text.count(_SEPARATOR) != len(rows) - 1:
            raise Internal("a name in a batch of claims has several lines", private=name)
        found[name] = text
    return found


def _json(rows: Sequence[tuple[Any, ...]]) -> str:
    return msgspec.json.encode(rows).decode()
