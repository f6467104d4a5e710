"""Removes ports that name a server which does not have them: from a call that arrived after its undo (RULES §7).

A port is an orphan when no operation holds its server and the server's record does not list it. Ours (its MAC was
minted for that server) is deleted, a user's is released. Ports of devices that are not our servers are never changed,
nor those of a server whose record its cell has lost (RULES §22).

Operations go on while this reads. So only the ports that were read are changed, each at the revision it had: what an
operation took or bound since then stays. A record that does not list a port is one indication (RULES §22); the other is
the network service, which does not have an orphan on the server's host. A port that is bound to the server's own host
although the record does not list it may be in use: it stays, and the log reports it.
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
    """Servers of which ports were deleted or released."""
    amiss: tuple[str, ...] = ()
    """Ports that are bound to their servers' hosts, and that no record lists: an operator must decide."""
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
        """Run one round. The ports are read first: an operation that holds a server by then has not finished with them."""
        devices = await self._context.network.devices()
        slots = asyncio.Semaphore(AT_ONCE)

        async def repair_one(device: str, ports: Mapping[str, Port]) -> ReleasedPorts:
            async with slots:
                try:
                    return await self.repair(ServerId(device), ports)
                except Problem as problem:  # its cell may not answer: the others are handled all the same
                    logger.info("ports of server %s wait: %s", device, problem)
                    return ReleasedPorts(waits=True)

        def cleared(tx: Tx, servers: Sequence[ServerId]) -> Collection[ServerId]:
            listed = server_queries.listed_ports(tx, servers)
            return {server for server, ports in listed.items() if devices[server].keys() <= ports}

        checked = await precheck(self._context, devices, cleared)
        mended = await asyncio.gather(*(repair_one(server, devices[server]) for server in checked.suspects))
        return OrphanPortsDone(
            len(devices),
            sum(each.released > 0 for each in mended),
            tuple(port for each in mended for port in each.amiss),
            (*checked.waiting, *(server for server, each in zip(checked.suspects, mended, strict=True) if each.waits)),
        )

    async def repair(self, server: ServerId, ports: Mapping[str, Port]) -> ReleasedPorts:
        """Of these ports, which were read with the server's id, delete or release those that the server does not have."""
        where = await self._context.region.read(lambda tx: region_servers.find(tx, server))
        if where is None or where.operation is not None or where.may_run:
            return ReleasedPorts()
        located = await records.find(self._context, server)
        if located.judges_nothing:
            return ReleasedPorts()
        host, listed = None, set[str]()
        if located.server is not None and not located.server.deleted:
            host = located.server.host
            listed = {str(nic.port) for nic in located.server.nics if nic.port is not None}
        strays = [port for key, port in ports.items() if key not in listed]
        if not strays or await self._moved(server, where.op_seq):
            return ReleasedPorts()
        amiss = tuple(port.id for port in strays if port.host and port.host == host)
        for port in () if where.debts else amiss:  # a host that owes the port is asked for it when it is home
            logger.error(
                "port %s is bound to the host of server %s, whose record does not list it: it stays", port, server
            )
        released = await self._context.network.release_strays(server, [each for each in strays if each.id not in amiss])
        return ReleasedPorts(released, () if where.debts else amiss)

    async def _moved(self, server: ServerId, seq: int) -> bool:
        """Whether an operation began, or began and ended, while the record was read."""
        now = await self._context.region.read(lambda tx: region_servers.find(tx, server))
        return now is None or now.operation is not None or now.op_seq != seq
