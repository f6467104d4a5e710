"""Ports that name a server which does not have them: a call that arrived after it was taken back (RULES §7).

A port is stray when no operation holds its server and the server's record does not list it.  Ours (its MAC was minted for that
server) is deleted, a user's is let go.
Ports of devices that are no servers of ours are never touched, nor those of a server whose record its cell has lost (RULES §22).
"""

import asyncio
from collections.abc import Collection

import msgspec

from moorage.model.ids import ServerId
from moorage.model.network import minted_macs
from moorage.operations.rooms import Rooms
from moorage.operations.steps import servers as records
from moorage.store.region import servers as region_servers

NAME = "stray_ports"
AT_ONCE = 8


class StrayPortsDone(msgspec.Struct, frozen=True):
    looked_at: int = 0
    """Devices."""
    mended: int = 0
    """Servers of which ports were deleted or let go."""


class StrayPorts:
    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms

    async def run(self) -> StrayPortsDone:
        """One round. The ports are read first: who holds a server by then has not finished with them."""
        devices = await self._rooms.network.devices()
        slots = asyncio.Semaphore(AT_ONCE)

        async def mend(device: str, ports: Collection[str]) -> bool:
            async with slots:
                return await self._mend(ServerId(device), ports)

        mended = await asyncio.gather(*(mend(device, ports) for device, ports in devices.items()))
        return StrayPortsDone(len(devices), sum(mended))

    async def _mend(self, server: ServerId, ports: Collection[str]) -> bool:
        where = await self._rooms.region.read(lambda tx: region_servers.find(tx, server))
        if where is None or where.operation is not None:
            return False
        found = await records.find(self._rooms, server)
        if found.missing_in is not None:
            return False
        listed = set()
        if found.server is not None and not found.server.deleted:
            listed = {str(nic.port) for nic in found.server.nics if nic.port is not None}
        if set(ports) <= listed:
            return False
        await self._rooms.network.release_ports(server, minted_macs(server), keep=listed)
        return True
