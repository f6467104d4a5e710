"""Plans which servers would be moved between cells so that the cells' memory and addresses are used evenly. Nothing is
begun, and nothing written (N7).

The plan grows move by move (`scheduler/balance.py`). For the server whose move would help most, a migration request is
processed like a real one up to its first write, so it is refused for the same reasons, and the scheduler gets the same
request as for a real claim.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from moorage.model.errors import Conflict, Problem, Unavailable
from moorage.model.ids import CellId, ServerId
from moorage.model.principal import Principal
from moorage.model.resources import IPV4_ADDRESS
from moorage.model.server import Server, VmState
from moorage.model.verdict import Verdict
from moorage.model.world import World
from moorage.operations.context import SagaContext
from moorage.operations.drains import drain_moves
from moorage.operations.dry_run import dry_run
from moorage.operations.preview import Previewed, previewing
from moorage.operations.registry import SAGAS
from moorage.operations.resize import accept_resize
from moorage.operations.resize.accept_resize import ResizeWish
from moorage.operations.steps.guest_respawn import Cards
from moorage.operations.steps.ports import held_by, held_by_all, nic_of
from moorage.scheduler.balance import Balance, Level, MovableServer, MoveRequest, ProposedMove
from moorage.scheduler.trial import Trial
from moorage.store.cell import servers as cell_servers

MOVES, MOVES_MAX = 20, 100
ASKED_MAX = 300
"""For how many servers a place is looked for, with calls to the network service."""
SERVERS_MAX = 10_000
"""How many servers of one cell are considered; of a larger cell, those with the lowest ids."""
PAGE = 1_000
CAUSES_MAX = 50
GIB = 1 << 30
MOVABLE = (VmState.ACTIVE, VmState.STOPPED)
NO_GAIN = "its addresses would make the cells less even"


class PlannedMove(msgspec.Struct, frozen=True):
    """One move of the plan, and its cost."""

    server: ServerId
    name: str
    project: str
    from_cell: CellId
    from_host: str
    cell: CellId
    host: str
    guest_off: bool
    """Whether the guest runs and would be off during the move."""
    send_bytes: int
    """Bytes of its disk, at most: sent to the image service, and from there to its new host."""
    unevenness: float
    """How uneven the cells are after this move."""


class BalancePlan(msgspec.Struct, frozen=True):
    before: tuple[Level, ...]
    after: tuple[Level, ...]
    unevenness: float
    moves: tuple[PlannedMove, ...]
    """Best first; each fits, in whatever order they are made."""
    stay: dict[str, int]
    """Reason → number of considered servers that stay for it."""
    cells_out: tuple[CellId, ...] = ()
    whole: bool = True
    """False when there were more servers than are considered."""


class _Residents(NamedTuple):
    servers: dict[ServerId, Server]
    out: tuple[CellId, ...]
    whole: bool


async def planned(context: SagaContext, principal: Principal, moves_max: int = MOVES) -> BalancePlan:
    """Return the plan. Raises Unavailable when the region's database or the network service does not answer, Conflict
    when the token has no project.
    """
    if principal.project is None:
        raise Conflict("A plan of moves needs a token of a project.")
    looked = await _read_servers(context)
    await context.placement.catch_up()
    trial = Trial(context.placement.world(), context.placement.rank_on)
    residents = [_resident(each) for each in looked.servers.values() if _in_service(trial.world, each)]
    balance = Balance(trial, residents, looked.out)
    stay = Counter[str]()
    for _ in range(ASKED_MAX):
        best = None if len(balance.moves) >= moves_max else await asyncio.to_thread(balance.best)
        if best is None:
            break
        one, target = best
        try:
            wish = await _wish(context, principal, looked.servers[one.server])
        except Problem as refused:
            if isinstance(refused, Unavailable):
                raise
            balance.leave(one)
            stay[refused.public] += 1
            continue
        placed = balance.place(one, target, wish)
        if not isinstance(placed, ProposedMove):
            stay[NO_GAIN if placed is None else _cause(placed)] += 1
    moves = [_planned(looked.servers[each.resident.server], each) for each in balance.moves]
    causes = dict(stay.most_common(CAUSES_MAX))
    return BalancePlan(
        balance.before, balance.levels.rounded(), balance.start, tuple(moves), causes, looked.out, looked.whole
    )


async def _read_servers(context: SagaContext) -> _Residents:
    """Servers that run or are off, cell by cell."""
    by_id: dict[ServerId, Server] = {}
    out: list[CellId] = []
    whole = True
    for cell in context.cells.ids:
        try:
            for state in MOVABLE:
                servers, all_of_them = await _of_cell(context, cell, state)
                by_id |= {each.id: each for each in servers}
                whole &= all_of_them
        except Unavailable:
            out.append(cell)
    return _Residents(by_id, tuple(out), whole)


async def _of_cell(context: SagaContext, cell: CellId, state: VmState) -> tuple[list[Server], bool]:
    servers: list[Server] = []
    after = ""
    while len(servers) < SERVERS_MAX:
        page = await context.cells[cell].read(lambda tx, after=after: cell_servers.in_state(tx, state, after, PAGE))  # type: ignore[misc]
        servers += [each for each in page if each.host is not None and each.cell == cell]
        if len(page) < PAGE:
            return servers, True
        after = page[-1].id
    return servers, False


def _in_service(world: World, server: Server) -> bool:
    """Servers on other hosts leave with their host, by a drain or an evacuation."""
    slot = world.slots_by_name.get(str(server.host))
    return slot is not None and bool(world.enabled[slot] and world.alive[slot])


def _resident(server: Server) -> MovableServer:
    assert server.cell is not None
    held = held_by_all(server.nics)
    addresses = sorted((provider, n) for (provider, resource), n in held.items() if resource == IPV4_ADDRESS)
    return MovableServer(server.id, server.cell, server.flavor.ram_mib, tuple(addresses), _bytes(server))


def _bytes(server: Server) -> int:
    return 0 if server.volume_backed else server.flavor.disk_gib * GIB


async def _wish(context: SagaContext, principal: Principal, server: Server) -> MoveRequest:
    """The request of its migration. Raises what its acceptance raises."""

    def check(now: Server) -> None:
        if now.host != server.host or now.vm_state is not server.vm_state or now.task_state is not None:
            raise Conflict("another action on it is under way")

    input: Any = None
    try:
        await accept_resize.begin(previewing(context), principal, server, ResizeWish(cross_cell=True), check=check)
    except Previewed as previewed:
        (new,) = previewed.accepted
        input = msgspec.json.decode(new.asked, type=SAGAS[new.saga].input_type)
    cards, tries = await dry_run.wanted(context, drain_moves.of_all_cells(input))
    if tries is None:
        raise Conflict("it cannot be migrated")
    return MoveRequest(tries.asks, _held(cards))


def _held(cards: Cards) -> Sequence[tuple[Any, int] | None]:
    """For each NIC, what it has of the segment that it may leave."""
    held = (held_by(nic_of(port, cards.networks.get(port.network))) for port in cards.ports)
    return [next(((key[0], n) for key, n in each.items() if key[1] == IPV4_ADDRESS), None) for each in held]


def _cause(verdict: Verdict) -> str:
    """The reason that refuses the most hosts of the cell."""
    counts = {cause: n for cause, n in verdict.ledger.counts.items() if cause != "in another cell"}
    return max(counts, key=lambda cause: (counts[cause], cause), default="no host of the other cell is there")


def _planned(server: Server, move: ProposedMove) -> PlannedMove:
    return PlannedMove(
        server=server.id,
        name=server.name,
        project=server.project,
        from_cell=move.resident.cell,
        from_host=str(server.host),
        cell=move.choice.cell,
        host=move.choice.name,
        guest_off=server.vm_state is VmState.ACTIVE,
        send_bytes=move.resident.cost,
        unevenness=move.unevenness,
    )
