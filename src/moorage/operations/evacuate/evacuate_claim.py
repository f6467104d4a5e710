"""The first half of an evacuation: the old host is fenced, another host is claimed, and ports and volumes move there."""

from collections.abc import Sequence

import msgspec

from moorage.model.errors import NoCapacity
from moorage.model.fence_proof import FenceProof
from moorage.model.ids import CellId
from moorage.model.migration import MigrationStatus, MigrationType
from moorage.model.network import BindOptions, BindRefused, FixedIp, Port
from moorage.model.server import Server
from moorage.operations import move_claims
from moorage.operations.boot.boot import Claim
from moorage.operations.context import SagaContext
from moorage.operations.evacuate import failed_evacuation as back
from moorage.operations.evacuate.evacuate_input import Evacuate
from moorage.operations.resize.resize_input import tries_of
from moorage.operations.steps import fencing, move_ports, moving, offload, other_cells, segment_change, server_action
from moorage.operations.steps import servers as records
from moorage.operations.steps.failures import failed_event
from moorage.operations.steps.guest_respawn import Cards, cards_of
from moorage.operations.steps.hosts import names_of
from moorage.operations.steps.moving import End
from moorage.operations.steps.other_cells import CellReach
from moorage.operations.steps.ports import other_subnets
from moorage.operations.steps.segments import note_exhausted
from moorage.operations.steps.servers import LocatedServer
from moorage.operations.steps.volumes import VOLUME_PATIENCE_S, or_left_to_delete
from moorage.saga import Run, step
from moorage.sql import Tx

NETWORK_PATIENCE_S = 300.0
ACTION = "evacuate"
EVENTS = ("rebuild_server", "compute_rebuild_instance")
EvacuateRun = Run[Evacuate, SagaContext]


@step
async def begin_action(run: EvacuateRun) -> LocatedServer:
    """Show the action and the move's record from the start."""
    return await moving.begun(run, ACTION, MigrationType.EVACUATION, MigrationStatus.ACCEPTED, EVENTS[0])


@begin_action.undo
async def fail_action(run: EvacuateRun) -> None:
    """The server is in ERROR on its old host, as in Nova. It stays as it was when nothing was changed, or when it is
    being deleted.
    """
    located = await records.sure(run.context, run.input.server.id)
    if located.cell is None or located.server is None:
        return
    now, turned = server_action.now_us(), run.turned
    events = tuple(failed_event(each, now, located.server.host, turned) for each in EVENTS)
    nowhere = turned is not None and (
        isinstance(turned.problem(), NoCapacity) or turned.code == move_ports.HOST_TOO_OLD
    )
    status = MigrationStatus.ERROR if nowhere else MigrationStatus.FAILED

    def finish(tx: Tx) -> None:
        moving.with_status(tx, run.input.migration, status)
        server_action.finish(tx, run, events, now, "Error")

    def after(server: Server) -> Server:
        if turned is None or run.cancelled is not None:
            return msgspec.structs.replace(server, task_state=None)
        return back.failed(run.input, server, turned)

    await records.change(run.context, located.cell, located.server.id, records.fence(run), after, finish, last=True)


@step(
    needs=(begin_action,),
    no_undo="a guest that was found running on a host that is said to be down stays off",
    patience_s=NETWORK_PATIENCE_S,
)
async def fence_source(run: EvacuateRun) -> FenceProof:
    """Get proof that the old host is fenced, before anything is changed."""
    await _refuse_old_hosts(run, server_of(run))
    return await fencing.prove(run, "fence_source", server_of(run))


async def _refuse_old_hosts(run: EvacuateRun, server: Server) -> None:
    """Raises HostFailed. The ports are read only while an agent or the pin may be too old: one reading serves the whole
    move (S1.16).
    """
    source = str(server.host)
    if move_ports.too_old(run.context, source):
        cards = await cards_of(run.context, server)
        move_ports.refuse_old_hosts(run.context, source, cards.ports, "evacuated")


@step(needs=(begin_action, fence_source), no_undo="reads only", patience_s=NETWORK_PATIENCE_S)
async def read_ports(run: EvacuateRun) -> Cards:
    """Read the ports once for the whole move: their resource requests and bindings (S1.16)."""
    return await cards_of(run.context, server_of(run))


@step(needs=(begin_action, read_ports), no_undo="reads only", patience_s=VOLUME_PATIENCE_S)
async def check_cells(run: EvacuateRun) -> CellReach:
    """Which other cells cannot use its volumes and addresses; only for a server that may leave its cell (`evacuate/3`)."""
    return await other_cells.reach_of(run.context, server_of(run), run[read_ports], other_cells.ANEW)


@step(region=True, moves=True, needs=(begin_action, read_ports))
async def claim_host(run: EvacuateRun) -> Claim:
    """Claim the best host with room, in its cell or in any allowed cell. The move then holds what the server held;
    nothing is counted twice.
    """
    cards = run[read_ports]
    exhausted = frozenset(each for cause in run.causes for each in cause.without)
    where = (server_of(run), cards, cell_of(run), run.blamed)
    tries = tries_of(run.input, *where, attempt=run.attempt, exhausted=exhausted)
    tries = other_cells.widened(run, tries, cell_of(run), run.get(check_cells))
    return await move_claims.claimed(run, tries, cards)


@claim_host.undo
async def give_claim_back(run: EvacuateRun) -> None:
    """The server holds again what the move held."""
    await move_claims.given_back(run, run.get(read_ports) if run.input.across else None)


@step(moves=True, needs=(read_ports, claim_host), patience_s=NETWORK_PATIENCE_S)
async def bind_ports(run: EvacuateRun) -> tuple[Port, ...]:
    """Bind the ports to this host instead of the dead one; a refusal is found here. An executor that was overtaken
    binds nothing: the fence is checked first.
    """
    claim, cards = run[claim_host], run[read_ports]
    if not cards.ports:
        return ()
    await records.not_overtaken(run, cell_of(run))
    options = BindOptions(
        subnets=claim.subnets,
        other_subnets=other_subnets(cards.ports, cards.networks, claim.subnets),
        profiles=claim.profiles,
        tried=(str(run.input.server.host), *names_of(run.context.placement.world(), run.tried), claim.name),
        keeps=_previous_addresses(run, claim, cards),
    )
    server, network = run.input.server.id, run.context.network

    async def bind(ports: Sequence[Port]) -> tuple[Port, ...]:
        return await network.bind_ports(server, claim.name, claim.availability_zone, ports, options)

    try:
        ports = await move_ports.without_deleted(run, cards.ports, bind)
    except BindRefused as refused:
        await note_exhausted(run.context, refused, cards.networks, claim.subnets)
        raise
    return segment_change.new_only(cards, claim.subnets, ports)


def _previous_addresses(run: EvacuateRun, claim: Claim, cards: Cards) -> dict[int, tuple[FixedIp, ...]] | None:
    return (
        segment_change.previous_addresses(server_of(run), cards, claim.subnets, run.attempt)
        if run.input.across
        else None
    )


@bind_ports.undo
async def bind_ports_back(run: EvacuateRun) -> None:
    """Runs only in the final unwinding: the next attempt's bind replaces the host."""
    cards, claim = run.get(read_ports), run.get(claim_host)
    if cards is None or claim is None or not cards.ports:
        return
    await back.bind_back(run, cards, claim, _previous_addresses(run, claim, cards))


@step(moves=True, needs=(begin_action, claim_host, bind_ports), patience_s=VOLUME_PATIENCE_S)
async def connect_volumes(run: EvacuateRun) -> dict[str, str]:
    """Attach the volumes to this host and remove the old host's attachments. Returns mapping → attachment."""
    claim = run[claim_host]
    return await offload.export_volumes(run, cell_of(run), server_of(run), end_of(claim).address, again=True)


@connect_volumes.undo
async def give_volumes_back(run: EvacuateRun) -> None:
    """Runs only in the final unwinding: a silent host gets no attachments, so no host has the volumes; they stay the
    server's.
    """
    located = run.get(begin_action)
    if located is not None and located.server is not None and located.server.volumes:
        await or_left_to_delete(run.context, located.server.id, offload.exported_back(run, located.server))


def end_of(claim: Claim) -> End:
    return End(claim.cell, claim.name, claim.availability_zone)


def server_of(run: EvacuateRun) -> Server:
    server = run[begin_action].server
    assert server is not None
    return server


def cell_of(run: EvacuateRun) -> CellId:
    cell = run[begin_action].cell
    assert cell is not None
    return cell
