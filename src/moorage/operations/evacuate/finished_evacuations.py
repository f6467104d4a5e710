"""Evacuations that are over, for the host that was left is back without the guest, or was removed for good: their records say so."""

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
    """What was evacuated from a host of the cell `left` while it was dead, and which of those servers another cell shows.

    A move that this cell has as `migrating` still is done where the server is shown elsewhere: its database was out when that was to be
    said to it.  Any other that is `migrating` is under way.
    """
    found = await left.read(lambda tx: migrations.evacuated_from(tx, host))
    if not found:
        return [], frozenset()
    shown = await region.read(lambda tx: region_servers.cells_of(tx, [each.server for each in found]))
    others = {cell for cell, database in cells.items() if database is not left}
    elsewhere = frozenset(server for server, cell in shown.items() if cell in others)
    done = [each for each in found if each.status is MigrationStatus.DONE or each.server in elsewhere]
    return done, elsewhere


async def completed_where_shown(
    over: Sequence[Migration], now_us: int, left: Database, region: Database, cells: Mapping[Any, Database]
) -> list[Migration]:
    """Those that may be ended in the cell that was left: where another cell shows the server, it says that the move is over.

    Of one whose cell is out nothing is ended: who looks at the host again finds it open.
    """
    shown = await region.read(lambda tx: region_servers.cells_of(tx, [each.server for each in over]))
    done: list[Migration] = []
    for each in over:
        there = cells.get(cell) if (cell := shown.get(each.server)) is not None else None
        try:
            if there is not None and there is not left:
                await there.write(lambda tx, move=each: complete(tx, [move], now_us))  # type: ignore[misc]
        except Unavailable as out:
            logger.info("the evacuation of server %s waits for its cell: %s", each.server, out)
            continue
        done.append(each)
    return done


def complete(tx: Tx, over: Sequence[Migration], now_us: int) -> None:
    """Inside a transaction of a cell that has a record of them."""
    for each in over:
        row = migrations.get(tx, each.uuid)
        if row is not None and row.status in migrations.STARTED_ELSEWHERE:
            migrations.put(tx, msgspec.structs.replace(row, status=MigrationStatus.COMPLETED, updated_at=now_us))
