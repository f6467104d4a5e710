"""What may be forgotten: old operations, long deleted servers, conductors that died long ago, events nobody waited for."""

import logging
import time

import msgspec

from moorage.model.errors import Unavailable
from moorage.operations.rooms import Rooms
from moorage.sql import Tx
from moorage.store.cell import actions
from moorage.store.cell import servers as cell_servers
from moorage.store.region import conductor_network, conductors, inbox, operations
from moorage.store.region import servers as region_servers

NAME = "tidy"
HOUR_US = 3600 * 1_000_000
DAY_US = 24 * 3600 * 1_000_000
EVENTS_KEPT_US = HOUR_US
OPERATIONS_KEPT_US = 30 * DAY_US
DELETED_SERVERS_KEPT_US = 90 * DAY_US


logger = logging.getLogger(__name__)


class Tidied(msgspec.Struct, frozen=True):
    operations: int = 0
    servers: int = 0
    waiting: tuple[str, ...] = ()
    """Cells that did not answer; what the region knows of long deleted servers stays until all have."""


class Tidy:
    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms

    async def run(self) -> Tidied:
        """One round, a bounded number of rows of each kind."""
        now = time.time_ns() // 1000

        def in_region(tx: Tx) -> int:
            conductors.forget(tx)
            conductor_network.forget(tx)
            inbox.forget_old(tx, now - EVENTS_KEPT_US)
            return operations.forget_old(tx, now - OPERATIONS_KEPT_US)

        forgotten = await self._rooms.region.write(in_region)
        gone_for_ever = await self._rooms.region.read(
            lambda tx: region_servers.long_deleted(tx, now - DELETED_SERVERS_KEPT_US)
        )
        servers = 0
        out: list[str] = []
        for cell in self._rooms.cells.ids:

            def in_cell(tx: Tx) -> int:
                gone = cell_servers.forget_deleted(tx, now - DELETED_SERVERS_KEPT_US)
                if gone:
                    actions.forget(tx, gone)
                if gone_for_ever:
                    cell_servers.forget_fences(tx, gone_for_ever)
                return len(gone)

            try:
                servers += await self._rooms.cells[cell].write(in_cell)
            except Unavailable as problem:
                logger.info("old rows of cell %s wait: %s", cell, problem)
                out.append(cell)
        if gone_for_ever and not out:
            await self._rooms.region.write(lambda tx: region_servers.forget(tx, gone_for_ever))
        return Tidied(forgotten, servers, tuple(out))
