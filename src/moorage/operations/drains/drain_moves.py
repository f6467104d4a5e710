"""How servers leave a drained host, each by an operation of its own, and whether all of them have another place (N13)."""

from collections.abc import Collection, Sequence

import msgspec

from moorage.model.drain import SERVERS_MAX, Drain, DrainProgress, DrainServer, MoveMethod
from moorage.model.errors import Conflict, Problem, Unavailable
from moorage.model.ids import CellId, ServerId
from moorage.model.principal import Principal
from moorage.model.server import Server, VmState
from moorage.operations.context import SagaContext
from moorage.operations.dry_run import dry_run
from moorage.operations.live_migrate import accept_live_migrate
from moorage.operations.live_migrate.accept_live_migrate import LiveWish
from moorage.operations.preview import Previewed, previewing
from moorage.operations.registry import SAGAS
from moorage.operations.resize import accept_resize, confirm_resize
from moorage.operations.resize.accept_resize import ResizeWish
from moorage.operations.shelve import shelve
from moorage.operations.steps import other_cells
from moorage.operations.steps import servers as records
from moorage.operations.steps.segment_change import Tries
from moorage.scheduler.trial import Trial
from moorage.store.cell import migrations

_COLD = {
    VmState.ACTIVE: MoveMethod.COLD,
    VmState.STOPPED: MoveMethod.COLD,
    VmState.SHELVED: MoveMethod.OFFLOAD,
    VmState.BUILDING: MoveMethod.COLD,  # once it is built
}
_LIVE = {**_COLD, VmState.ACTIVE: MoveMethod.LIVE, VmState.PAUSED: MoveMethod.LIVE, VmState.BUILDING: MoveMethod.LIVE}


COLD_ACROSS = "resize/2"
OWNERS_MOVE = "its owner moved it, and must confirm or revert that"
UNDECIDED = "the host may have all that is left of it: revert its move, or delete the server"


def way_of(server: Server, *, live: bool) -> MoveMethod:
    """The method for this server: live for running servers if that is wanted, cold for stopped ones. Suspended, rescued
    or broken servers are left to their owners.
    """
    return (_LIVE if live else _COLD).get(server.vm_state, MoveMethod.NONE)


def why_none(server: Server) -> str:
    if server.vm_state is VmState.RESIZED:
        return "it waits to be confirmed or reverted by its owner"
    return f"it is {server.vm_state.value}, and is moved when it is active or stopped"


class MoveAway(msgspec.Struct, frozen=True):
    """The host to leave, on whose behalf, and how."""

    host: str
    user: str
    project: str
    live: bool = False
    """Whether running guests keep running."""
    across: bool = False
    """Whether the destination may be in another cell."""


async def leave(
    context: SagaContext,
    server: Server,
    move: MoveAway,
    *,
    request_id: str = "",
) -> None:
    """Begin a server's move away from a host.

    Raises what its acceptance raises: Conflict (also when the server has left the host), Unavailable, and Invalid.
    """
    host, live, across = move.host, move.live, move.across
    way, principal = way_of(server, live=live), Principal(move.user, project=move.project)
    if across and not context.preview and way is not MoveMethod.OFFLOAD:
        await _refuse_unless_crossing(context)

    def check(now: Server) -> None:
        if now.host != host:  # its owner moved it meanwhile: a second move is not needed
            raise Conflict(f"instance {now.id} is not on host {host} any more")
        if way is MoveMethod.NONE or way_of(now, live=live) is not way or now.task_state is not None:
            raise Conflict(f"instance {now.id} is {now.vm_state.value}, and is not moved now")

    if way is MoveMethod.OFFLOAD:
        await shelve.begin_offloading(context, server.id, move.user, move.project, check=check, request_id=request_id)
    elif way is MoveMethod.LIVE:
        wish = LiveWish(cross_cell=across)
        await accept_live_migrate.begin(context, principal, server, wish, check=check, request_id=request_id)
    else:
        cold = ResizeWish(cross_cell=across)
        await accept_resize.begin(context, principal, server, cold, check=check, request_id=request_id)


async def _refuse_unless_crossing(context: SagaContext) -> None:
    """Raises Unavailable while some process does not know moves across cells: the server would stay in its own cell."""
    if not await other_cells.all_know(context):
        raise Unavailable("Moves across cells begin when all APIs are of this release.")
    await context.dispatcher.choose(COLD_ACROSS)


async def left_before(context: SagaContext, cell: CellId, host: str, known: Collection[ServerId]) -> list[DrainServer]:
    """Servers that their owners moved away from the host and that wait for confirm or revert: what they hold there
    stays with them.
    """
    leaving = await context.cells[cell].read(lambda tx: migrations.leaving(tx, host))
    rows = list[DrainServer]()
    for id in sorted(leaving.stay - set(known))[:SERVERS_MAX]:
        server = (await records.find(context, id)).server
        if server is not None and server.moved is not None and server.moved.host == host != server.host:
            place, why = server.host or "", OWNERS_MOVE if server.vm_state is VmState.RESIZED else UNDECIDED
            rows.append(DrainServer(id, server.name, MoveMethod.NONE, DrainProgress.LEFT, host=place, why=why))
    return rows


async def begun_as(context: SagaContext, server: Server, request_id: str) -> bool:
    """Whether that request began the move that waits for confirmation. If not, it is the owner's move, and the owner
    may revert it.
    """
    if server.moved is None or server.cell is None:
        return False
    move = server.moved.migration
    migration = await context.cells[server.cell].read(lambda tx: migrations.get(tx, move))
    return migration is not None and migration.request_id == request_id


async def confirm_move(context: SagaContext, server: Server, request_id: str = "") -> None:
    """Confirm this move of the server, as its owner would. Raises Conflict when it no longer waits for confirmation."""
    user, project, moved = server.user, server.project, server.moved

    def check(now: Server) -> None:
        move = None if now.moved is None else now.moved.migration
        if now.vm_state is not VmState.RESIZED or move is None or moved is None or move != moved.migration:
            raise Conflict(f"instance {now.id} no longer waits for confirmation")

    await confirm_resize.begin(context, server, user, project, check=check, request_id=request_id)


# ------------------------------------------------------------------------------------------------------ the plan


async def planned(
    context: SagaContext,
    host: str,
    servers: Sequence[Server],
    user: str,
    project: str,
    others: Sequence[Drain] = (),
    *,
    live: bool = True,
) -> tuple[DrainServer, ...]:
    """Plan where each server goes, the largest first: each is placed in the room that earlier ones leave. The drained host
    takes none.

    Hosts of other drains under way take none either; the servers that still wait in those drains are placed first.
    """
    await context.placement.catch_up()
    trial = Trial(context.placement.world(), context.placement.rank_on)
    for each in (host, *(other.host for other in others)):
        trial.disable(each)
    for other in others:
        await _placed(context, trial, other)
    order = sorted(servers, key=lambda each: (-each.flavor.ram_mib, -each.flavor.vcpus, each.id))
    move = MoveAway(host, user, project, live)
    return tuple([await planned_one(context, trial, each, move) for each in order])


async def _placed(context: SagaContext, trial: Trial, drain: Drain) -> None:
    """Reserve room for the servers of another drain that have not begun to move."""
    for row in drain.servers:
        if (
            row.progress is DrainProgress.WAITING
            and (server := (await records.find(context, row.server)).server) is not None
        ):
            wanted = drain.asked
            move = MoveAway(drain.host, drain.asked_by, drain.project, wanted.live, wanted.across)
            await planned_one(context, trial, server, move)


async def planned_one(
    context: SagaContext,
    trial: Trial,
    server: Server,
    move: MoveAway,
) -> DrainServer:
    """Where the server would go from that host, reserved in the trial; or why it stays."""
    row = DrainServer(server.id, server.name, way_of(server, live=move.live))
    if row.way is MoveMethod.NONE:
        return msgspec.structs.replace(row, progress=DrainProgress.LEFT, why=why_none(server))
    tries: Tries | None = None
    input: msgspec.Struct | None = None
    try:
        await leave(previewing(context), server, move)
    except Previewed as previewed:
        (new,) = previewed.accepted
        input = msgspec.json.decode(new.asked, type=SAGAS[new.saga].input_type)
    except Conflict as busy:  # another operation works on it, which will end
        return msgspec.structs.replace(row, why=f"busy: {busy.public}")
    except Problem as refused:
        return msgspec.structs.replace(row, progress=DrainProgress.LEFT, why=refused.public)
    try:
        if input is not None:
            _, tries = await dry_run.wanted(context, of_all_cells(input) if move.across else input)
    except Problem as refused:  # one server with unreadable ports must not stop the plan for the others
        return msgspec.structs.replace(row, progress=DrainProgress.LEFT, why=refused.public)
    if tries is None:  # it needs no other host
        return row
    verdict = dry_run.placed(trial, tries)
    if not verdict.best:
        return msgspec.structs.replace(row, progress=DrainProgress.LEFT, why=verdict.fault())
    return msgspec.structs.replace(row, planned=verdict.best[0].name)


def of_all_cells(input: msgspec.Struct) -> msgspec.Struct:
    """The same input with the permission to move to other cells."""
    if "cross_cell" not in input.__struct_fields__:
        return input
    return msgspec.structs.replace(input, cross_cell=True)


def stays(rows: Sequence[DrainServer]) -> list[DrainServer]:
    """The servers that have no other place, or cannot be moved."""
    return [each for each in rows if each.progress is DrainProgress.LEFT]


def retried(drain: Drain) -> Drain:
    """The drain as it begins: servers that the plan refused are tried again, because room may have become free."""
    rows = tuple(
        msgspec.structs.replace(each, progress=DrainProgress.WAITING)
        if each.progress is DrainProgress.LEFT and each.way is not MoveMethod.NONE
        else each
        for each in drain.servers
    )
    return msgspec.structs.replace(drain, servers=rows)
