"""Moves out of a cell whose database was put back to before them: they are recorded there again, as the cell knows that shows the server.

While such a move is open, its record in the cell that was left is all that tells a host there what becomes of the guest that it has: one that
was resized or migrated stays, and off, for a revert; one that was evacuated goes, and what the move holds for it is given back then.  Without
it the host would be told that the server is elsewhere, and the guest that a revert needs would be gone (RULES §22).
"""

from collections.abc import Mapping
from functools import partial

import msgspec

from moorage.main.adopt_records import fence_of, region_view_of
from moorage.model.ids import CellId, ServerId
from moorage.model.migration import Migration, MigrationType
from moorage.operations.steps.moving import cell_left
from moorage.sql import Database, Tx
from moorage.store.cell import identity as cell_identities
from moorage.store.cell import migrations, record_transfer
from moorage.store.cell.record_transfer import RecordCopy
from moorage.store.region import hidden_records

PAGE_ROWS = 500


async def record_moves_again(region: Database, cells: Mapping[CellId, Database]) -> list[str]:
    """A line for each cell that was told of some."""
    told = dict[CellId, set[ServerId]]()
    for cell, database in cells.items() if len(cells) > 1 else ():
        after = ""
        while page := await database.read(partial(cell_identities.records, after=after, limit=PAGE_ROWS)):
            after = page[-1].id
            shown = [each.id for each in page if not each.sealed and not each.deleted]
            moves = await database.read(lambda tx, shown=shown: migrations.open_among(tx, shown))  # type: ignore[misc]
            for move in moves:
                left = move.source_cell
                if left in (None, cell) or left not in cells:
                    continue
                if await _shown_and_free(region, move.server, cell) and await _again(region, cells, cell, left, move):
                    told.setdefault(left, set()).add(move.server)
    return [
        f"{cell}: the moves of {len(servers)} servers that left it are recorded there again"
        for cell, servers in told.items()
    ]


async def _shown_and_free(region: Database, server: ServerId, cell: CellId) -> bool:
    """Of one that an operation holds, that sees to its moves."""
    told = await region_view_of(region, server)
    return told is not None and told.where.cell == cell and told.where.operation is None


async def _again(
    region: Database, cells: Mapping[CellId, Database], shown: CellId, left: CellId, move: Migration
) -> bool:
    """Whether it was lost there. A cell that has heard of a later operation has removed it: the move was over after the backup of the other."""

    def lost(tx: Tx) -> int | None:
        if migrations.get(tx, move.uuid) is not None:
            return None
        return cell_identities.seen(tx, move.server, "").rank

    rank = await cells[left].read(lost)
    record = await cells[shown].read(partial(record_transfer.read, server=move.server))
    if rank is None or record is None or rank > record.server.op_epoch:
        return False

    def work(tx: Tx) -> None:
        if not record_transfer.is_sealed(tx, move.server) and move.type is not MigrationType.EVACUATION:
            _sealed_copy(tx, record, left)
        migrations.put(tx, move)

    await region.write(lambda tx: hidden_records.open_row(tx, move.server, left))
    await cells[left].write(work)
    return True


def _sealed_copy(tx: Tx, record: RecordCopy, left: CellId) -> None:
    """Where the record was lost, too: sealed, on the host that the server left."""
    server = record.server
    if cell_left(server) != left or server.moved is None:
        return
    there = msgspec.structs.replace(server, cell=left, host=server.moved.host)
    fence = fence_of(server)
    record_transfer.copy(tx, RecordCopy(there), fence)  # its actions go back with the record that is shown
    record_transfer.seal(tx, server.id, fence)
