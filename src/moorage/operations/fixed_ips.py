"""`addFixedIp` and `removeFixedIp`, which ended with 2.43: an address more or less on a port that the server has.

The network service gives and takes it; then the record and, on a routed network, the claim are made to say what it says, as
they are when somebody changes a port there (`operations/port_truth.py`).  Should this process die in between, the network
service's own word of the change brings it about.

Addresses that a move only holds for a revert are not the owner's to take away, and no address is given beside them.
"""

from moorage.model.errors import NotFound
from moorage.model.server import Server
from moorage.operations import port_truth
from moorage.operations.rooms import Rooms
from moorage.operations.steps import crossing


async def add(rooms: Rooms, server: Server, network: str) -> None:
    """Raises NotFound when the server has no port there, Conflict when there is no address left."""
    await rooms.network.add_address(server.id, network, held=crossing.held_addresses(server))
    await port_truth.look(rooms, server.id)


async def remove(rooms: Rooms, server: Server, address: str) -> None:
    """Raises NotFound when the server does not have it."""
    if address in crossing.held_addresses(server):
        raise NotFound(f"Instance {server.id} does not have fixed IP '{address}'.")
    await rooms.network.drop_address(server.id, address)
    await port_truth.look(rooms, server.id)
