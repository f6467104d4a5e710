"""Disabled cells: a disabled cell takes no server from elsewhere.

The state is in the cell's row and in a column of each host's row: `disable` stamps every host of the cell in its own
transaction, so it holds for every claim that commits later, however old the cache was (RULES §21). A new host locks the
cell's row until the host is written, so it is either stamped too or inserted as disabled.
"""

from collections.abc import Sequence
from functools import cache

import msgspec
import sqlalchemy as sa

from moorage.model.ids import CellId, HostId
from moorage.sql import Tx, insert
from moorage.store.region.placement.provider_statements import lock
from moorage.store.region.placement.tables import Stamp, cells, hosts, providers

CELLS_MAX = 10_000
HOSTS_AT_ONCE = 1_000

_CELL: sa.BindParameter[str] = sa.bindparam("b_cell", type_=sa.String)
_DISABLED = sa.select(cells.c.disabled).where(cells.c.cell == _CELL).with_for_update(read=True)


class CellStatus(msgspec.Struct, frozen=True):
    """The last state that was set for one cell."""

    cell: CellId
    disabled: bool = False
    reason: str = ""
    said_by: str = ""
    """Empty: it was never set."""
    said_at: int = 0


def every(tx: Tx) -> dict[CellId, CellStatus]:
    """Cells that have, or had, a host, or whose state was set."""
    c = cells.c
    query = sa.select(c.cell, c.disabled, c.reason, c.said_by, c.said_at).order_by(c.cell).limit(CELLS_MAX)
    return {row.cell: CellStatus(row.cell, bool(row.disabled), *row[2:]) for row in tx.rows(query)}


@cache
def _insert_missing(dialect: str) -> sa.Executable:
    fresh = {"cell": _CELL, "disabled": False, "reason": "", "said_by": "", "said_at": 0}
    return insert(dialect, cells).values(fresh).on_conflict_do_nothing()


def come_in(tx: Tx, cell: CellId) -> bool:
    """A host is about to be inserted into this cell. Locks the cell's state until the commit; returns whether the cell
    is disabled.
    """
    tx.run(_insert_missing(tx.dialect), {"b_cell": cell})
    return bool(tx.scalar(_DISABLED, {"b_cell": cell}))


def set_status(tx: Tx, status: CellStatus, at: Stamp) -> None:
    """Disable or enable the cell. Its row is locked first, then its hosts, as `come_in` does."""
    values = msgspec.structs.asdict(status)
    statement = insert(tx.dialect, cells).values(values)
    tx.run(
        statement.on_conflict_do_update(
            index_elements=["cell"], set_={name: statement.excluded[name] for name in values}
        )
    )
    h = hosts.c
    concerned = [
        HostId(row[0])
        for row in tx.rows(
            sa.select(h.provider)
            .where(h.cell == status.cell, h.cell_disabled.is_not(status.disabled))
            .order_by(h.provider)
        )
    ]
    for start in range(0, len(concerned), HOSTS_AT_ONCE):
        batch = concerned[start : start + HOSTS_AT_ONCE]
        lock(tx, batch)
        tx.run(sa.update(hosts).where(h.provider.in_(batch)).values(cell_disabled=status.disabled))
        tx.run(sa.update(providers).where(providers.c.uuid.in_(batch)).values(changed=at.changed, version=at.version))


def forget(tx: Tx, cell: CellId) -> None:
    """Remove the cell. The caller has checked that it has no hosts, after `come_in` or `set_status` kept new ones away."""
    tx.run(sa.delete(cells).where(cells.c.cell == cell))


def host_counts(tx: Tx) -> dict[CellId, int]:
    """How many hosts each cell has."""
    query = sa.select(hosts.c.cell, sa.func.count()).group_by(hosts.c.cell)
    return {CellId(row[0]): row[1] for row in tx.rows(query)}


def named(tx: Tx, cell: CellId, limit: int) -> Sequence[str]:
    """Names of some of its hosts."""
    return [
        row[0]
        for row in tx.rows(sa.select(hosts.c.host).where(hosts.c.cell == cell).order_by(hosts.c.host).limit(limit))
    ]
