"""Servers that show or hold other addresses than their ports have, though nobody said so: the event was lost (C13, N1).

One list of all ports is held against the records and the claims; only a server that differs is looked at by itself, and mended as
if the network service had told of it.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from functools import partial

import msgspec

from moorage.model.ids import CellId, ProviderId, ServerId
from moorage.model.network import FixedIp
from moorage.model.resources import IPV4_ADDRESS
from moorage.model.server import Server
from moorage.operations import port_truth
from moorage.operations.port_truth import Found
from moorage.operations.rooms import Rooms
from moorage.operations.steps.ports import addresses_held
from moorage.store.cell import servers as cell_servers
from moorage.store.region.placement import claims

NAME = "port_drift"
PAGE = 1000
AT_ONCE = 8


class PortDriftDone(msgspec.Struct, frozen=True):
    looked_at: int = 0
    """Servers."""
    mended: tuple[str, ...] = ()


class PortDrift:
    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms

    async def run(self) -> PortDriftDone:
        """One round. The records are read first: what is made while we look is on no list of ours."""
        held = await self._rooms.region.read(lambda tx: claims.held_of(tx, IPV4_ADDRESS))
        servers = [server for cell in self._rooms.cells.ids async for server in self._servers_of(cell)]
        ports = await self._rooms.network.addresses()
        differing = [each for each in servers if _differs(each, ports.get(each.id, {}), held.get(each.id, {}))]
        slots = asyncio.Semaphore(AT_ONCE)

        async def mend(server: ServerId) -> bool:
            async with slots:
                return await port_truth.look(self._rooms, server) is Found.MENDED

        mended = await asyncio.gather(*(mend(each.id) for each in differing))
        return PortDriftDone(len(servers), tuple(each.id for each, was in zip(differing, mended, strict=True) if was))

    async def _servers_of(self, cell: CellId) -> AsyncIterator[Server]:
        after = ""
        while True:
            page = await self._rooms.cells[cell].read(partial(cell_servers.living, after=after, limit=PAGE))
            for server in page:
                yield server
            if len(page) < PAGE:
                return
            after = page[-1].id


def _differs(server: Server, ports: Mapping[str, tuple[FixedIp, ...]], held: Mapping[ProviderId, int]) -> bool:
    """Another port, another address, or another claim than the record tells of."""
    recorded = {str(nic.port): {each.address for each in nic.addresses} for nic in server.nics if nic.port is not None}
    if any(port not in ports or {each.address for each in ports[port]} != had for port, had in recorded.items()):
        return True
    return addresses_held(server.nics) != dict(held)
