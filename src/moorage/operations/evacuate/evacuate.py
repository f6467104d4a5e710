"""Evacuate: a server whose host is dead is made anew on another one, with its ports and addresses, from its image or its volumes.

    begin_action      the action, and the move's record: `accepted`
    fence_source      proof that the old guest cannot run; without one nothing is touched (RULES §11)
    read_ports        its ports, with what they ask of a host by now
    on a host, and if that fails on the next one, with the same ports:
      claim_host      compute, guarantees and addresses there in one claim; what it had is held by the move
      bind_ports      each port on the host, with the providers that were claimed (S1.4, S1.5)
      connect_volumes each volume is exported to the host, and to the old one no more
      record_destination   `pre-migrating`
      prove_fenced    proof again, of this moment; from here on the old host is told to destroy its guest: `migrating`
      start_guest, await_vifs
    record_evacuated  on its new host (point of no return): `done`
    leave_addresses, release_addresses   where it was given addresses of another segment, the old ones go (`evacuate/2`)

Its local disk is the image's again: what was written on the old host is lost, as in Nova.  The old host is silent; when it is back without
the guest its cell's conductor gives back what the move holds there, and the record says `completed` (conductor/returned_hosts.py).
A failure leaves the server in ERROR on its old host, with the claim it had.  Who may leave its cell has `evacuate_cross_cell`.
"""

import msgspec

from moorage.model.action import Event
from moorage.model.errors import NoCapacity, Problem
from moorage.model.fence_proof import FenceProof
from moorage.model.guest import GuestSpec, PowerState
from moorage.model.ids import CellId
from moorage.model.migration import MigrationStatus, MigrationType
from moorage.model.network import BindRefused, FixedIp, Port
from moorage.model.server import Server, TaskState, VmState
from moorage.operations import move_claims
from moorage.operations.boot.boot import Claim
from moorage.operations.context import SagaContext
from moorage.operations.evacuate import failed_evacuation as back
from moorage.operations.evacuate.evacuate_input import Evacuate
from moorage.operations.resize.resize_input import tries_of
from moorage.operations.steps import fencing, moving, offload, old_addresses, other_cells, segment_change, server_action
from moorage.operations.steps import servers as records
from moorage.operations.steps.boot_volumes import with_disks
from moorage.operations.steps.config_drives import with_drive
from moorage.operations.steps.failures import failed_event
from moorage.operations.steps.guest_respawn import Cards, cards_of
from moorage.operations.steps.guests import guest_of
from moorage.operations.steps.hosts import command_context, destroy_or_leave, names_of
from moorage.operations.steps.moving import End
from moorage.operations.steps.other_cells import CellReach
from moorage.operations.steps.ports import other_subnets
from moorage.operations.steps.segments import note_exhausted
from moorage.operations.steps.servers import LocatedServer
from moorage.operations.steps.vif_plugging import VIF_PLUGGING_MAX_S, await_plugged
from moorage.operations.steps.volumes import VOLUME_PATIENCE_S, or_left_to_delete
from moorage.saga import Run, Saga, on_some_host, step
from moorage.sql import Tx
from moorage.store.cell import actions, migrations
from moorage.store.cell import servers as cell_servers

NETWORK_PATIENCE_S = 300.0
HOST_PATIENCE_S = 300.0
ACTION = "evacuate"
EVENTS = ("rebuild_server", "compute_rebuild_instance")
OVER = frozenset({MigrationStatus.DONE, MigrationStatus.COMPLETED})


EvacuateRun = Run[Evacuate, SagaContext]


@step
async def begin_action(run: EvacuateRun) -> LocatedServer:
    """The action and the move's record show from the start."""
    return await moving.begun(run, ACTION, MigrationType.EVACUATION, MigrationStatus.ACCEPTED)


@begin_action.undo
async def fail_action(run: EvacuateRun) -> None:
    """ERROR on its old host, as in Nova; as it was where nothing was touched, or when it is being deleted."""
    found = await records.find(run.context, run.input.server.id)
    if found.cell is None or found.server is None:
        return
    now, turned = server_action.now_us(), run.turned
    events = tuple(failed_event(each, now, found.server.host, turned) for each in EVENTS)
    nowhere = turned is not None and (isinstance(turned.problem(), NoCapacity) or turned.code == moving.HOST_TOO_OLD)
    status = MigrationStatus.ERROR if nowhere else MigrationStatus.FAILED

    def finish(tx: Tx) -> None:
        moving.with_status(tx, run.input.migration, status)
        actions.finish(tx, run.input.server.id, server_action.request_of(run), events, now, "Error")

    def after(server: Server) -> Server:
        if turned is None or run.cancelled is not None:
            return msgspec.structs.replace(server, task_state=None)
        return back.failed(run.input, server, turned)

    await records.change(run.context, found.cell, found.server.id, records.fence(run), after, finish)


@step(
    needs=(begin_action,),
    no_undo="a guest that was found running on a host that is said to be down stays off",
    patience_s=NETWORK_PATIENCE_S,
)
async def fence_source(run: EvacuateRun) -> FenceProof:
    """Refused before anything is touched."""
    await _refuse_old_hosts(run, _server(run))
    return await fencing.prove(run, "fence_source", _server(run))


async def _refuse_old_hosts(run: EvacuateRun, server: Server) -> None:
    """Raises HostFailed. Its ports are asked for only while an agent or the pin may be too old: one reading is for the whole move (S1.16)."""
    source = str(server.host)
    if moving.too_old(run.context, source):
        cards = await cards_of(run.context, server)
        moving.refuse_old_hosts(run.context, source, cards.ports, "evacuated")


@step(needs=(begin_action, fence_source), no_undo="reads only", patience_s=NETWORK_PATIENCE_S)
async def read_ports(run: EvacuateRun) -> Cards:
    """One reading for the whole move: what the ports ask, and how they are bound (S1.16)."""
    return await cards_of(run.context, _server(run))


@step(needs=(begin_action, read_ports), no_undo="reads only", patience_s=VOLUME_PATIENCE_S)
async def check_cells(run: EvacuateRun) -> CellReach:
    """Which other cells cannot have its volumes and addresses; only of one that may leave its cell (`evacuate/3`)."""
    return await other_cells.reach_of(run.context, _server(run), run[read_ports], other_cells.ANEW)


@step(region=True, moves=True, needs=(begin_action, read_ports))
async def claim_host(run: EvacuateRun) -> Claim:
    """The best willing host of its cell, or of any it may go to. What the server held is held by the move from then on, and nothing is
    doubled."""
    cards = run[read_ports]
    exhausted = frozenset(each for cause in run.causes for each in cause.without)
    where = (_server(run), cards, _cell(run), run.blamed)
    asks = tries_of(run.input, *where, attempt=run.attempt, exhausted=exhausted)
    asks = other_cells.widened(run, asks, _cell(run), run.get(check_cells))
    return await move_claims.claimed(run, asks, cards)


@claim_host.undo
async def give_claim_back(run: EvacuateRun) -> None:
    """What the move held is the server's again."""
    await move_claims.given_back(run, run.get(read_ports) if run.input.across else None)


@step(moves=True, needs=(read_ports, claim_host), patience_s=NETWORK_PATIENCE_S)
async def bind_ports(run: EvacuateRun) -> tuple[Port, ...]:
    """From the host that is dead to this one; a refusal is found here. Who was overtaken binds nothing: the fence is asked before."""
    claim, cards = run[claim_host], run[read_ports]
    if not cards.ports:
        return ()
    await moving.not_overtaken(run, _cell(run))
    try:
        ports = await run.context.network.bind_ports(
            run.input.server.id,
            claim.name,
            claim.availability_zone,
            cards.ports,
            subnets=claim.subnets,
            beside=other_subnets(cards.ports, cards.networks, claim.subnets),
            profiles=claim.profiles,
            tried=(str(run.input.server.host), *names_of(run.context.placement.world(), run.tried), claim.name),
            unsure=True,
            keeps=_previous_addresses(run, claim, cards),
        )
    except BindRefused as refused:
        await note_exhausted(run.context, refused, cards.networks, claim.subnets)
        raise
    return segment_change.new_only(cards, claim.subnets, ports)


def _previous_addresses(run: EvacuateRun, claim: Claim, cards: Cards) -> dict[int, tuple[FixedIp, ...]] | None:
    return (
        segment_change.previous_addresses(_server(run), cards, claim.subnets, run.attempt) if run.input.across else None
    )


@bind_ports.undo
async def bind_ports_back(run: EvacuateRun) -> None:
    """Only in the final unwinding; the next attempt's bind replaces the host."""
    cards, claim = run.get(read_ports), run.get(claim_host)
    if cards is None or claim is None or not cards.ports:
        return
    await back.bind_back(run, cards, claim, _previous_addresses(run, claim, cards))


@step(moves=True, needs=(begin_action, claim_host, bind_ports), patience_s=VOLUME_PATIENCE_S)
async def connect_volumes(run: EvacuateRun) -> dict[str, str]:
    """Mapping → attachment: a new one for this host, and the old host's are gone."""
    claim = run[claim_host]
    return await offload.export_volumes(run, _cell(run), _server(run), _end(claim).address, again=True)


@connect_volumes.undo
async def give_volumes_back(run: EvacuateRun) -> None:
    """Only in the final unwinding: a silent host is given none, so nobody has them, and they are the server's still."""
    found = run.get(begin_action)
    if found is not None and found.server is not None and found.server.volumes:
        await or_left_to_delete(run.context, found.server.id, offload.exported_back(run, found.server))


@step(
    moves=True,
    needs=(begin_action, claim_host, bind_ports, connect_volumes),
    no_undo="what the move's record says of its destination stays; that it failed is said by the first step's undo",
)
async def record_destination(run: EvacuateRun) -> None:
    """The move's record says where it goes."""
    await _show(run, TaskState.REBUILD_BLOCK_DEVICE_MAPPING, MigrationStatus.PRE_MIGRATING)


@step(
    moves=True,
    needs=(begin_action, claim_host, record_destination),
    patience_s=HOST_PATIENCE_S,
)
async def prove_fenced(run: EvacuateRun) -> FenceProof:
    """Recorded, and proved then: an old host that comes back from now on is told to destroy its guest.

    It has the only disk, so that is recorded of no host that was not proved to be fenced before, too.
    """
    await fencing.prove(run, "prove_fenced", _server(run))
    await _show(run, TaskState.REBUILD_SPAWNING, MigrationStatus.MIGRATING)
    return await fencing.prove(run, "prove_fenced", _server(run))


@prove_fenced.undo
async def keep_old_guest(run: EvacuateRun) -> None:
    """After the new guest is gone, and before volumes and ports."""
    await back.keep_guest(run, moving.here(run.input.server).cell)


async def _show(run: EvacuateRun, task: TaskState, status: MigrationStatus) -> None:
    claim = run[claim_host]
    to = {**move_claims.destination(claim), "dest_cell": None if claim.cell == _cell(run) else claim.cell}
    await moving.show(run, _cell(run), run.input.migration, status, task, unless=OVER, **to)


@step(
    host_local=True,
    needs=(claim_host, bind_ports, connect_volumes, prove_fenced),
    patience_s=HOST_PATIENCE_S,
)
async def start_guest(run: EvacuateRun) -> PowerState:
    """The host makes it from the image or the volumes: there is proof that the other one cannot run."""
    claim = run[claim_host]
    guest = await _guest(run, claim)
    try:
        state = await run.context.hosts.start_guest(_end(claim).address, command_context(run, "start_guest"), guest)
    except Problem:
        run.context.placement.count_failure(claim.host, failed=True)
        raise
    run.context.placement.count_failure(claim.host, failed=False)
    return state


@start_guest.undo
async def destroy_guest(run: EvacuateRun) -> None:
    """A silent host destroys it when it returns; until its start counts it keeps it off (RULES §23)."""
    claim = run.get(claim_host)
    if claim is not None:
        await destroy_or_leave(run, "destroy_guest", claim.cell, claim.name, run.input.server.id)


async def _guest(run: EvacuateRun, claim: Claim) -> GuestSpec:
    cards, server = run[read_ports], _server(run)
    ports: tuple[Port, ...] = run[bind_ports]
    guest = guest_of(server, cards.networks, ports, claim.availability_zone)
    guest = msgspec.structs.replace(guest, power_on=run.input.becomes is VmState.ACTIVE)
    sealed = run.input.sealed_password
    guest = await with_drive(run.context, server, guest, cards.networks, ports, sealed_password=sealed)
    return await with_disks(run.context, server, guest, run[connect_volumes])


@step(
    needs=(claim_host, bind_ports, start_guest),
    no_undo="it only waits",
    patience_s=VIF_PLUGGING_MAX_S + NETWORK_PATIENCE_S,
)
async def await_vifs(run: EvacuateRun) -> None:
    """Wait until the network says that what was bound is plugged; a guest that is off plugs nothing."""
    claim, ports = run[claim_host], run[bind_ports]
    if run.input.becomes is VmState.ACTIVE:
        await await_plugged(run, ports, claim.name)


@step(
    needs=(claim_host, start_guest),
    no_undo="a server that was shown on its new host stays there",
    point_of_no_return=True,
)
async def record_evacuated(run: EvacuateRun) -> None:
    """On its new host; the action is finished with it."""
    await show_evacuated(run)


def ended_well(run: EvacuateRun, now: int) -> tuple[Event, ...]:
    """What its action says when it is done."""
    claim = run[claim_host]
    told = segment_change.describe_bound(run.get(read_ports), claim.subnets, run.get(bind_ports))
    return tuple(
        Event(each, now, now, "Success", claim.name, details=told if each == EVENTS[-1] else None) for each in EVENTS
    )


async def show_evacuated(run: EvacuateRun) -> None:
    """In its own cell."""
    now, claim = server_action.now_us(), run[claim_host]

    def also(tx: Tx) -> None:
        moving.with_status(tx, run.input.migration, MigrationStatus.DONE, unless=OVER)
        actions.finish(tx, run.input.server.id, server_action.request_of(run), ended_well(run, now), now, None)

    by, changed = records.fence(run), lambda server: evacuated(run, server, now)
    await records.change(run.context, moving.here(run.input.server).cell, run.input.server.id, by, changed, also)
    run.context.hosts.start_counts(claim.name, run.input.server.id, run.input.seq)


@record_evacuated.passed
async def was_recorded(run: EvacuateRun) -> bool:
    """An adopter asks: does the move's record say so already?"""
    by, id = records.fence(run), run.input.server.id

    def finished(tx: Tx) -> Server | None:
        row, move = cell_servers.take_over(tx, id, by), migrations.get(tx, run.input.migration)
        return row if move is not None and move.status in OVER else None

    row = await run.context.cells[moving.here(run.input.server).cell].write(finished)
    if row is not None and run.context.notification_writer is not None:
        run.context.notification_writer.seen(run.operation, row)
    return row is not None


def evacuated(run: EvacuateRun, server: Server, now: int) -> Server:
    """The record of a server on its new host. What its teller forgot stays as it is."""
    claim, cards = run[claim_host], run.get(read_ports)
    ports, attachments, state = run.get(bind_ports), run.get(connect_volumes), run.get(start_guest)
    return msgspec.structs.replace(
        move_claims.on_claimed(server, claim, cards, ports, attachments, state),
        vm_state=run.input.becomes,
        task_state=None,
        launched_at=now,
        updated_at=now,
    )


@step(
    needs=(begin_action, read_ports, claim_host, start_guest),
    no_undo=old_addresses.FORWARD_ONLY,
    patience_s=old_addresses.PATIENCE_S,
)
async def leave_addresses(run: EvacuateRun) -> None:
    """Of segments that it left; the record is in the cell of its host by now."""
    await old_addresses.leave(run, run[claim_host].cell, run[read_ports], run[claim_host].subnets)


@step(region=True, needs=(read_ports, claim_host, leave_addresses), no_undo=old_addresses.FORWARD_ONLY)
async def release_addresses(run: EvacuateRun) -> None:
    """What else the move holds on the old host stays until that is back."""
    await old_addresses.release(run, run.input.migration, run[read_ports], run[claim_host].subnets)


_BEFORE = (begin_action, fence_source, read_ports)
_ON_A_HOST = on_some_host(
    claim_host,
    bind_ports,
    connect_volumes,
    record_destination,
    prove_fenced,
    start_guest,
    await_vifs,
    host=lambda claim: claim.host,
)

EVACUATE = Saga("evacuate/1", Evacuate, *_BEFORE, _ON_A_HOST, record_evacuated, ended=records.release_server)

EVACUATE_ACROSS = Saga(
    "evacuate/2",
    Evacuate,
    *_BEFORE,
    _ON_A_HOST,
    record_evacuated,
    leave_addresses,
    release_addresses,
    ended=records.release_server,
)
"""For servers that may be given addresses of other segments."""


def _end(claim: Claim) -> End:
    return End(claim.cell, claim.name, claim.availability_zone)


def _server(run: EvacuateRun) -> Server:
    server = run[begin_action].server
    assert server is not None
    return server


def _cell(run: EvacuateRun) -> CellId:
    cell = run[begin_action].cell
    assert cell is not None
    return cell
