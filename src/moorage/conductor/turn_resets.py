"""Takes back turns at hosts that an operator named: turns that no conductor gave, so that orders are obeyed again.

The message says which turn the host has and which one it is to have: what the region knows of the server now. It is sent
again for a while, because it may be lost; a host that has another turn by then ignores it.
"""

import logging

from moorage.bus import subjects
from moorage.bus.host_messages import TurnReset
from moorage.bus.messages import encode
from moorage.bus.transport import Bus
from moorage.model.ids import CellId
from moorage.sql import Database
from moorage.store.region import turn_resets
from moorage.store.region.server_standing import standings
from moorage.store.region.turn_resets import StoredReset

SENT_FOR_US = 60_000_000

logger = logging.getLogger(__name__)


class TurnResets:
    """The resets of one cell's hosts."""

    def __init__(self, cell: CellId, region: Database, bus: Bus) -> None:
        self._cell, self._region, self._bus = cell, region, bus
        self._pending: tuple[StoredReset, ...] = ()
        self._newest = 0

    async def send(self, newest: int, now_us: int) -> None:
        """Send those that were asked for lately. `newest`: when the last one of the region was asked for."""
        if newest > self._newest:
            rows = await self._region.read(lambda tx: turn_resets.since(tx, self._cell, now_us - SENT_FOR_US))
            for each in {*rows} - {*self._pending}:
                logger.warning("host %s: turn %s of %s is taken back", each.host, each.forged, each.server)
            self._pending, self._newest = tuple(rows), newest
        self._pending = tuple(each for each in self._pending if each.requested_at > now_us - SENT_FOR_US)
        if not self._pending:
            return
        known = await self._region.read(lambda tx: standings(tx, {each.server for each in self._pending}))
        for each in self._pending:
            if (standing := known.get(each.server)) is None or (turn := standing.newest_turn_over) >= each.forged:
                continue
            message = TurnReset(each.host, each.server, each.forged, turn)
            await self._bus.publish(subjects.to_host(self._cell, each.host), encode(message))
