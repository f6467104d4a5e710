"""The server group of a server that is placed again."""

from moorage.model.server import Server
from moorage.model.world import GroupAsk
from moorage.operations.context import SagaContext
from moorage.store.region import server_groups


async def group_of(context: SagaContext, server: Server) -> GroupAsk | None:
    """What its group requires of the host; None when it has none, or the group was deleted."""
    if server.group is None:
        return None
    wanted = server.group
    group = await context.region.read(lambda tx: server_groups.get(tx, wanted))
    return None if group is None else GroupAsk(group.id, group.policy, group.max_per_host or 1)
