"""Claims of servers that are no more, and counters that do not say what the allocations say (RULES §5).

A server whose record its cell has lost is not one that is no more: its claim stays (RULES §22).
"""

import msgspec

from moorage.model.ids import ServerId
from moorage.model.verdict import Row
from moorage.operations.rooms import Rooms
from moorage.operations.steps import servers as records
from moorage.sql import Tx
from moorage.store.region import servers as region_servers
from moorage.store.region.placement import claims

NAME = "stray_claims"


class StrayClaimsDone(msgspec.Struct, frozen=True):
    looked_at: int = 0
    released: tuple[str, ...] = ()
    drifted: int = 0
    """Counters that differ from the sum of their allocations; said loudly, for it must not happen."""


class StrayClaims:
    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms

    async def run(self) -> StrayClaimsDone:
        """One round; a consumer that is no server of ours is somebody else's, and left alone."""
        region = self._rooms.region
        consumers = await region.read(claims.operations_consumers)
        released: list[str] = []
        for consumer in consumers:
            if await self._is_stray(ServerId(consumer)):
                rows = await self._release(ServerId(consumer))
                self._rooms.placement.settle(rows)
                released.append(consumer)
        drifted = await region.read(claims.drift)
        return StrayClaimsDone(len(consumers), tuple(released), len(drifted))

    async def _is_stray(self, server: ServerId) -> bool:
        where = await self._rooms.region.read(lambda tx: region_servers.find(tx, server))
        if where is None or where.operation is not None:
            return False
        found = await records.find(self._rooms, server)
        if found.missing_in is not None:
            return False
        return found.server is None or found.server.deleted or found.server.host is None

    async def _release(self, server: ServerId) -> tuple[Row, ...]:
        """Looked at again in the transaction that releases: an operation may have taken the server since."""

        def work(tx: Tx) -> tuple[Row, ...]:
            where = region_servers.find(tx, server)
            if where is None or where.operation is not None:
                return ()
            return self._rooms.placement.release(tx, server)

        return await self._rooms.region.write(work)
