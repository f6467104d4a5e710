"""`addFixedIp` and `removeFixedIp`, which ended with 2.43: an address more or less on a port that the server has.

The network service gives and takes it; then the record and, on a routed network, the claim are made to say what it says, as
they are when somebody changes a port there (`operations/interfaces/port_sync.py`).  Should this process die in between, the network
service's own word of the change brings it about.

Addresses that a move only holds for a revert are not the owner's to take away, and no address is given beside them.
"""

from moorage.model.errors import NotFound
from moorage.model.server import Server
from moorage.operations.context import SagaContext
from moorage.operations.interfaces import port_sync
from moorage.operations.steps import segment_change


async def add(context: SagaContext, server: Server, network: str) -> None:
    """Raises NotFound when the server has no port there, Conflict when there is no address left."""
    await context.network.add_address(server.id, network, held=segment_change.held_addresses(server))
    await port_sync.reconcile(context, server.id)


async def remove(context: SagaContext, server: Server, address: str) -> None:
    """Raises NotFound when the server does not have it."""
    if address in segment_change.held_addresses(server):
        raise NotFound(f"Instance {server.id} does not have fixed IP '{address}'.")
    await context.network.drop_address(server.id, address)
    await port_sync.reconcile(context, server.id)
