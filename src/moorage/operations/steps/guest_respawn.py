"""The specification of a guest that is made again on its host: with its ports as they are bound now at the network
service.

A service user that lost its role gets empty lists, and a server must not lose its NICs for that: a NIC whose port is
not listed is left out only when the service says that this very port does not exist (RULES §22).
"""

import asyncio

import msgspec

from moorage.model.errors import Unavailable
from moorage.model.network import NetworkFacts, Port
from moorage.model.server import Server
from moorage.operations.context import SagaContext


class Cards(msgspec.Struct, frozen=True):
    """The ports of a server in the order of its NICs, and their networks."""

    ports: tuple[Port, ...] = ()
    networks: dict[str, NetworkFacts] = {}


async def cards_of(context: SagaContext, server: Server) -> Cards:
    """The ports as bound now. Raises Unavailable when the network service does not answer, or when it hides a port and
    does not say that it is gone.
    """
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
    answers = await asyncio.gather(*(context.network.network(each) for each in sorted(networks)))
    return Cards(ports, dict(zip(sorted(networks), answers, strict=True)))
