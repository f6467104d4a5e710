"""Servers that wait for a host: one row for each, beside its operation, which nobody owns while it sleeps.

Falling asleep, waking and being cancelled are changes of the operation's owner in the transaction that writes the row, so that
exactly one of them happens.  A row stays until its operation ends: who is woken in vain keeps its place in the line.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Any

import msgspec
import sqlalchemy as sa

from moorage.model.ids import ConductorId, OperationId, ServerId
from moorage.sql import Tx, alone, upsert
from moorage.store.region.operations import ASLEEP, operations
from moorage.store.region.tables import region_metadata

PAGE_MAX = 1_000
KINDS_MAX = 10_000
"""Of one look; the next one has the others."""
_ASLEEP_ONLY = sa.text("woken_at IS NULL")
_NEW_ONLY = sa.text("searched = 0")

waiting_servers = sa.Table(
    "waiting_servers",
    region_metadata,
    sa.Column("operation", sa.String(36), primary_key=True),
    sa.Column("server", sa.String(36), nullable=False),
    sa.Column("project", sa.String(255), nullable=False),
    sa.Column("saga", sa.String(64), nullable=False),
    sa.Column("kind", sa.String(64), nullable=False),
    sa.Column("causes", sa.Text, nullable=False),
    sa.Column("counts", sa.Text, nullable=False),
    sa.Column("ask", sa.Text, nullable=False),
    sa.Column("came_at", sa.BigInteger, nullable=False),
    sa.Column("since", sa.BigInteger, nullable=False),
    sa.Column("until", sa.BigInteger, nullable=False),
    sa.Column("slept_at", sa.BigInteger, nullable=False),
    sa.Column("rest_until", sa.BigInteger, nullable=False),
    sa.Column("in_vain", sa.Integer, nullable=False),
    sa.Column("searched", sa.Integer, nullable=False),
    sa.Column("woken_at", sa.BigInteger),
    sa.Column("claimed", sa.Integer, nullable=False),
    sa.Index("waiting_servers_line", "kind", "came_at", sqlite_where=_ASLEEP_ONLY, postgresql_where=_ASLEEP_ONLY),
    sa.Index("waiting_servers_until", "until", sqlite_where=_ASLEEP_ONLY, postgresql_where=_ASLEEP_ONLY),
    sa.Index("waiting_servers_new", "searched", sqlite_where=_NEW_ONLY, postgresql_where=_NEW_ONLY),
    sa.Index("waiting_servers_project", "project", "came_at"),
    sa.Index("waiting_servers_server", "server"),
)
W = waiting_servers.c
_ASLEEP = W.woken_at.is_(None)


class WaitingServer(msgspec.Struct, frozen=True):
    """One row."""

    operation: OperationId
    server: ServerId
    project: str
    saga: str
    kind: str
    """Rows of one kind ask the same of the scheduler: where one finds no host, none does."""
    causes: tuple[str, ...]
    """What it lacks, in the words of metrics: `addresses`, `memory` …"""
    counts: dict[str, int]
    """Cause → how many hosts, as its owner may see them."""
    ask: bytes
    came_at: int
    """µs; its place in the line."""
    since: int
    """µs; when it first fell asleep."""
    until: int
    """µs; then it ends."""
    slept_at: int = 0
    rest_until: int = 0
    """µs; it is not searched for before: it was woken in vain often."""
    in_vain: int = 0
    """How often in a row it was woken and found no host."""
    woken_at: int | None = None
    """None: it is asleep."""
    claimed: bool = False
    """Since it was woken."""


_FALL_ASLEEP = (
    operations.update()
    .where(
        operations.c.id == sa.bindparam("b_operation"), operations.c.cancel.is_(None), operations.c.ended_at.is_(None)
    )
    .values(owner=ASLEEP)
    .returning(operations.c.id)
)


@cache
def _put(dialect: str) -> sa.Executable:
    given = {each.name: sa.bindparam(each.name, type_=each.type) for each in waiting_servers.c}
    return upsert(dialect, waiting_servers, given, key=["operation"])


def fall_asleep(tx: Tx, row: WaitingServer, *, searched: bool = False) -> bool:
    """Write the row, and that nobody owns the operation; False where it was cancelled: then it stays awake."""
    written = tx.row(_FALL_ASLEEP, {"b_operation": row.operation})
    values = {
        **{name: getattr(row, name) for name in _PLAIN},
        "causes": ",".join(row.causes),
        "counts": msgspec.json.encode(row.counts).decode(),
        "ask": row.ask.decode(),
        "searched": int(searched),
        "woken_at": None,
        "claimed": 0,
    }
    tx.run(_put(tx.dialect), values)
    return written is not None


_PLAIN = (
    "operation",
    "server",
    "project",
    "saga",
    "kind",
    "came_at",
    "since",
    "until",
    "slept_at",
    "rest_until",
    "in_vain",
)


def alone_to_count(tx: Tx) -> None:
    """Until this transaction ends nobody else counts and falls asleep."""
    alone(tx, "waiting servers")


def counted(tx: Tx, project: str | None = None) -> int:
    """How many wait, of one project or in all; those are counted too that are awake just now."""
    query = sa.select(sa.func.count()).select_from(waiting_servers)
    return int(tx.scalar(query if project is None else query.where(W.project == project)) or 0)


_IS_OPERATION = W.operation == sa.bindparam("b_operation")
_GET = sa.select(waiting_servers).where(_IS_OPERATION)
_COUNTS_OF_EARLIER = (
    sa.select(W.counts)
    .where(W.kind == sa.bindparam("b_kind"), _ASLEEP, W.came_at < sa.bindparam("b_came_at"))
    .order_by(W.came_at)
    .limit(1)
)
_CLAIMED = waiting_servers.update().where(_IS_OPERATION).values(claimed=1)
_FORGET = waiting_servers.delete().where(_IS_OPERATION)


def get(tx: Tx, operation: OperationId) -> WaitingServer | None:
    row = tx.row(_GET, {"b_operation": operation})
    return None if row is None else _of(row)


def of_server(tx: Tx, server: ServerId) -> WaitingServer | None:
    row = tx.row(sa.select(waiting_servers).where(W.server == server).limit(1))
    return None if row is None else _of(row)


def counts_of_earlier(tx: Tx, kind: str, came_at: int) -> dict[str, int] | None:
    """Why one that came earlier, asks the same and sleeps found no host; None: there is none."""
    row = tx.row(_COUNTS_OF_EARLIER, {"b_kind": kind, "b_came_at": came_at})
    return None if row is None else msgspec.json.decode(row[0], type=dict[str, int])


def claimed(tx: Tx, operation: OperationId) -> None:
    """In the commit of its claim: what was promised to it is now taken."""
    tx.run(_CLAIMED, {"b_operation": operation})


def forget(tx: Tx, operation: OperationId) -> None:
    """In the commit that ends its operation; safe where there is no row."""
    tx.run(_FORGET, {"b_operation": operation})


# ------------------------------------------------------------------------------------------------ who wakes them


class News(msgspec.Struct, frozen=True):
    """Whether there is anything to do that no event of the picture tells."""

    new: bool
    """Somebody fell asleep since the last search."""
    due: bool
    """Somebody's time is over."""
    cancelled: bool
    """Somebody was cancelled by a release that does not wake."""


_O = operations.c
_NEWS = sa.select(
    sa.exists(sa.select(W.operation).where(W.searched == sa.literal_column("0"))),
    sa.exists(sa.select(W.operation).where(W.until <= sa.bindparam("b_now", type_=sa.BigInteger), _ASLEEP)),
    sa.exists(sa.select(_O.id).where(_O.owner == ASLEEP, _O.cancel.is_not(None), _O.ended_at.is_(None))),
)


def news(tx: Tx, now_us: int) -> News:
    """One statement, of indexes that hold nothing while nothing waits."""
    row = tx.row(_NEWS, {"b_now": now_us})
    return News(*(bool(each) for each in row))


def kinds(tx: Tx, *, new: bool = False, limit: int = KINDS_MAX) -> Sequence[str]:
    """Of all that sleep, or of those that nobody has searched for since they fell asleep."""
    query = sa.select(W.kind).where(_ASLEEP if not new else W.searched == sa.literal_column("0"))
    return [row[0] for row in tx.rows(query.distinct().limit(limit))]


def were_searched(tx: Tx, kinds: Collection[str]) -> None:
    """Whoever wakes them searches for these kinds after this."""
    tx.run(
        waiting_servers.update().where(W.searched == sa.literal_column("0"), W.kind.in_(list(kinds))).values(searched=1)
    )


def line(
    tx: Tx, kinds: Collection[str] | None, now_us: int, after: tuple[int, str], limit: int
) -> Sequence[WaitingServer]:
    """Those that sleep and do not rest, in the order in which they came, from that place on; of these kinds, or of all."""
    query = (
        sa.select(waiting_servers)
        .where(_ASLEEP, W.rest_until <= now_us)
        .where(sa.or_(W.came_at > after[0], sa.and_(W.came_at == after[0], W.operation > after[1])))
        .order_by(W.came_at, W.operation)
        .limit(limit)
    )
    return [_of(row) for row in tx.rows(query if kinds is None else query.where(W.kind.in_(list(kinds))))]


def resting_until(tx: Tx, kinds: Collection[str]) -> dict[str, int]:
    """Of these kinds those with sleepers, and when the first of each is to be searched for again."""
    query = sa.select(W.kind, sa.func.min(W.rest_until)).where(W.kind.in_(list(kinds)), _ASLEEP).group_by(W.kind)
    return {row[0]: int(row[1]) for row in tx.rows(query)}


def due(tx: Tx, now_us: int, limit: int) -> Sequence[OperationId]:
    """Those whose time is over."""
    query = sa.select(W.operation).where(W.until <= now_us, _ASLEEP).order_by(W.until).limit(limit)
    return [OperationId(row[0]) for row in tx.rows(query)]


def cancelled(tx: Tx, limit: int) -> Sequence[OperationId]:
    """Those that sleep and are cancelled."""
    query = sa.select(_O.id).where(_O.owner == ASLEEP, _O.cancel.is_not(None), _O.ended_at.is_(None)).limit(limit)
    return [OperationId(row[0]) for row in tx.rows(query)]


def wake(tx: Tx, owners: Mapping[OperationId, ConductorId], now_us: int) -> Sequence[OperationId]:
    """Give sleeping operations owners; those that were asleep still. A new epoch fences who may have known them before.

    Rows of operations that have ended without them, as a restored database may have, go.
    """
    woken: list[OperationId] = []
    for owner in sorted(set(owners.values())):
        mine = [operation for operation, to in owners.items() if to == owner]
        rows = tx.rows(
            operations.update()
            .where(_O.id.in_(mine), _O.owner == ASLEEP, _O.ended_at.is_(None))
            .values(owner=owner, epoch=_O.epoch + 1)
            .returning(_O.id)
        )
        woken += [OperationId(row[0]) for row in rows]
    if woken:
        tx.run(waiting_servers.update().where(W.operation.in_(woken)).values(woken_at=now_us, claimed=0, searched=1))
    if left := owners.keys() - set(woken):
        is_open = sa.exists(sa.select(_O.id).where(_O.id == W.operation, _O.ended_at.is_(None)))
        tx.run(waiting_servers.delete().where(W.operation.in_(sorted(left)), ~is_open))
    return woken


class State(Enum):
    """Of one that was woken."""

    WOKEN = "woken"
    CLAIMED = "claimed"
    ASLEEP = "asleep"
    GONE = "gone"
    """Its operation has ended, or turned."""


def states(tx: Tx, ids: Collection[OperationId]) -> dict[OperationId, State]:
    """Those that are not there are gone."""
    rows = tx.rows(sa.select(W.operation, W.woken_at, W.claimed).where(W.operation.in_(list(ids))))
    return {
        OperationId(row[0]): State.ASLEEP if row[1] is None else State.CLAIMED if row[2] else State.WOKEN
        for row in rows
    }


# ------------------------------------------------------------------------------------------------ for people


def listed(
    tx: Tx,
    *,
    project: str | None = None,
    cause: str | None = None,
    marker: OperationId | None = None,
    limit: int = PAGE_MAX,
) -> Sequence[WaitingServer]:
    """A page, in the order in which they came."""
    query = sa.select(waiting_servers).order_by(W.came_at, W.operation).limit(min(limit, PAGE_MAX))
    if project is not None:
        query = query.where(W.project == project)
    if cause is not None:
        query = query.where(("," + W.causes + ",").contains(f",{cause},", autoescape=True))
    if marker is not None:
        at = sa.select(W.came_at).where(W.operation == marker).scalar_subquery()
        query = query.where(sa.or_(W.came_at > at, sa.and_(W.came_at == at, W.operation > marker)))
    return [_of(row) for row in tx.rows(query)]


class CauseCount(msgspec.Struct, frozen=True):
    """Who waits for one thing."""

    servers: int
    oldest_at: int


def by_cause(tx: Tx, project: str | None = None) -> dict[str, CauseCount]:
    """Cause → how many wait for it, and since when the first; who lacks two things counts for both."""
    query = sa.select(W.causes, sa.func.count(), sa.func.min(W.since)).group_by(W.causes)
    by_cause: dict[str, CauseCount] = {}
    for causes, count, oldest in tx.rows(query if project is None else query.where(W.project == project)):
        for cause in filter(None, causes.split(",")):
            before = by_cause.get(cause, CauseCount(0, oldest))
            by_cause[cause] = CauseCount(before.servers + count, min(before.oldest_at, oldest))
    return dict(sorted(by_cause.items()))


def note_causes(tx: Tx, kind: str, causes: Sequence[str], counts: Mapping[str, int]) -> None:
    """What those of a kind lack by now."""
    joined = ",".join(causes)
    tx.run(
        waiting_servers.update()
        .where(W.kind == kind, W.causes != joined)
        .values(causes=joined, counts=msgspec.json.encode(counts).decode())
    )


def _of(row: Any) -> WaitingServer:
    return WaitingServer(
        **{name: getattr(row, name) for name in _PLAIN},
        causes=tuple(filter(None, row.causes.split(","))),
        counts=msgspec.json.decode(row.counts, type=dict[str, int]),
        ask=row.ask.encode(),
        woken_at=row.woken_at,
        claimed=bool(row.claimed),
    )
