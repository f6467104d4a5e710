"""Corrects servers whose recorded addresses, names or claims differ from their ports, when no event reported it: the event was
lost (C13, N1), or the network service sends none, as for a network or a security group with a new name.

Lists of all ports, subnets, floating addresses and names are compared with the records and claims; only a server that differs is read
alone, and corrected as after an event of the network service.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from moorage.model.errors import Problem, Unavailable
from moorage.model.ids import CellId, ServerId
from moorage.model.network import NetworkNames, Port
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


class NetworkView(NamedTuple):
    """What the network service lists beside the ports."""

    segments: Mapping[str, str | None]
    """Subnet → segment."""
    names: NetworkNames
    floating: Mapping[str, Sequence[tuple[str, str]]]
    """Port → its floating addresses, each with the fixed one."""


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
        names, floating = await self._context.network.names(), await self._context.network.floating()
        view = NetworkView(segments, names, floating)
        differing = [each for each in servers if _differs(each, ports.get(each.id, {}), held.get(each.id, {}), view)]
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
                    return await port_sync.reconcile(self._context, server, segments=segments, names=names)
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


def _differs(server: Server, ports: Mapping[str, Port], held: Mapping[Key, int], view: NetworkView) -> bool:
    """Another port, address, segment, name or guarantee than the record has, or another claim."""
    if _lacks_a_port(server, ports):
        return True
    if server.moved is not None and server.moved.readdressed:
        ports = {port.id: port for port in shown(server, ports.values())}
    if any(nic.port is not None and _card_differs(nic, ports[str(nic.port)], view) for nic in server.nics):
        return True
    if _groups_differ(server, ports.values(), view.names):
        return True
    return _comparable(server, held_by_all(server.nics)) != _comparable(server, held)


def _groups_differ(server: Server, ports: Iterable[Port], names: NetworkNames) -> bool:
    """Whether the groups of the server's ports have other names than recorded; a group that is not listed says nothing."""
    carded = {str(nic.port) for nic in server.nics}
    ids = {group for port in ports if port.id in carded for group in port.security_groups}
    if not carded or names.groups is None or not ids <= names.groups.keys():
        return False
    return {names.groups[each] for each in ids} != set(server.security_groups)


def _card_differs(nic: Nic, port: Port, view: NetworkView) -> bool:
    return (
        port_sync.addresses_differ(nic, port, view.segments)
        or view.names.networks.get(nic.network, nic.network_name) != nic.network_name
        or {(each.address, each.fixed) for each in nic.floating} != {*view.floating.get(port.id, ())}
        or bool(unnamed_guarantees(port))
        or sorted(guarantees_of(port)) != sorted(nic.guarantees)
    )


def _comparable(server: Server, held: Mapping[Key, int]) -> dict[Key, int]:
    if not port_sync.asks_itself(server):
        return dict(held)
    return {key: amount for key, amount in held.items() if key[1] == IPV4_ADDRESS}
