"""Hosts that an operator has approved as part of the region, each with name, cell and key in one row; and hosts that
wait for approval.

The broker's configuration is made from these rows (`bus/broker.py`), so a key, a name and a cell have the same binding
in both.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from moorage.model.ids import CellId
from moorage.sql import Tx
from moorage.sql.dialect import insert
from moorage.store.region import turn_resets
from moorage.store.region.tables import region_metadata

APPROVED_MAX = 20_000
WAITING_MAX = 1_000
"""How many waiting hosts are stored; when more ask, those that asked last."""
WHY_CHARS_MAX = 500

host_approvals = sa.Table(
    "host_approvals",
    region_metadata,
    sa.Column("host", sa.String(255), primary_key=True),
    sa.Column("cell", sa.String(64), nullable=False),
    sa.Column("bus_key", sa.String(56), unique=True),
    sa.Column("approved_at", sa.BigInteger),
    sa.Column("approved_by", sa.String(255), nullable=False),
    sa.Column("heard_at", sa.BigInteger, nullable=False),
    sa.Column("refused_at", sa.BigInteger),
    sa.Column("refused_why", sa.Text, nullable=False),
    sa.Index("host_approvals_by_time", "approved_at"),
)
"""`approved_at` NULL: it waits. `heard_at`: when a waiting host last asked. `bus_key` NULL: the broker does not
authenticate hosts. `refused_at`, `refused_why`: its last message that was refused. Times are µs since 1970.
"""


class HostApproval(msgspec.Struct, frozen=True):
    """One row."""

    host: str
    cell: CellId
    key: str | None = None
    approved_at: int | None = None
    approved_by: str = ""
    heard_at: int = 0
    refused_at: int | None = None
    refused_why: str = ""


class Counted(msgspec.Struct, frozen=True):
    """Two equal values mean that no approval has changed. It is read all the time, so it reads no rows."""

    approved: int = -1
    newest: int = 0
    reset_at: int = 0
    """When an operator last took back a turn of a host (`turn_resets`)."""


_COUNTED = sa.select(
    sa.func.count(), sa.func.coalesce(sa.func.max(host_approvals.c.approved_at), 0), turn_resets.NEWEST
).where(host_approvals.c.approved_at.is_not(None))
_APPROVED = (
    sa.select(host_approvals.c.host, host_approvals.c.cell)
    .where(host_approvals.c.approved_at.is_not(None))
    .limit(APPROVED_MAX)
)


def counted(tx: Tx) -> Counted:
    row = tx.row(_COUNTED)
    return Counted() if row is None else Counted(row[0], row[1], row[2])


def approved(tx: Tx) -> dict[str, CellId]:
    """The cell of each approved host."""
    return {row.host: CellId(row.cell) for row in tx.rows(_APPROVED)}


def keys(tx: Tx) -> Sequence[HostApproval]:
    """Approved hosts with a key."""
    c = host_approvals.c
    chosen = sa.select(host_approvals).where(c.approved_at.is_not(None), c.bus_key.is_not(None))
    return [_approval(row) for row in tx.rows(chosen.order_by(c.host).limit(APPROVED_MAX))]


def get(tx: Tx, host: str) -> HostApproval | None:
    row = tx.row(sa.select(host_approvals).where(host_approvals.c.host == host))
    return None if row is None else _approval(row)


def listed(tx: Tx) -> Sequence[HostApproval]:
    """Waiting hosts first, then by name."""
    c = host_approvals.c
    chosen = sa.select(host_approvals).order_by(c.approved_at.is_not(None), c.host)
    return [_approval(row) for row in tx.rows(chosen.limit(APPROVED_MAX + WAITING_MAX))]


def approve(tx: Tx, host: str, cell: CellId, key: str | None, now: int, by: str) -> str | None:
    """Bind the host to its cell and key, in place of an earlier binding.

    If another host has this key, nothing is done, and its name is returned; the name is empty when there is no room for
    more hosts.
    """
    c = host_approvals.c
    if counted(tx).approved >= APPROVED_MAX and not tx.rows(
        sa.select(c.host).where(c.host == host, c.approved_at.is_not(None))
    ):
        return ""
    if key is not None:
        other = tx.row(sa.select(c.host).where(c.bus_key == key, c.host != host))
        if other is not None:
            return str(other.host)
    newest = tx.scalar(sa.select(sa.func.max(c.approved_at)))
    columns = {"cell": cell, "bus_key": key, "approved_at": max(now, (newest or 0) + 1), "approved_by": by}
    fresh = {"heard_at": 0, "refused_at": None, "refused_why": ""}
    statement = insert(tx.dialect, host_approvals).values(host=host, **columns, **fresh)
    tx.run(
        statement.on_conflict_do_update(
            index_elements=["host"], set_={**columns, "refused_at": None, "refused_why": ""}
        )
    )
    return None


def approve_unasked(tx: Tx, hosts: Mapping[str, CellId], now: int) -> None:
    """When hosts need no approval: note hosts that have reported, so that they stay approved when that changes."""
    for host, cell in sorted(hosts.items()):
        columns = {"cell": cell, "approved_at": now, "approved_by": "automatic"}
        rest = {"bus_key": None, "heard_at": now, "refused_at": None, "refused_why": ""}
        statement = insert(tx.dialect, host_approvals).values(host=host, **columns, **rest)
        tx.run(statement.on_conflict_do_update(index_elements=["host"], set_=columns))


def revoke(tx: Tx, host: str) -> bool:
    """Remove the host's approval. Returns False when the host is unknown. When it reports again, it waits."""
    c = host_approvals.c
    return tx.row(host_approvals.delete().where(c.host == host).returning(c.host)) is not None


def record_waiting(tx: Tx, hosts: Mapping[str, CellId], now: int) -> None:
    """Note hosts that asked and are not approved; beyond `WAITING_MAX`, those that asked longest ago are removed."""
    c = host_approvals.c
    for host, cell in sorted(hosts.items())[:WAITING_MAX]:
        rest = {"bus_key": None, "approved_at": None, "approved_by": "", "refused_at": None, "refused_why": ""}
        statement = insert(tx.dialect, host_approvals).values(host=host, cell=cell, heard_at=now, **rest)
        tx.run(
            statement.on_conflict_do_update(
                index_elements=["host"], set_={"cell": cell, "heard_at": now}, where=c.approved_at.is_(None)
            )
        )
    kept = (
        sa.select(c.host).where(c.approved_at.is_(None)).order_by(c.heard_at.desc(), c.host).offset(WAITING_MAX)
    )  # fmt: skip
    too_many = [row.host for row in tx.rows(kept.limit(WAITING_MAX))]
    if too_many:
        tx.run(host_approvals.delete().where(c.host.in_(too_many), c.approved_at.is_(None)))


def note_refused(tx: Tx, refused: Mapping[str, str], now: int) -> None:
    """Note for known hosts, by name, which message was refused and why."""
    for host, why in sorted(refused.items()):
        columns = {"refused_at": now, "refused_why": why[:WHY_CHARS_MAX]}
        tx.run(host_approvals.update().where(host_approvals.c.host == host).values(columns))


def _approval(row: Any) -> HostApproval:
    return HostApproval(
        row.host, CellId(row.cell), row.bus_key, row.approved_at, row.approved_by, row.heard_at, row.refused_at, row.refused_why
    )  # fmt: skip
