"""Debts of hosts: one row for each thing that a host must still do (docs/decisions/0032).

`servers.debts` counts the open rows of a server, so that a statement that takes the server sees them without a read of
this table.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from moorage.model.debt import Debt, DebtKind
from moorage.model.ids import ServerId
from moorage.sql import Tx
from moorage.sql.dialect import insert
from moorage.store.region.tables import region_metadata

PAGE_MAX = 500
OF_SERVER_MAX = 200
HOSTS_MAX = 100
PROBLEM_CHARACTERS_MAX = 500

debts = sa.Table(
    "debts",
    region_metadata,
    sa.Column("server", sa.String(36), primary_key=True),
    sa.Column("kind", sa.String(32), primary_key=True),
    sa.Column("thing", sa.String(255), primary_key=True),
    sa.Column("operation", sa.String(36), nullable=False),
    sa.Column("host", sa.String(255), nullable=False),
    sa.Column("since", sa.BigInteger, nullable=False),
    sa.Column("next_at", sa.BigInteger, nullable=False),
    sa.Column("answered_at", sa.BigInteger),
    sa.Column("doc", sa.Text, nullable=False),
    sa.Index("debts_due", "next_at"),
    sa.Index("debts_of_host", "host"),
)
D = debts.c
_servers = sa.table("servers", sa.column("id"), sa.column("debts"))
"""The region's servers; their module imports this one."""
_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Debt)


class DebtCount(msgspec.Struct, frozen=True):
    """The open debts of one host."""

    host: str
    debts: int
    oldest_at: int
    """Microseconds since 1970, UTC."""


_COUNT = (
    sa.update(_servers)
    .where(_servers.c.id == sa.bindparam("b_server"))
    .values(debts=sa.select(sa.func.count()).where(D.server == sa.bindparam("b_server")).scalar_subquery())
)


def owe(tx: Tx, debt: Debt) -> None:
    """Write a debt; a repeat changes nothing. Of a guest to destroy, the newest command counts."""
    if debt.kind is DebtKind.DESTROY:
        older = (D.server == debt.server, D.kind == debt.kind.value, D.thing == debt.thing)
        tx.run(debts.delete().where(*older, D.operation != debt.operation))
    given = {
        "server": debt.server,
        "kind": debt.kind.value,
        "thing": debt.thing,
        "operation": debt.operation,
        "host": debt.host,
        "since": debt.since,
        "next_at": debt.next_at,
        "answered_at": debt.answered_at,
        "doc": _encode(debt).decode(),
    }
    tx.run(insert(tx.dialect, debts).values(**given).on_conflict_do_nothing(index_elements=["server", "kind", "thing"]))
    tx.run(_COUNT, {"b_server": debt.server})


def _one(debt: Debt) -> tuple[sa.ColumnElement[bool], ...]:
    return (D.server == debt.server, D.kind == debt.kind.value, D.thing == debt.thing, D.operation == debt.operation)


def end(tx: Tx, debt: Debt) -> bool:
    """Remove a debt: it was paid, or nobody owes it any more. Returns False when it was removed before."""
    ended = tx.row(debts.delete().where(*_one(debt)).returning(D.server)) is not None
    if ended:
        tx.run(_COUNT, {"b_server": debt.server})
    return ended


def end_all_of(tx: Tx, server: ServerId) -> None:
    """Remove all debts of a server that is being deleted, besides its guest: they go with that."""
    tx.run(debts.delete().where(D.server == server, D.kind != DebtKind.DESTROY.value))
    tx.run(_COUNT, {"b_server": server})


def note_failed(tx: Tx, debt: Debt) -> None:
    """Write how a payment failed, and when the next one may begin."""
    values = {"next_at": debt.next_at, "answered_at": debt.answered_at, "doc": _encode(debt).decode()}
    tx.run(debts.update().where(*_one(debt)).values(**values))


_OF_SERVER = sa.select(D.doc).where(D.server == sa.bindparam("b_server")).order_by(D.since).limit(OF_SERVER_MAX)
_THIS = sa.select(D.server).where(
    D.server == sa.bindparam("b_server"), D.kind == sa.bindparam("b_kind"), D.thing == sa.bindparam("b_thing")
)
_OF_KIND = sa.select(D.thing).where(D.server == sa.bindparam("b_server"), D.kind == sa.bindparam("b_kind")).limit(1)
_UNANSWERED = sa.select(D.thing).where(D.server == sa.bindparam("b_server"), D.answered_at.is_(None)).limit(1)


def of_server(tx: Tx, server: str) -> Sequence[Debt]:
    """The open debts of a server, the oldest first."""
    return [_debt(row) for row in tx.rows(_OF_SERVER, {"b_server": server})]


def is_owed(tx: Tx, server: str, kind: DebtKind, thing: str) -> bool:
    """Whether this is owed to the server."""
    values = {"b_server": server, "b_kind": kind.value, "b_thing": thing}
    return tx.row(_THIS, values) is not None


def is_any_owed(tx: Tx, server: str, kind: DebtKind) -> bool:
    """Whether anything of this kind is owed to the server."""
    return tx.row(_OF_KIND, {"b_server": server, "b_kind": kind.value}) is not None


def is_any_unanswered(tx: Tx, server: str) -> bool:
    """Whether the server has a debt whose host has not answered since."""
    return tx.row(_UNANSWERED, {"b_server": server}) is not None


def page(
    tx: Tx, *, after: tuple[str, str, str] = ("", "", ""), host: str | None = None, limit: int = PAGE_MAX
) -> Sequence[Debt]:
    """Open debts in the order of (server, kind, thing), behind the given one; of one host, if it is named."""
    behind = sa.tuple_(D.server, D.kind, D.thing) > sa.tuple_(*(sa.literal(each) for each in after))
    query = (
        sa.select(D.doc)
        .where(behind, sa.true() if host is None else D.host == host)
        .order_by(D.server, D.kind, D.thing)
        .limit(min(limit, PAGE_MAX))
    )
    return [_debt(row) for row in tx.rows(query)]


def due(tx: Tx, now_us: int, limit: int = PAGE_MAX) -> Sequence[Debt]:
    """Debts whose payment may begin, the longest due first."""
    query = sa.select(D.doc).where(D.next_at <= now_us).order_by(D.next_at, D.since).limit(limit)
    return [_debt(row) for row in tx.rows(query)]


def put_off(tx: Tx, rows: Sequence[Debt], until_us: int) -> None:
    """Look at these later: their hosts are not home. A host that is tried does not hide the others."""
    for each in rows:
        tx.run(debts.update().where(*_one(each), D.next_at < until_us).values(next_at=until_us))


def by_host(tx: Tx) -> Sequence[DebtCount]:
    """Hosts with open debts, the oldest debt first; at most `HOSTS_MAX`."""
    oldest = sa.func.min(D.since).label("oldest")
    query = sa.select(D.host, sa.func.count().label("debts"), oldest).group_by(D.host).order_by(oldest)
    return [DebtCount(row.host, int(row.debts), int(row.oldest)) for row in tx.rows(query.limit(HOSTS_MAX))]


def counted(tx: Tx) -> DebtCount:
    """All open debts; `oldest_at` is 0 when there is none."""
    row = tx.row(sa.select(sa.func.count().label("debts"), sa.func.min(D.since).label("oldest")))
    return DebtCount("", 0, 0) if row is None else DebtCount("", int(row.debts), int(row.oldest or 0))


def _debt(row: Any) -> Debt:
    return _decoder.decode(row.doc)
