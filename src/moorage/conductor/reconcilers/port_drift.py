"""Corrects servers whose recorded addresses or claims differ from their ports, when no event reported it: the event was
lost (C13, N1).

A list of all ports and one of all subnets are compared with the records and claims; only a server that differs is read
alone, and corrected as after an event of the network service.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from functools import partial

import msgspec

from moorage.model.errors import Problem, Unavailable
from moorage.model.ids import CellId, ServerId
from moorage.model.network import Port
from moorage.model.network_providers import GUARANTEED
from moorage.model.resources import IPV4_ADDRESS
from moorage.model.server import Nic, Server
from moorage.operations.context import SagaContext
from moorage.operations.interfaces import port_sync
from moorage.operations.interfaces.port_sync import SyncOutcome
from moorage.operations.steps.ports import guarantees_of, held_by_all, unnamed_guarantees
from moorage.operations.steps.segment_change import shown
from moorage.store.cell import servers as cell_servers
from moorage.store.region.placement import claim_statements
from moorage.store.region.placement.claim_statements import Key

NAME = "port_drift"
PAGE = 1000
AT_ONCE = 8
LOST_AT_ONCE_MAX = 20
LOST_PART_MAX = 0.1
"""When more servers than both limits lost a port in one round, it is more likely that the network service's database is
being restored than that so many events were lost. No NIC is unplugged then, even if the service says that each port is
gone.
"""

log = logging.getLogger(__name__)


class PortDriftDone(msgspec.Struct, frozen=True):
    looked_at: int = 0
    """Servers."""
    mended: tuple[str, ...] = ()
    amiss: tuple[str, ...] = ()
    """Servers with a difference that only an operator can correct; the log names it."""
    waiting: tuple[str, ...] = ()
    """Cells that did not answer, and servers that could not be compared."""


class PortDrift:
    def __init__(self, context: SagaContext) -> None:
        self._context = context

    async def run(self) -> PortDriftDone:
        """Run one round. The records are read first: a port that is made meanwhile belongs to no record that was read."""
        held = await self._context.region.read(lambda tx: claim_statements.held_of(tx, IPV4_ADDRESS, *GUARANTEED))
        servers: list[Server] = []
        out: list[str] = []
        for cell in self._context.cells.ids:
            try:
                servers += [server async for server in self._servers_of(cell)]
            except Unavailable as problem:
                log.info("the servers of cell %s wait: %s", cell, problem)
                out.append(cell)
        ports = await self._context.network.held_by_ports()
        segments = {each.id: each.segment for each in await self._context.network.subnets()}
        differing = [
            each for each in servers if _differs(each, ports.get(each.id, {}), held.get(each.id, {}), segments)
        ]
        lost = [each for each in differing if _lacks_a_port(each, ports.get(each.id, {}))]
        believed = not too_many_lost(len(lost), sum(bool(each.nics) for each in servers))
        if not believed:
            log.error(
                "the network service does not list ports of %d servers that should have them: nothing is "
                "unplugged; check that the service user may see all ports, and that its database is current",
                len(lost),
            )
            doubted = {each.id for each in lost}
            differing = [each for each in differing if each.id not in doubted]
        slots = asyncio.Semaphore(AT_ONCE)

        async def sync(server: ServerId) -> SyncOutcome | None:
            async with slots:
                try:
                    return await port_sync.reconcile(self._context, server, segments=segments)
                except Problem as problem:  # one server's problem must not delay the others
                    log.info("server %s waits: %s", server, problem)
                    return None

        outcomes = await asyncio.gather(*(sync(each.id) for each in differing))
        mended, amiss = (
            tuple(each.id for each, outcome in zip(differing, outcomes, strict=True) if outcome is what)
            for what in (SyncOutcome.MENDED, SyncOutcome.AMISS)
        )
        waiting = (*out, *(each.id for each, outcome in zip(differing, outcomes, strict=True) if outcome is None))
        doubtful = () if believed else tuple(each.id for each in lost)
        return PortDriftDone(len(servers), mended, (*amiss, *doubtful), waiting)

    async def _servers_of(self, cell: CellId) -> AsyncIterator[Server]:
        after = ""
        while True:
            page = await self._context.cells[cell].read(partial(cell_servers.living, after=after, limit=PAGE))
            for server in page:
                yield server
            if len(page) < PAGE:
                return
            after = page[-1].id


def too_many_lost(lost: int, servers: int) -> bool:
    """Whether so many servers lost a port at once that the network service is not trusted."""
    return lost > max(LOST_AT_ONCE_MAX, LOST_PART_MAX * servers)


def _lacks_a_port(server: Server, ports: Mapping[str, Port]) -> bool:
    return any(nic.port is not None and str(nic.port) not in ports for nic in server.nics)


def _differs(
    server: Server, ports: Mapping[str, Port], held: Mapping[Key, int], segments: Mapping[str, str | None]
) -> bool:
    """Another port, address, segment or guarantee than the record has, or another claim."""
    if _lacks_a_port(server, ports):
        return True
    if server.moved is not None and server.moved.readdressed:
        ports = {port.id: port for port in shown(server, ports.values())}
    if any(nic.port is not None and _card_differs(nic, ports[str(nic.port)], segments) for nic in server.nics):
        return True
    return _comparable(server, held_by_all(server.nics)) != _comparable(server, held)


def _card_differs(nic: Nic, port: Port, segments: Mapping[str, str | None]) -> bool:
    return (
        port_sync.addresses_differ(nic, port, segments)
        or bool(unnamed_guarantees(port))
        or sorted(guarantees_of(port)) != sorted(nic.guarantees)
    )


def _comparable(server: Server, held: Mapping[Key, int]) -> dict[Key, int]:
    if not port_sync.asks_itself(server):
        return dict(held)
    return {key: amount for key, amount in held.items() if key[1] == IPV4_ADDRESS}
