"""Ports that name a server which does not have them: a call that arrived after it was taken back (RULES §7).

A port is stray when no operation holds its server and the server's record does not list it.  Ours (its MAC was minted for that
server) is deleted, a user's is let go.
Ports of devices that are no servers of ours are never touched, nor those of a server whose record its cell has lost (RULES §22).

Operations go on while this looks.  So only the ports that were seen are touched, each at the revision it was seen with: what an
operation took or bound since then stays.  And a record that does not list a port is one witness (RULES §22): the other is the
network service, which does not have a stray where the server is.  A port that is bound to the very host of a server whose record
does not list it is in use as far as anybody can tell: it stays, and the operator is told.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence

import msgspec

from moorage.conductor.bulk_precheck import precheck
from moorage.model.errors import Problem
from moorage.model.ids import ServerId
from moorage.model.network import Port
from moorage.operations.context import SagaContext
from moorage.operations.steps import servers as records
from moorage.sql import Tx
from moorage.store.cell import server_queries
from moorage.store.region import servers as region_servers

NAME = "stray_ports"
AT_ONCE = 8

logger = logging.getLogger(__name__)


class OrphanPortsDone(msgspec.Struct, frozen=True):
    looked_at: int = 0
    """Devices."""
    mended: int = 0
    """Servers of which ports were deleted or let go."""
    amiss: tuple[str, ...] = ()
    """Ports that are bound where their servers are, and that no record lists: the operator's to judge."""
    waiting: tuple[str, ...] = ()
    """Servers whose cell, or the network service, did not answer."""


class ReleasedPorts(msgspec.Struct, frozen=True):
    released: int = 0
    amiss: tuple[str, ...] = ()
    waits: bool = False


class OrphanPorts:
    def __init__(self, context: SagaContext) -> None:
        self._context = context

    async def run(self) -> OrphanPortsDone:
        """One round. The ports are read first: who holds a server by then has not finished with them."""
        devices = await self._context.network.devices()
        slots = asyncio.Semaphore(AT_ONCE)

        async def repair_one(device: str, ports: Mapping[str, Port]) -> ReleasedPorts:
            async with slots:
                try:
                    return await self.repair(ServerId(device), ports)
                except Problem as problem:  # its cell is out, say: no reason to leave the others
                    logger.info("ports of server %s wait: %s", device, problem)
                    return ReleasedPorts(waits=True)

        def cleared(tx: Tx, servers: Sequence[ServerId]) -> Collection[ServerId]:
            listed = server_queries.listed_ports(tx, servers)
            return {server for server, ports in listed.items() if devices[server].keys() <= ports}

        seen = await precheck(self._context, devices, cleared)
        mended = await asyncio.gather(*(repair_one(server, devices[server]) for server in seen.suspects))
        return OrphanPortsDone(
            len(devices),
            sum(each.released > 0 for each in mended),
            tuple(port for each in mended for port in each.amiss),
            (*seen.waiting, *(server for server, each in zip(seen.suspects, mended, strict=True) if each.waits)),
        )

    async def repair(self, server: ServerId, ports: Mapping[str, Port]) -> ReleasedPorts:
        """Of these ports, which were seen with the server's id, those that it does not have are deleted or let go."""
        where = await self._context.region.read(lambda tx: region_servers.find(tx, server))
        if where is None or where.operation is not None:
            return ReleasedPorts()
        found = await records.find(self._context, server)
        if found.missing_in is not None:
            return ReleasedPorts()
        host, listed = None, set[str]()
        if found.server is not None and not found.server.deleted:
            host = found.server.host
            listed = {str(nic.port) for nic in found.server.nics if nic.port is not None}
        strays = [port for key, port in ports.items() if key not in listed]
        if not strays or await self._moved(server, where.op_seq):
            return ReleasedPorts()
        amiss = tuple(port.id for port in strays if port.host and port.host == host)
        for port in amiss:
            logger.error("port %s is bound where server %s is, whose record does not list it: it stays", port, server)
        released = await self._context.network.release_strays(server, [each for each in strays if each.id not in amiss])
        return ReleasedPorts(released, amiss)

    async def _moved(self, server: ServerId, seq: int) -> bool:
        """Whether an operation came, or came and went, while the record was read."""
        now = await self._context.region.read(lambda tx: region_servers.find(tx, server))
        return now is None or now.operation is not None or now.op_seq != seq
