"""The spec of a guest that is made again where its server is: with its ports as they are bound now, at the network service.

An account that lost its role is shown empty lists, and a server must not lose its cards for that: a card that the service does not
show is left out only when the service says of that very port that it is gone (RULES §22).
"""

import asyncio

import msgspec

from moorage.model.errors import Unavailable
from moorage.model.network import NetworkFacts, Port
from moorage.model.server import Server
from moorage.operations.context import SagaContext


class Cards(msgspec.Struct, frozen=True):
    """The ports of a server in the order of its cards, and their networks."""

    ports: tuple[Port, ...] = ()
    networks: dict[str, NetworkFacts] = {}


async def cards_of(context: SagaContext, server: Server) -> Cards:
    """As bound now. Raises Unavailable when the network service is out, or does not show a port that it does not say is gone."""
    cards = {nic.port: nic for nic in server.nics if nic.port is not None}
    if not cards:
        return Cards()
    shown = {port.id: port for port in await context.network.ports_of(server.id)}
    missing = cards.keys() - shown.keys()
    if missing:
        missing -= await context.network.ports_gone(missing, server.project)
    if missing:
        raise Unavailable(
            "The network service does not show all ports of the server now.", private=", ".join(sorted(missing))
        )
    ports = tuple(
        msgspec.structs.replace(shown[port], index=nic.index, tag=nic.tag, ours=nic.ours)
        for port, nic in sorted(cards.items(), key=lambda each: each[1].index)
        if port in shown
    )
    networks = {port.network for port in ports}
    found = await asyncio.gather(*(context.network.network(each) for each in sorted(networks)))
    return Cards(ports, dict(zip(sorted(networks), found, strict=True)))
