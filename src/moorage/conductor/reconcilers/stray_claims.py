"""Claims of servers that are no more, and counters that do not say what the allocations say (RULES §5).

A server whose record its cell has lost is not one that is no more: its claim stays (RULES §22).
"""

import logging

import msgspec

from moorage.conductor.glance import glance
from moorage.model.errors import Unavailable
from moorage.model.ids import ServerId
from moorage.model.verdict import Row
from moorage.operations.rooms import Rooms
from moorage.operations.steps import servers as records
from moorage.sql import Tx
from moorage.store.cell import servers as cell_servers
from moorage.store.region import servers as region_servers
from moorage.store.region.placement import claims

NAME = "stray_claims"

logger = logging.getLogger(__name__)


class StrayClaimsDone(msgspec.Struct, frozen=True):
    looked_at: int = 0
    released: tuple[str, ...] = ()
    drifted: int = 0
    """Counters that differ from the sum of their allocations; said loudly, for it must not happen."""
    waiting: int = 0
    """Consumers whose cell did not answer."""


class StrayClaims:
    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms

    async def run(self) -> StrayClaimsDone:
        """One round; a consumer that is no server of ours is somebody else's, and left alone."""
        region = self._rooms.region
        consumers = await region.read(claims.operations_consumers)
        seen = await glance(self._rooms, consumers, cell_servers.placed)
        released: list[str] = []
        waiting = len(seen.waiting)
        for consumer in seen.suspects:
            try:
                seq = await self._seq_of_stray(ServerId(consumer))
            except Unavailable as out:  # its cell: no reason to leave the others
                logger.info("the claim of server %s waits: %s", consumer, out)
                waiting += 1
                continue
            if seq is not None and await self._release(ServerId(consumer), seq):
                released.append(consumer)
        drifted = await region.read(claims.drift)
        return StrayClaimsDone(len(consumers), tuple(released), len(drifted), waiting)

    async def _seq_of_stray(self, server: ServerId) -> int | None:
        """How many operations the server has had, if it should hold nothing."""
        where = await self._rooms.region.read(lambda tx: region_servers.find(tx, server))
        if where is None or where.operation is not None:
            return None
        found = await records.find(self._rooms, server)
        if found.missing_in is not None:
            return None
        stray = found.server is None or found.server.deleted or found.server.host is None
        return where.op_seq if stray else None

    async def _release(self, server: ServerId, seq: int) -> bool:
        """Looked at again in the transaction that releases: an operation may have come since, or come and gone."""

        def work(tx: Tx) -> tuple[Row, ...]:
            where = region_servers.find_and_hold(tx, server)
            if where is None or where.operation is not None or where.op_seq != seq:
                return ()
            return self._rooms.placement.release(tx, server)

        rows = await self._rooms.region.write(work)
        self._rooms.placement.settle(rows)
        return bool(rows)
