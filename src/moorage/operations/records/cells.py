"""Administration of cells: closed to servers from elsewhere, opened again, or deleted (N7).

The configuration lists the databases; the region stores a cell's state, in one commit with the stamps of its hosts.
"""

import msgspec

from moorage.model.errors import Conflict, NotFound
from moorage.model.ids import CellId
from moorage.sql import Database, Tx
from moorage.store.region import hidden_records, identity
from moorage.store.region.counts import CellCount, counts_by_cell
from moorage.store.region.placement import cells
from moorage.store.region.placement.cells import CellStatus
from moorage.store.region.placement.tables import stamp

NAMED_MAX = 5
"""How many hosts a refusal names."""
NOTHING = CellCount(0, 0)


class CellSummary(msgspec.Struct, frozen=True):
    """One cell, as the region knows it."""

    cell: CellId
    status: CellStatus
    uuid: str | None
    """The id of its database; None when no database of the cell was ever seen."""
    hosts: int
    servers: int
    deleted_servers: int
    """Servers whose records are kept for lists and usage."""


def listed(tx: Tx) -> list[CellSummary]:
    """Every cell that the region knows, by name."""
    statuses, known, hosts = cells.every(tx), identity.cells(tx), cells.host_counts(tx)
    counts = counts_by_cell(tx)
    return [
        CellSummary(
            cell,
            statuses.get(cell, CellStatus(cell)),
            known[cell].uuid if cell in known else None,
            hosts.get(cell, 0),
            counts.get(cell, NOTHING).servers,
            counts.get(cell, NOTHING).deleted,
        )
        for cell in sorted({*statuses, *known, *hosts, *counts})
    ]


def _gone(cell: str) -> NotFound:
    return NotFound(f"Cell {cell} could not be found.")


async def set_disabled(
    region: Database, cell: CellId, now: int, *, disabled: bool, reason: str, by: str, configured: bool
) -> None:
    """Close or open the cell. It holds for every claim that commits after the answer (RULES §21). Raises NotFound for
    an unknown cell.
    """

    def work(tx: Tx) -> bool:
        if not configured and cell not in identity.cells(tx):
            return False
        cells.set_status(tx, CellStatus(cell, disabled, reason if disabled else "", by, now), stamp(tx))
        return True

    if not await region.write(work):
        raise _gone(cell)


async def delete(region: Database, cell: CellId, *, force: bool) -> None:
    """Remove the cell from the region. Raises NotFound; Conflict while hosts or servers are in it.

    `force`: also when its database has records of deleted servers, which are no longer shown then.
    """

    def work(tx: Tx) -> Conflict | NotFound | None:
        if cell not in identity.cells(tx) and cell not in cells.every(tx):
            tx.refuse(_gone(cell))
        cells.come_in(tx, cell)  # from here until the commit no host can join the cell
        if (refused := _in_use(tx, cell, force=force)) is not None:
            tx.refuse(refused)
        cells.forget(tx, cell)
        identity.forget_cell(tx, cell)
        return None

    if (refused := await region.write(work)) is not None:
        raise refused


def _in_use(tx: Tx, cell: CellId, *, force: bool) -> Conflict | None:
    if hosts := cells.named(tx, cell, NAMED_MAX + 1):
        more = " and others" if len(hosts) > NAMED_MAX else ""
        return Conflict(
            f"Cell {cell} has hosts: {', '.join(hosts[:NAMED_MAX])}{more}. Delete their compute services first."
        )
    count = counts_by_cell(tx).get(cell, NOTHING)
    if count.servers:
        return Conflict(f"Cell {cell} has {count.servers} servers. Move or delete them first.")
    if hidden := hidden_records.count_open(tx, cell):
        return Conflict(
            f"Cell {cell} has the records of {hidden} servers that were moved. They go when that is confirmed."
        )
    if count.deleted and not force:
        return Conflict(
            f"Cell {cell} has the records of {count.deleted} deleted servers, which lists and usage would lack. They are "
            "forgotten in time, or with force."
        )
    return None
