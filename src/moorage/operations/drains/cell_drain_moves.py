"""How servers leave a cell that is drained, and whether all of them have a place elsewhere (N7).

Servers on hosts leave with their host (`drain_moves.py`), to any open cell. The record of an offloaded server goes to a
cell in which it could be unshelved.
"""

import msgspec

from moorage.model.cell_drain import CellPlan, HostDrainPlan, RecordRow
from moorage.model.drain import DrainProgress, DrainServer
from moorage.model.errors import Conflict, Problem, Unavailable
from moorage.model.ids import CellId
from moorage.model.principal import Principal
from moorage.model.server import Server, VmState
from moorage.model.verdict import Verdict
from moorage.model.world import Ask
from moorage.operations.context import SagaContext
from moorage.operations.drains import drain_moves
from moorage.operations.dry_run import dry_run
from moorage.operations.preview import Previewed, previewing
from moorage.operations.registry import SAGAS
from moorage.operations.shelve import accept_unshelve, move_record
from moorage.operations.shelve.accept_unshelve import UnshelveWish
from moorage.scheduler.trial import Trial
from moorage.store.cell import hosts as cell_hosts
from moorage.store.cell import servers as cell_servers

SERVERS_MAX = 5_000
"""The largest number of servers in a cell for which a plan is made."""
PAGE = 1_000
LIVE_ACROSS = "live_migrate/2"
NOWHERE = "no other cell is open and answers"


def live(context: SagaContext, cell: CellId) -> bool:
    """Whether running servers can leave the cell while they run: it has a link to another cell."""
    return LIVE_ACROSS in SAGAS and any(cell in pair for pair in context.settings.cell_links)


async def hosts_of(context: SagaContext, cell: CellId) -> list[str]:
    """The names of the cell's hosts. Raises Unavailable."""
    return sorted(each.host for each in await context.cells[cell].read(cell_hosts.listed))


async def offloaded(context: SagaContext, cell: CellId, most: int) -> list[Server]:
    """Servers of this cell that are on no host, in the order of their ids; at most `most`."""
    servers: list[Server] = []
    after = ""
    while len(servers) < most:
        page = await context.cells[cell].read(
            lambda tx, after=after: cell_servers.in_state(tx, VmState.SHELVED_OFFLOADED, after, PAGE)  # type: ignore[misc]
        )
        servers += page
        if len(page) < PAGE:
            break
        after = page[-1].id
    return servers[:most]


# ------------------------------------------------------------------------------------------------------ the plan


async def planned(context: SagaContext, cell: CellId, user: str, project: str, *, wants_live: bool) -> CellPlan:
    """The plan, host by host, the largest server of each host first. Each is placed in the room that earlier ones
    leave; hosts of the drained cell take none. Raises Unavailable when the cell does not answer, Conflict when it has
    more than `SERVERS_MAX` servers.
    """
    await context.placement.catch_up()
    trial = Trial(context.placement.world(), context.placement.rank_on)
    names = await hosts_of(context, cell)
    for name in names:
        trial.disable(name)
    hosts: list[HostDrainPlan] = []
    count = 0
    by_live = wants_live and live(context, cell)
    for name in names:
        servers = await context.cells[cell].read(lambda tx, name=name: cell_servers.on_host(tx, name))  # type: ignore[misc]
        count += len(servers)
        if count > SERVERS_MAX:
            raise Conflict(f"Cell {cell} has more than {SERVERS_MAX} servers; drain some of its hosts first.")
        order = sorted(servers, key=lambda each: (-each.flavor.ram_mib, -each.flavor.vcpus, each.id))
        rows = [await _on_host(context, trial, each, name, user, project, by_live=by_live) for each in order]
        left = await drain_moves.left_before(context, cell, name, {each.id for each in servers})
        hosts.append(HostDrainPlan(name, (*rows, *left)))
    records = await offloaded(context, cell, SERVERS_MAX)
    return CellPlan(tuple(hosts), tuple([await place_of(context, trial, each, user, project) for each in records]))


async def _on_host(
    context: SagaContext, trial: Trial, server: Server, host: str, user: str, project: str, *, by_live: bool
) -> DrainServer:
    if context.hosts.is_silent(host):
        way = drain_moves.way_of(server, live=by_live)
        return DrainServer(server.id, server.name, way, DrainProgress.LEFT, why="its host is silent")
    return await drain_moves.planned_one(
        context, trial, server, drain_moves.MoveAway(host, user, project, by_live, across=True)
    )


async def place_of(context: SagaContext, trial: Trial, server: Server, user: str, project: str) -> RecordRow:
    """A cell in which an offloaded server could be unshelved: the one with the most room now, or one that could have it
    at all.
    """
    row = RecordRow(server.id, server.name)
    try:
        asks = await _asks(context, server, user, project)
    except Unavailable:
        raise
    except Conflict as busy:  # another operation works on it, which will end
        return msgspec.structs.replace(row, why=f"busy: {busy.public}")
    except Problem as refused:
        return msgspec.structs.replace(row, progress=DrainProgress.LEFT, why=refused.public)
    verdict: Verdict | None = None
    for ask in (*asks, *(msgspec.structs.replace(each, resources={}, groups=()) for each in asks)):
        verdict = trial.decide(_elsewhere(context, ask, server))
        if verdict.best:
            return msgspec.structs.replace(row, to=verdict.best[0].cell)
    why = NOWHERE if verdict is None else verdict.fault()
    return msgspec.structs.replace(row, progress=DrainProgress.LEFT, why=why)


def _elsewhere(context: SagaContext, ask: Ask, server: Server) -> Ask:
    others = tuple(cell for cell in context.cells.ids if cell != server.cell)
    return msgspec.structs.replace(ask, cells=others, prefer_cell=server.cell)


async def _asks(context: SagaContext, server: Server, user: str, project: str) -> tuple[Ask, ...]:
    """The scheduler requests of its unshelve, for hosts of all cells."""

    def check(now: Server) -> None:
        if now.vm_state is not VmState.SHELVED_OFFLOADED or now.task_state is not None:
            raise Conflict("another action on it is under way")

    principal, wish = Principal(user, project=project), UnshelveWish(cross_cell=True)
    try:
        await accept_unshelve.begin(previewing(context), principal, server, wish, check=check)
    except Previewed as previewed:
        (new,) = previewed.accepted
        input = msgspec.json.decode(new.asked, type=SAGAS[new.saga].input_type)
        _, tries = await dry_run.wanted(context, drain_moves.of_all_cells(input))
        return () if tries is None else tries.asks
    return ()


# ----------------------------------------------------------------------------------------------- single servers


async def leave(
    context: SagaContext, row: RecordRow, server: Server, user: str, project: str, request_id: str
) -> RecordRow:
    """Begin the move of its record to a cell that could have it. Raises Conflict when there is none, and what its
    acceptance raises.
    """
    await context.placement.catch_up()
    trial = Trial(context.placement.world(), context.placement.rank_on)
    planned_row = await place_of(context, trial, server, user, project)
    if not planned_row.to:
        raise Conflict(planned_row.why)
    await move_record.begin(context, server.id, CellId(planned_row.to), user, project, request_id=request_id)
    return msgspec.structs.replace(row, to=planned_row.to)
