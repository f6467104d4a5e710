"""The specification of a guest that is made again on its host: with its ports as they are bound now at the network
service.

A service user that lost its role gets empty lists, and a server must not lose its NICs for that: a NIC whose port is
not listed is left out only when the service says that this very port does not exist (RULES §22).
"""

import asyncio
from collections.abc import Iterable

import msgspec

from moorage.model.errors import Conflict, Unavailable
from moorage.model.network import NetworkFacts, Port
from moorage.model.request_groups import ALLOCATION
from moorage.model.server import Server
from moorage.operations.context import SagaContext


class Cards(msgspec.Struct, frozen=True):
    """The ports of a server in the order of its NICs, and their networks."""

    ports: tuple[Port, ...] = ()
    networks: dict[str, NetworkFacts] = {}


GUARANTEE_NOT_SHOWN = "guarantee_not_shown"


def refuse_hidden_guarantees(ports: Iterable[Port], server: Server) -> None:
    """Refuse to go on with a port that has a guarantee by its binding or by the record, when the network service does not show what it
    asks of its host: it would be bound without, and its claim released. A port that shows that it asks for nothing is another matter.

    Raises Conflict.
    """
    guaranteed = {str(nic.port) for nic in server.nics if nic.guarantees}
    hidden = sorted(
        port.id for port in ports if not port.request_shown and (ALLOCATION in port.profile or port.id in guaranteed)
    )
    if hidden:
        raise Conflict(
            "The network service does not show what the server's ports are guaranteed.",
            private=f"port {', '.join(hidden)}: the user of [service_user] lacks the role admin (`get_port:resource_request`)",
            code=GUARANTEE_NOT_SHOWN,
        )


async def cards_of(context: SagaContext, server: Server) -> Cards:
    """The ports as bound now. Raises Conflict when guarantees are hidden from us, Unavailable when the network service does not answer, or when it hides a port and
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
    refuse_hidden_guarantees(ports, server)
    networks = {port.network for port in ports}
    answers = await asyncio.gather(*(context.network.network(each) for each in sorted(networks)))
    return Cards(ports, dict(zip(sorted(networks), answers, strict=True)))
