"""Servers of hosts, cells and segments, each with the scheduler request that its evacuation would make; nothing is
begun.

Ports are taken from the servers' records. Ports with guarantees and virtual functions are read at the network service,
because only it knows their resource requests.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from moorage.model.errors import Conflict
from moorage.model.ids import CellId, ProviderId
from moorage.model.network import FixedIp, NetworkFacts, Port
from moorage.model.request_groups import FUNCTION_VNIC_TYPES
from moorage.model.resident import Resident
from moorage.model.resources import IPV4_ADDRESS
from moorage.model.server import Nic, Server
from moorage.model.world import GroupAsk
from moorage.operations.boot.scheduler_hints import hinted_again
from moorage.operations.context import SagaContext
from moorage.operations.evacuate.evacuate_input import Evacuate
from moorage.operations.resize.resize_input import tries_of
from moorage.operations.steps.guest_respawn import Cards, cards_of
from moorage.operations.steps.ports import held_by_all
from moorage.operations.steps.server_group import group_of
from moorage.operations.unshelve_input import needs_of_server
from moorage.store.cell import servers as cell_servers

SERVERS_MAX = 20_000
"""How many servers one request may concern."""
PORTS_READ_MAX = 2_000
"""For how many of them the ports are read at the network service."""
READ_AT_ONCE = 16
PAGE = 1_000
REST_EVERY = 100
"""After how many servers the event loop may run other tasks."""

Concerned = Callable[[Server], bool]


async def residents_of(context: SagaContext, concerned: Concerned) -> tuple[Resident, ...]:
    """The residents of all cells. Raises Conflict when there are too many, Unavailable when a cell or the network
    service does not answer.
    """
    servers: list[Server] = []
    for cell in context.cells.ids:
        servers += await _of_cell(context, cell, concerned)
        if len(servers) > SERVERS_MAX:
            raise Conflict(f"More than {SERVERS_MAX} servers are concerned; ask about fewer hosts at once.")
    reading = _Reading(context, {each.id: each for each in await _facts(context, servers)})
    with_ports = [each for each in servers if _wants_ports(each)]
    if len(with_ports) > PORTS_READ_MAX:
        raise Conflict(
            f"More than {PORTS_READ_MAX} servers with guarantees are concerned; ask about fewer hosts at once."
        )
    cards = dict(zip([each.id for each in with_ports], await reading.cards(with_ports), strict=True))
    residents: list[Resident] = []
    for number, server in enumerate(servers):
        residents.append(await reading.resident(server, cards.get(server.id)))
        if number % REST_EVERY == REST_EVERY - 1:
            await asyncio.sleep(0)
    return tuple(residents)


async def _of_cell(context: SagaContext, cell: CellId, concerned: Concerned) -> list[Server]:
    servers: list[Server] = []
    after = ""
    while len(servers) <= SERVERS_MAX:
        page = await context.cells[cell].read(lambda tx, after=after: cell_servers.living(tx, after, PAGE))  # type: ignore[misc]
        servers += [each for each in page if each.host is not None and each.provider is not None and concerned(each)]
        if len(page) < PAGE:
            break
        after = page[-1].id
    return servers


async def _facts(context: SagaContext, servers: list[Server]) -> list[NetworkFacts]:
    wanted = sorted({str(nic.network) for server in servers for nic in server.nics})
    return list(await asyncio.gather(*(context.network.network(each) for each in wanted)))


def _wants_ports(server: Server) -> bool:
    return any(nic.guarantees or nic.vnic_type in FUNCTION_VNIC_TYPES for nic in server.nics)


class _Reading:
    """Reads once what servers have in common."""

    def __init__(self, context: SagaContext, networks: dict[str, NetworkFacts]) -> None:
        self._context, self._networks = context, networks
        self._groups: dict[str, GroupAsk | None] = {}
        self._places = asyncio.Semaphore(READ_AT_ONCE)

    async def cards(self, servers: list[Server]) -> list[Cards]:
        async def one(server: Server) -> Cards:
            async with self._places:
                return await cards_of(self._context, server)

        return await asyncio.gather(*map(one, servers))

    async def resident(self, server: Server, cards: Cards | None) -> Resident:
        assert server.provider is not None
        assert server.cell is not None
        near, far = await hinted_again(self._context, server) if server.hints else (None, ())
        evacuation = Evacuate(
            server=server,
            seq=0,
            migration="",
            needs=needs_of_server(server, settled=True),
            group=await self._group(server),
            near=near,
            far=far,
            across=self._context.settings.allow_move_across_segments,
        )
        if cards is None:
            cards = Cards(tuple(_port(nic) for nic in server.nics), self._networks)
        tries = tries_of(evacuation, server, cards, server.cell, ())
        held = {key[0] for key in held_by_all(server.nics) if key[1] == IPV4_ADDRESS}
        return Resident(server.id, server.provider, tuple(ProviderId(each) for each in sorted(held)), tries.asks)

    async def _group(self, server: Server) -> GroupAsk | None:
        if server.group is None:
            return None
        if server.group not in self._groups:
            self._groups[server.group] = await group_of(self._context, server)
        return self._groups[server.group]


def _port(nic: Nic) -> Port:
    """The port as the record has it: enough for a port without guarantees."""
    changed: dict[str, Any] = {} if nic.addresses else {"ip_allocation": "none"}
    return Port(
        id=str(nic.port or ""),
        network=str(nic.network),
        mac=nic.mac,
        index=nic.index,
        ours=nic.ours,
        fixed_ips=tuple(FixedIp(each.subnet, each.address) for each in nic.addresses),
        vnic_type=nic.vnic_type,
        address_chosen=nic.chosen,
        **changed,
    )
