"""The doors for hosts that are emptied, and for cells that are evened out."""

from typing import Protocol

from moorage.model.asker import Asker
from moorage.model.cell_drain import CellPlan
from moorage.model.drain import SERVERS_MAX, DrainServer
from moorage.model.errors import Conflict
from moorage.model.host import Host
from moorage.model.ids import CellId
from moorage.operations import balance, cell_drain_moves, drain_moves
from moorage.operations.balance import BalancePlan
from moorage.operations.rooms import Rooms
from moorage.operations.steps import moving
from moorage.store.cell import servers as cell_servers
from moorage.store.region import drains


class DrainDoorsProtocol(Protocol):
    async def drain_plan(self, asker: Asker, host: Host, *, live: bool) -> tuple[DrainServer, ...]:
        """Who goes where, and who stays. Raises Conflict: nobody hears the host, or it has more servers than are planned for."""
        ...

    async def cell_drain_plan(self, asker: Asker, cell: CellId, *, live: bool) -> CellPlan:
        """Who of the cell goes where, and who stays. Raises Conflict: it has more servers than are planned for."""
        ...

    async def balance_plan(self, asker: Asker, moves_max: int) -> BalancePlan:
        """Which moves would even out the cells. Raises Conflict: the token is of no project."""
        ...


class DrainDoors:
    rooms: Rooms

    async def cell_drain_plan(self, asker: Asker, cell: CellId, *, live: bool) -> CellPlan:
        if asker.project is None:
            raise Conflict("A drain is asked for with a token of a project.")
        return await cell_drain_moves.planned(self.rooms, cell, asker.user, asker.project, wants_live=live)

    async def balance_plan(self, asker: Asker, moves_max: int) -> BalancePlan:
        return await balance.planned(self.rooms, asker, moves_max)

    async def drain_plan(self, asker: Asker, host: Host, *, live: bool) -> tuple[DrainServer, ...]:
        moving.refuse_silent(self.rooms, host.host)
        servers = await self.rooms.cells[host.cell].read(lambda tx: cell_servers.on_host(tx, host.host))
        if len(servers) > SERVERS_MAX:  # before the work, not after it
            raise Conflict(
                f"Host {host.host} has {len(servers)} servers; at most {SERVERS_MAX} are moved by one drain."
            )
        if asker.project is None:
            raise Conflict("A drain is asked for with a token of a project.")
        others = await self.rooms.region.read(drains.open_ones)
        left = await drain_moves.left_before(self.rooms, host.cell, host.host, {each.id for each in servers})
        rows = await drain_moves.planned(
            self.rooms,
            host.host,
            servers,
            asker.user,
            asker.project,
            [each for each in others if each.host != host.host],
            live=live,
        )
        return (*rows, *left)
