"""Deletes soft-deleted servers for good when their time is over (Nova's `reclaim_instance_interval`).

Only the cell's record decides: its state, and the time of the deletion. A server that an operation holds is left to it.
"""

import logging

import msgspec

from moorage.model.clock import Clock
from moorage.model.errors import Doubtful, Problem
from moorage.model.ids import ServerId
from moorage.model.principal import Principal
from moorage.model.server import Server, VmState
from moorage.operations.context import SagaContext
from moorage.operations.delete import accept_delete
from moorage.operations.delete.soft_delete import may_be_restored
from moorage.store.cell import server_lists
from moorage.store.region import servers as region_servers
from moorage.store.server_lists import ServerQuery

NAME = "reclaim"
AT_ONCE_MAX = 200
"""Servers of one cell in one round; those that were changed longest ago come first."""

logger = logging.getLogger(__name__)


class ReclaimResult(msgspec.Struct, frozen=True):
    begun: tuple[ServerId, ...] = ()
    waiting: int = 0
    """Cells that did not answer."""


class Reclaim:
    """Run by the leading conductor."""

    def __init__(self, context: SagaContext, clock: Clock) -> None:
        self._context, self._clock = context, clock

    async def run(self) -> ReclaimResult:
        """Run one round: begin a delete for each server that is old enough."""
        interval_s = self._context.settings.reclaim_instance_interval_s
        if interval_s <= 0:
            return ReclaimResult()
        before = int((self._clock.now() - interval_s) * 1_000_000)
        begun: list[ServerId] = []
        waiting = 0
        query = ServerQuery(
            vm_states=(VmState.SOFT_DELETED.value,),
            soft_deleted=True,
            sort=(("updated_at", "asc"), ("id", "asc")),
            limit=AT_ONCE_MAX,
        )
        for cell in self._context.cells.ids:
            try:
                rows = await self._context.cells[cell].read(lambda tx: server_lists.page(tx, query, sealed=False))
                old = [row.server for row in rows if _old_enough(row.server, before)]
                begun += [each.id for each in old if await self._reclaim(each)]
            except Problem as problem:
                logger.info("%s: cell %s: %s", NAME, cell, problem)
                waiting += 1
        return ReclaimResult(tuple(begun), waiting)

    async def _reclaim(self, server: Server) -> bool:
        where = await self._context.region.read(lambda tx: region_servers.find(tx, server.id))
        if where is None or where.operation is not None:
            return False
        logger.info("%s: the time to restore server %s is over", NAME, server.id)
        try:
            await accept_delete.begin(self._context, Principal(user=server.user, project=server.project), server)
        except Doubtful as doubtful:
            logger.warning("%s: %s", NAME, doubtful)
            return False
        return True


def _old_enough(server: Server, before: int) -> bool:
    if server.soft_deleted_at is None:
        return False
    return server.soft_deleted_at <= before or not may_be_restored(server)
