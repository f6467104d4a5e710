"""Decides, after databases were restored, which record of a server is shown if several cells have one (docs/decisions/0021).

    the region is not older   the record in the cell that the region names; any other is from before the move: it is sealed and hidden
    the region is older       the move ended after the region's backup: the record that is not sealed; of two such records the one that
                              a later operation wrote

The conductors' reconciler removes hidden records as soon as they are not needed.  Servers that an operation holds are left to that
operation, which continues.  If the cell that must show a server has lost its record, nothing is changed: the server is missing
(RULES §22).
"""

from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from moorage.model.ids import CellId, OperationId, ServerId
from moorage.model.server import Server
from moorage.sql import Database, Tx
from moorage.store.cell import identity as cell_identities
from moorage.store.cell import record_transfer
from moorage.store.cell import servers as cell_servers
from moorage.store.cell.identity import KnownServer
from moorage.store.cell.servers import EPOCHS_PER_OPERATION, Fence
from moorage.store.region import hidden_records
from moorage.store.region import servers as region_servers
from moorage.store.region.servers import Whereabouts

PAGE_ROWS = 500


class RegionView(msgspec.Struct, frozen=True):
    """What the region knows of one server."""

    where: Whereabouts
    hidden: frozenset[CellId]


class _Row(msgspec.Struct, frozen=True):
    server: Server
    sealed: bool

    @property
    def rank(self) -> int:
        return self.server.op_epoch


class Settled(msgspec.Struct):
    """How many servers are shown in another cell now, and how many records are hidden now."""

    mapped: int = 0
    hidden: int = 0

    def describe(self) -> list[str]:
        lines = []
        if self.mapped:
            lines.append(
                f"{self.mapped} servers moved into another cell after the region's backup, and are shown there"
            )
        if self.hidden:
            lines.append(f"{self.hidden} records of servers that are in another cell are hidden, and will be removed")
        return lines


async def region_view_of(region: Database, server: ServerId) -> RegionView | None:
    def work(tx: Tx) -> RegionView | None:
        where = region_servers.find(tx, server)
        hidden = hidden_records.open_of(tx, [server]).get(server, frozenset())
        return None if where is None else RegionView(where, hidden)

    return await region.read(work)


def as_shown(
    in_cells: Mapping[CellId, KnownServer], view: RegionView | None
) -> tuple[CellId | None, list[KnownServer]]:
    """Choose the record that counts. Returns its cell, and what the cells have seen.

    That an action has ended counts only in the cell that the region names.  A finished action is copied to the other cell before the
    server is shown there, and the operation that was open at the backup must still switch to the other record.
    """
    having = [cell for cell, each in in_cells.items() if each.record is not None]
    if len(having) < 2:
        return next(iter(having), None), list(in_cells.values())
    named = None if view is None else view.where.cell
    unsealed = [cell for cell in having if not in_cells[cell].sealed]
    counts = max(unsealed or having, key=lambda cell: (in_cells[cell].rank, cell == named))
    return counts, [
        KnownServer(
            each.record if cell == counts else None,
            each.rank,
            finished=each.finished and cell == named,
            failed=each.failed and cell == named,
        )
        for cell, each in in_cells.items()
    ]


def moved_unknown(in_cells: Mapping[CellId, KnownServer], view: RegionView | None, seq: int) -> bool:
    """Tell whether the operation has copied the record into a cell that the region does not know of: then the region is older."""
    if view is None:
        return False
    others = [cell for cell in in_cells if cell != view.where.cell and cell not in view.hidden]
    return any(
        in_cells[cell].record is not None and in_cells[cell].rank // EPOCHS_PER_OPERATION == seq for cell in others
    )


async def settle_records(region: Database, cells: Mapping[CellId, Database], *, behind: bool) -> Settled:
    """Choose the shown record of every server that has a sealed record, or one in a cell that the region does not name.

    `behind`: the region is older than its cells.
    """
    done, settled = set[ServerId](), Settled()
    for cell, database in cells.items() if len(cells) > 1 else ():
        after = ""
        while page := await database.read(partial(cell_identities.records, after=after, limit=PAGE_ROWS)):
            after = page[-1].id
            ids = [each.id for each in page]
            named = await region.read(lambda tx, ids=ids: region_servers.cells_of(tx, ids))  # type: ignore[misc]
            for each in page:
                odd = each.sealed or named.get(each.id, cell) not in (cell, None)
                if odd and each.id not in done:
                    done.add(each.id)
                    await _settle(region, cells, each.id, settled, behind=behind)
    return settled


async def _settle(
    region: Database, cells: Mapping[CellId, Database], server: ServerId, settled: Settled, *, behind: bool
) -> None:
    view = await region_view_of(region, server)
    if view is None or view.where.operation is not None:
        return
    rows: dict[CellId, _Row] = {}
    for cell, database in cells.items():
        record, sealed = await database.read(partial(cell_servers.get_with_seal, server=server))
        if record is not None:
            rows[cell] = _Row(record, sealed)
    shown = _shown(view.where.cell, rows, behind=behind)
    if shown is None or shown not in rows:
        return
    others = {cell: row for cell, row in rows.items() if cell != shown}
    if shown != view.where.cell or shown in view.hidden or others.keys() - view.hidden:

        def work(tx: Tx) -> None:
            if shown != view.where.cell:
                region_servers.recorded_in(tx, server, shown)
            hidden_records.end_row(tx, server, shown, 0)
            for cell in sorted(others):
                hidden_records.open_row(tx, server, cell)

        await region.write(work)
        settled.mapped += shown != view.where.cell
        settled.hidden += len(others.keys() - view.hidden)
    for cell, row in others.items():
        if not row.sealed:
            await cells[cell].write(lambda tx, row=row: record_transfer.seal(tx, server, fence_of(row.server)))  # type: ignore[misc]
    if rows[shown].sealed:
        await cells[shown].write(lambda tx: record_transfer.unseal(tx, server, fence_of(rows[shown].server)))


def _shown(named: CellId | None, rows: Mapping[CellId, _Row], *, behind: bool) -> CellId | None:
    mine = None if named is None else rows.get(named)
    unsealed: Sequence[CellId] = [cell for cell, row in rows.items() if cell != named and not row.sealed]
    if not behind or not unsealed:
        return named
    newest = max(unsealed, key=lambda cell: rows[cell].rank)
    return newest if mine is None or mine.sealed or rows[newest].rank > mine.rank else named


def fence_of(row: Server) -> Fence:
    """The fence of the record's last writer, so that later operations can still write to it."""
    operation = row.operation or OperationId("adopted")
    return Fence(operation, row.op_epoch // EPOCHS_PER_OPERATION, row.op_epoch % EPOCHS_PER_OPERATION, row.op_line)
