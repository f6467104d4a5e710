"""A small region with a past: a server that was booted, and one that an interface was attached to; for proofs."""

from typing import Literal, TypeAlias

import msgspec

from moorage.model.ids import OperationId
from moorage.model.network import NicAsk, mint_mac
from moorage.operations.all import SAGAS
from moorage.operations.attach_interface import AttachInterface
from moorage.operations.detach_interface import DetachInterface
from moorage.operations.steps import servers as records
from moorage.saga import Paper, first_lines, tell
from moorage.testing.sagas import PROVED_OPERATION
from moorage.testing.small_region import (
    NETWORK,
    NETWORK_FACTS,
    ROUTED,
    ROUTED_FACTS,
    SERVER,
    SPARE_PORT,
    SmallRegion,
    a_boot,
    a_server,
)

BOOTED = OperationId("booted")
ATTACHED = OperationId("attached")
INDEX = 2
"""The boot had two cards."""

Card: TypeAlias = Literal["made", "users", "routed"]
"""A port of ours, of the user's, and of ours on a routed network."""


async def booted(small: SmallRegion, *, guarantees: bool = False) -> SmallRegion:
    """One ACTIVE server, held by the operation that is to be proved."""
    await _boot(small, guarantees=guarantees)
    await small.hand_to(PROVED_OPERATION)
    return small


async def _boot(small: SmallRegion, *, guarantees: bool = False) -> None:
    await small.wire_segments()
    await small.fresh(a_server(), BOOTED, guarantees=guarantees)
    boot = SAGAS["boot/1"]
    asked = msgspec.structs.replace(a_boot(BOOTED), forced_host="host1")
    await tell(boot, BOOTED, asked, small.rooms, Paper(first_lines(boot), small.transact))


def attaching(card: Card, operation: OperationId = PROVED_OPERATION) -> AttachInterface:
    """What is asked of an attach to that server."""
    nic = NicAsk(INDEX, NETWORK, SPARE_PORT, ours=False)
    if card != "users":
        nic = NicAsk(INDEX, ROUTED if card == "routed" else NETWORK, mac=mint_mac(SERVER, INDEX))
    server = a_server(operation=operation)
    return AttachInterface(server, 2, nic, {NETWORK: NETWORK_FACTS, ROUTED: ROUTED_FACTS}, "req-attach", "user-1")


async def attached(small: SmallRegion, card: Card, *, guarantees: bool = False) -> SmallRegion:
    """The same server with one more interface, held by the operation that is to be proved."""
    await _boot(small, guarantees=guarantees)
    await small.hand_to(ATTACHED)
    saga = SAGAS["attach_interface/1"]
    await tell(saga, ATTACHED, attaching(card, ATTACHED), small.rooms, Paper(first_lines(saga), small.transact))
    await small.hand_to(PROVED_OPERATION)
    return small


async def detaching(small: SmallRegion, card: Card, *, gone: bool = False, guarantees: bool = False) -> DetachInterface:
    """What is asked of the detach of that interface; each such world has it with the same names."""
    await attached(small, card, guarantees=guarantees)
    server = (await records.find(small.rooms, SERVER)).server
    assert server is not None
    nic = next(each for each in server.nics if each.index == INDEX)
    return DetachInterface(server, 3, nic, gone, "req-detach", "user-1")


async def deleted_under_it(small: SmallRegion, card: Card, *, guarantees: bool = False) -> SmallRegion:
    """The same, after the network service deleted the port."""
    await attached(small, card, guarantees=guarantees)
    gone = [key for key, port in small.network.ports.items() if port.index == INDEX]
    for key in gone:
        del small.network.ports[key]
    return small
