"""Records moves again in a cell whose database was restored to a time before the server moved out of it.

The record is copied from the cell that shows the server now.  While a move is open, its record in the source cell is the only thing
that says what happens to the guest on the source host: after a resize or migration the guest stays, powered off, for a revert; after
an evacuation the guest is destroyed, and what the move holds for it is released.  Without this record the host would learn only that
the server is elsewhere, and would destroy the guest that a revert needs (RULES §22).
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
    """Record the lost moves again in the cells that the servers left. Returns a line for each such cell."""
    by_cell = dict[CellId, set[ServerId]]()
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
                    by_cell.setdefault(left, set()).add(move.server)
    return [
        f"{cell}: the moves of {len(servers)} servers that left it are recorded there again"
        for cell, servers in by_cell.items()
    ]


async def _shown_and_free(region: Database, server: ServerId, cell: CellId) -> bool:
    """Whether this cell shows the server and no operation holds it. An operation records the moves of its server itself."""
    view = await region_view_of(region, server)
    return view is not None and view.where.cell == cell and view.where.operation is None


async def _again(
    region: Database, cells: Mapping[CellId, Database], shown: CellId, left: CellId, move: Migration
) -> bool:
    """Record one move again; whether it was lost there.

    A cell that has seen a later operation removed the move itself: the move ended after the backup of the other cell.
    """

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
    """Write the server's record there too, if it was lost: sealed, on the host that the server left."""
    server = record.server
    if cell_left(server) != left or server.moved is None:
        return
    sealed = msgspec.structs.replace(server, cell=left, host=server.moved.host)
    fence = fence_of(server)
    record_transfer.copy(tx, RecordCopy(sealed), fence)  # the actions are with the record that is shown
    record_transfer.seal(tx, server.id, fence)
