"""Evacuations that are over, for the host that was left is back without the guest, or was removed for good: their records say so."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from moorage.model.errors import Unavailable
from moorage.model.migration import Migration, MigrationStatus
from moorage.sql import Database, Tx
from moorage.store.cell import migrations
from moorage.store.region import servers as region_servers

logger = logging.getLogger(__name__)


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
        if row is not None and row.status is MigrationStatus.DONE:
            migrations.put(tx, msgspec.structs.replace(row, status=MigrationStatus.COMPLETED, updated_at=now_us))
