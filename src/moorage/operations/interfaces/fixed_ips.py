"""`addFixedIp` and `removeFixedIp`, which ended with 2.43: one more or one fewer address on a port of the server.

The network service changes the port; then the record and, on a routed network, the claim are changed to match, as after
any change of a port there (`operations/interfaces/port_sync.py`). If this process ends in between, the event of the
network service causes the same.

Addresses that a move only holds for a revert cannot be removed, and no address is added while they are held.
"""

from moorage.model.errors import NotFound
from moorage.model.server import Server
from moorage.operations.context import SagaContext
from moorage.operations.interfaces import port_sync
from moorage.operations.steps import segment_change


async def add(context: SagaContext, server: Server, network: str) -> None:
    """Add an address of the network to the server's port there.

    Raises NotFound when the server has no port on the network, Conflict when no address is left.
    """
    await context.network.add_address(server.id, network, held=segment_change.held_addresses(server))
    await port_sync.reconcile(context, server.id)


async def remove(context: SagaContext, server: Server, address: str) -> None:
    """Remove the address from the server's port. Raises NotFound when the server does not have it."""
    if address in segment_change.held_addresses(server):
        raise NotFound(f"Instance {server.id} does not have fixed IP '{address}'.")
    await context.network.drop_address(server.id, address)
    await port_sync.reconcile(context, server.id)
