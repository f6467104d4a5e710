"""The part of the server service that plans drains of hosts and cells, and the balance of cells."""

from moorage.model.cell_drain import CellPlan
from moorage.model.drain import SERVERS_MAX, DrainServer
from moorage.model.errors import Conflict
from moorage.model.host import Host
from moorage.model.ids import CellId
from moorage.model.principal import Principal
from moorage.operations import rebalance
from moorage.operations.context import SagaContext
from moorage.operations.drains import cell_drain_moves, drain_moves
from moorage.operations.rebalance import BalancePlan
from moorage.operations.steps import move_ports
from moorage.store.cell import servers as cell_servers
from moorage.store.region import drains


class DrainService:
    """Makes plans only; the conductors carry out a drain."""

    context: SagaContext

    async def cell_drain_plan(self, principal: Principal, cell: CellId, *, live: bool) -> CellPlan:
        """Where each server of the cell would go, and which stay. Raises Conflict when the cell has too many servers or
        the token has no project.
        """
        if principal.project is None:
            raise Conflict("A drain needs a token of a project.")
        return await cell_drain_moves.planned(self.context, cell, principal.user, principal.project, wants_live=live)

    async def balance_plan(self, principal: Principal, moves_max: int) -> BalancePlan:
        """The moves that would balance the cells, at most `moves_max`. Raises Conflict when the token has no project."""
        return await rebalance.planned(self.context, principal, moves_max)

    async def drain_plan(self, principal: Principal, host: Host, *, live: bool) -> tuple[DrainServer, ...]:
        """Where each server of the host would go, and which stay. Raises Conflict when the host is silent or has too many servers."""
        move_ports.refuse_silent(self.context, host.host)
        servers = await self.context.cells[host.cell].read(lambda tx: cell_servers.on_host(tx, host.host))
        if len(servers) > SERVERS_MAX:  # checked before the plan is made, which is costly
            raise Conflict(
                f"Host {host.host} has {len(servers)} servers; at most {SERVERS_MAX} are moved by one drain."
            )
        if principal.project is None:
            raise Conflict("A drain needs a token of a project.")
        others = await self.context.region.read(drains.open_ones)
        left = await drain_moves.left_before(self.context, host.cell, host.host, {each.id for each in servers})
        rows = await drain_moves.planned(
            self.context,
            host.host,
            servers,
            principal.user,
            principal.project,
            [each for each in others if each.host != host.host],
            live=live,
        )
        return (*rows, *left)
