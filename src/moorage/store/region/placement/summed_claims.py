"""Claims of many new consumers by their sums, without reading anything first: all fit, or nothing is kept (P10).

Nearly always they all fit, and nobody among them holds anything yet.  Then it is enough to write consumers and allocations and
to add the sums to the counters, each guarded.  One counter that does not come back means that somebody was short, and a consumer
that was there already breaks its key: the caller does all of it again with `batches`, which judges claim by claim.

What is sent is kept small, because reading it was a third of PostgreSQL's work: claims of one kind name their kind, and
what a kind is comes once.  The counters come last, so that their locks are held for the shortest time, and in one order: rows are
found by key alone (`IN_ORDER`), never by a walk through the table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from moorage.model.ids import ProviderId
from moorage.sql import PreparedStatement, Tx
from moorage.store.region.placement import batched_claims
from moorage.store.region.placement.batched_claims import LockedInventory, column, texts
from moorage.store.region.placement.claims import Key, Owner
from moorage.store.region.placement.tables import Stamp


class Part(NamedTuple):
    """What a claim takes of one class of one provider: in all, and its portions' least, most and common divisor."""

    resource: str
    amount: int
    least: int
    most: int
    unit: int


Kind = tuple[Part, ...]
"""What a claim takes of one provider."""


@dataclass
class Sums:
    """Claims as they are gathered; `kind` once for each kind, then `own` and `take` for each claim."""

    owners: list[tuple[str, str, str | None, str]] = field(default_factory=list[Any])
    parts: list[tuple[str, str, str]] = field(default_factory=list[Any])
    kinds: dict[Kind, str] = field(default_factory=dict[Kind, str])
    versions: dict[ProviderId, int] = field(default_factory=dict[ProviderId, int])
    """At which each provider was seen by whoever chose it."""
    contradictory: bool = False
    """Two claims saw one provider at different versions, so one of them is stale."""
    _people: dict[tuple[str, str, str, int], str] = field(default_factory=dict[Any, str])
    _taken: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    """Provider → kind → how many."""

    def kind(self, kind: Kind) -> str:
        """The name of a kind."""
        return self.kinds.setdefault(kind, str(len(self.kinds)))

    def see(self, versions: Mapping[ProviderId, int]) -> None:
        """What one claim's decision knew of its providers."""
        for uuid, version in versions.items():
            self.contradictory |= self.versions.setdefault(uuid, version) != version

    def own(self, owner: Owner, host: str) -> None:
        who = owner.project, owner.user, owner.type, owner.attempt
        people = self._people.get(who)
        if people is None:
            people = self._people[who] = str(len(self._people))
        self.owners.append((owner.consumer, host, owner.operation, people))

    def take(self, consumer: str, provider: str, kind: str) -> None:
        self.parts.append((consumer, provider, kind))
        taken = self._taken.setdefault(provider, {})
        taken[kind] = taken.get(kind, 0) + 1

    def people(self) -> list[tuple[Any, ...]]:
        return [(name, *who) for who, name in self._people.items()]

    def changes(self) -> tuple[list[tuple[str, str]], dict[str, Kind]]:
        """(provider, name of its change) in order, and the changes by name: alike providers share one."""
        by_name = {name: kind for kind, name in self.kinds.items()}
        names: dict[tuple[tuple[str, int], ...], str] = {}
        changes: dict[str, Kind] = {}
        found: list[tuple[str, str]] = []
        for provider, taken in sorted(self._taken.items()):
            signature = tuple(sorted(taken.items()))
            name = names.get(signature)
            if name is None:
                name = names[signature] = str(len(names))
                changes[name] = _sum([(by_name[kind], count) for kind, count in signature])
            found.append((provider, name))
        return found, changes


def _sum(taken: Sequence[tuple[Kind, int]]) -> Kind:
    total: dict[str, Part] = {}
    for kind, count in taken:
        for part in kind:
            was = total.get(part.resource)
            total[part.resource] = Part(
                part.resource,
                (was.amount if was else 0) + part.amount * count,
                min(was.least, part.least) if was else part.least,
                max(was.most, part.most) if was else part.most,
                gcd(was.unit, part.unit) if was else part.unit,
            )
    return tuple(total.values())


IN_ORDER = sa.text("SELECT set_config('enable_seqscan', 'off', true)")
"""Until the transaction ends. In a small table the planner prefers to walk through it, and locks rows as it meets them."""

_OWNERS = ("o_uuid", "o_host", "o_operation", "o_people")
_PEOPLE = ("q_people", "q_project", "q_user_id", "q_type", "q_attempt")
_PARTS = ("a_consumer", "a_provider", "a_kind")
_KINDS = ("k_kind", "k_class", "k_used")
_SUMS = ("w_provider", "w_kind")
_SEEN = ("s_uuid", "s_version")
_CHANGES = ("c_kind", "c_class", "c_change", "c_least", "c_most", "c_unit")
_TYPES = {"q_attempt": "int"} | dict.fromkeys(
    ("k_used", "c_change", "c_least", "c_most", "c_unit", "s_version"), "bigint"
)


def _unnested(names: Sequence[str]) -> str:
    columns = ", ".join(column(name, _TYPES.get(name, "")) for name in names)
    return f"unnest({columns}) AS {names[0][0]}({', '.join(name[2:] for name in names)})"


_TAKE_POSTGRESQL = sa.text(
    f"""WITH owned AS (
    INSERT INTO consumers (uuid, generation, project, user_id, type, host, operation, attempt, updated_at)
    SELECT o.uuid, 1, q.project, q.user_id, q.type, o.host, o.operation, q.attempt, :now
    FROM {_unnested(_OWNERS)}
    JOIN {_unnested(_PEOPLE)} ON q.people = o.people
    RETURNING 1
), allocated AS (
    INSERT INTO allocations (consumer, provider, class, used)
    SELECT a.consumer, a.provider, k.class, k.used
    FROM {_unnested(_PARTS)}
    JOIN {_unnested(_KINDS)} ON k.kind = a.kind
    RETURNING 1
), seen AS (
    SELECT p.uuid FROM {_unnested(_SEEN)}
    JOIN providers AS p ON p.uuid = s.uuid AND p.version = s.version
    ORDER BY p.uuid FOR NO KEY UPDATE OF p
)
UPDATE inventories AS i
SET used = i.used + s.change, changed = pg_current_xact_id()::text::bigint, version = nextval('placement_versions')
FROM (
    SELECT w.provider, c.class, c.change, c.least, c.most, c.unit
    FROM {_unnested(_SUMS)}
    JOIN {_unnested(_CHANGES)} ON c.kind = w.kind
    ORDER BY w.provider, c.class
) AS s
WHERE (SELECT count(*) FROM owned) + (SELECT count(*) FROM allocated) > 0
    AND (SELECT count(*) FROM seen) = :seen
    AND i.provider = s.provider AND i.class = s.class AND i.used + s.change <= i.cap
    AND s.least >= i.min_unit AND s.most <= i.max_unit AND s.unit % i.step = 0
RETURNING i.provider, i.class, i.used, i.cap, i.version"""
).bindparams(
    *(sa.bindparam(n, type_=sa.Text) for n in (*_OWNERS, *_PEOPLE, *_PARTS, *_KINDS, *_SUMS, *_CHANGES, *_SEEN)),
    *(sa.bindparam(n, type_=sa.BigInteger) for n in ("now", "seen")),
)

_COUNT_SQLITE = PreparedStatement(
    sa.text(
        """UPDATE inventories AS i
SET used = i.used + (w.value ->> 2), changed = :stamp, version = :stamp
FROM json_each(:want) AS w
WHERE i.provider = w.value ->> 0 AND i.class = w.value ->> 1 AND i.used + (w.value ->> 2) <= i.cap
    AND w.value ->> 3 >= i.min_unit AND w.value ->> 4 <= i.max_unit AND (w.value ->> 5) % i.step = 0
    AND (SELECT count(*) FROM json_each(:versions) AS s
        JOIN providers AS p ON p.uuid = s.value ->> 0 AND p.version = s.value ->> 1) = :seen
RETURNING provider, class, used, cap, version"""
    )
)


def take(tx: Tx, sums: Sums, at: Stamp, now: int) -> dict[Key, LockedInventory] | None:
    """The counters afterwards.

    None: not all of it fits, somebody holds something already, or a provider was changed since it was chosen; take everything back.
    """
    if sums.contradictory:
        return None
    wanted, changes = sums.changes()
    count = sum(len(changes[name]) for _, name in wanted)
    if not count:
        return None
    found = (
        _take_postgresql(tx, sums, wanted, changes, now)
        if tx.dialect == "postgresql"
        else _take_sqlite(tx, sums, wanted, changes, at, now)
    )
    if found is None or len(found) != count:
        return None
    return {(p, c): LockedInventory(used, cap, 0, 0, 0, version) for p, c, used, cap, version in found}


def _take_postgresql(
    tx: Tx, sums: Sums, wanted: Sequence[tuple[str, str]], changes: Mapping[str, Kind], now: int
) -> Sequence[Any] | None:
    tx.run(IN_ORDER)
    kinds = [(name, part.resource, part.amount) for kind, name in sums.kinds.items() for part in kind]
    parameters = (
        texts(_OWNERS, sums.owners)
        | texts(_PEOPLE, sums.people())
        | texts(_PARTS, sums.parts)
        | texts(_KINDS, kinds)
        | texts(_SUMS, wanted)
        | texts(_CHANGES, [(name, *part) for name, kind in changes.items() for part in kind])
        | _seen(sums)
    )
    try:
        return tx.rows(_TAKE_POSTGRESQL, parameters | {"now": now})
    except IntegrityError:  # one of them is there already
        return None


def _seen(sums: Sums) -> dict[str, Any]:
    if not sums.versions:
        return {"s_uuid": None, "s_version": None, "seen": 0}
    return texts(_SEEN, sorted(sums.versions.items())) | {"seen": len(sums.versions)}


def _take_sqlite(
    tx: Tx, sums: Sums, wanted: Sequence[tuple[str, str]], changes: Mapping[str, Kind], at: Stamp, now: int
) -> Sequence[Any]:
    rows = [(provider, *part) for provider, name in wanted for part in changes[name]]
    seen = {"versions": _json(list(sums.versions.items())), "seen": len(sums.versions)}
    found = tx.rows(_COUNT_SQLITE, {"want": _json(rows), "stamp": at.changed} | seen)
    if len(found) == len(rows):
        by_name = {name: kind for kind, name in sums.kinds.items()}
        people = {name: who for name, *who in sums.people()}
        owners = [(uuid, *_who(people[name], host, operation)) for uuid, host, operation, name in sums.owners]
        tx.run(batched_claims.OWN_SQLITE, {"owners": _json(owners), "now": now})
        parts = [
            (consumer, p, part.resource, part.amount) for consumer, p, kind in sums.parts for part in by_name[kind]
        ]
        tx.run(batched_claims.ALLOCATE_SQLITE, {"rows": _json(parts)})
    return found


def _who(who: Sequence[Any], host: str, operation: str | None) -> tuple[Any, ...]:
    """In the order of `batches.OWN_SQLITE`."""
    project, user, kind, attempt = who
    return project, user, kind, host, operation, attempt, None, None


def _json(rows: Sequence[tuple[Any, ...]]) -> str:
    return msgspec.json.encode(rows).decode()
