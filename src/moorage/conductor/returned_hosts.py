"""Ends evacuations when a host that was taken for dead returns, and no longer has the evacuated guests (RULES §11,
S1.19).

Its full report decides: a guest that it does not name is gone. What the move held there is released, and the move's
record says `completed`. Nothing is done at the network service: the ports are with the server.

A server that was evacuated into another cell still has a sealed row here, and its migration is in both cells: that of
the cell which shows the server is ended first, so that this is repeated while that cell does not answer. The reconciler
`hidden_records` removes the record here afterwards.
"""

import logging
from collections.abc import Collection, Mapping, Sequence

from moorage.model.ids import CellId, ServerId
from moorage.model.migration import Migration
from moorage.model.verdict import InventoryState
from moorage.operations.evacuate.finished_evacuations import complete, completed_where_shown, left_at
from moorage.placement.engine import Engine
from moorage.sql import Database, Tx
from moorage.store.cell import server_queries

logger = logging.getLogger(__name__)


async def settle(
    host: str,
    guests: Collection[ServerId],
    now_us: int,
    database: Database,
    region: Database,
    engine: Engine,
    cells: Mapping[CellId, Database],
) -> bool:
    """Return whether evacuated guests are still there, or evacuations wait for another cell. `guests`: all guests of
    the host.

    The claim is released first: while the record does not say that the move is over, this is repeated.
    """
    left, elsewhere = await left_at(host, database, region, cells)
    back = await database.read(lambda tx: _back(tx, host, left)) - elsewhere if left else frozenset[ServerId]()
    over = [each for each in left if each.server not in guests or each.server in back]
    if over:
        rows = await region.write(lambda tx: _release(tx, over, engine))
        engine.settle(rows)
        over = await completed_where_shown(over, now_us, database, region, cells)
        await database.write(lambda tx: complete(tx, over, now_us))
        logger.info(
            "host %s has returned without the guests that were evacuated from it: %s",
            host,
            ", ".join(each.server for each in over),
        )
    return len(over) < len(left)


def _back(tx: Tx, host: str, left: Sequence[Migration]) -> frozenset[ServerId]:
    """Those of these servers that have come back to the host since."""
    rows = server_queries.where_placed(tx, host, [each.server for each in left])
    return frozenset(id for id, row in rows.items() if row.host == host and not row.deleted and not row.hidden)


def _release(tx: Tx, over: Sequence[Migration], engine: Engine) -> list[InventoryState]:
    return [row for each in over for row in engine.release(tx, each.uuid)]
