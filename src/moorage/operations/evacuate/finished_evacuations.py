"""Ends the records of evacuations when the old host has returned without the guest, or was removed for good."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from moorage.model.errors import Unavailable
from moorage.model.ids import ServerId
from moorage.model.migration import Migration, MigrationStatus
from moorage.sql import Database, Tx
from moorage.store.cell import migrations
from moorage.store.region import servers as region_servers

logger = logging.getLogger(__name__)


async def left_at(
    host: str, left: Database, region: Database, cells: Mapping[Any, Database]
) -> tuple[list[Migration], frozenset[ServerId]]:
    """Evacuations away from a dead host of the cell `left`, and which of those servers another cell shows.

    A move that is still `migrating` in this cell is done when the server is shown elsewhere: the database did not
    answer when `done` was to be written. Any other `migrating` move is under way.
    """
    moves = await left.read(lambda tx: migrations.evacuated_from(tx, host))
    if not moves:
        return [], frozenset()
    shown = await region.read(lambda tx: region_servers.cells_of(tx, [each.server for each in moves]))
    others = {cell for cell, database in cells.items() if database is not left}
    elsewhere = frozenset(server for server, cell in shown.items() if cell in others)
    done = [each for each in moves if each.status is MigrationStatus.DONE or each.server in elsewhere]
    return done, elsewhere


async def completed_where_shown(
    over: Sequence[Migration], now_us: int, left: Database, region: Database, cells: Mapping[Any, Database]
) -> list[Migration]:
    """Of these moves, those that may be ended in the cell that was left: where another cell shows the server, its
    record says that the move is over.

    When that other cell does not answer, the move stays open, and the next check of the host finds it.
    """
    shown = await region.read(lambda tx: region_servers.cells_of(tx, [each.server for each in over]))
    done: list[Migration] = []
    for each in over:
        database = cells.get(cell) if (cell := shown.get(each.server)) is not None else None
        try:
            if database is not None and database is not left:
                await database.write(lambda tx, move=each: complete(tx, [move], now_us))  # type: ignore[misc]
        except Unavailable as out:
            logger.info("the evacuation of server %s waits for its cell: %s", each.server, out)
            continue
        done.append(each)
    return done


def complete(tx: Tx, over: Sequence[Migration], now_us: int) -> None:
    """Mark the moves as completed, in a transaction of a cell that has their records."""
    for each in over:
        row = migrations.get(tx, each.uuid)
        if row is not None and row.status in migrations.STARTED_ELSEWHERE:
            migrations.put(tx, msgspec.structs.replace(row, status=MigrationStatus.COMPLETED, updated_at=now_us))
