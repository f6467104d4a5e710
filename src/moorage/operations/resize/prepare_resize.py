"""The first half of a resize or cold migration: a host is claimed and prepared, and the guest and its ports move there."""

import logging
from collections.abc import Callable
from functools import partial

import msgspec

from moorage.bus.agent_calls import CommandContext
from moorage.bus.move_payloads import SendGuest
from moorage.bus.verbs import Verb
from moorage.clients.network.binding_rules import BINDING_FAILED
from moorage.clients.network.decoding import BINDING_FAILED_KIND
from moorage.model import local_disks
from moorage.model.errors import HostFailed, Problem
from moorage.model.guest import MoveTarget
from moorage.model.ids import CellId
from moorage.model.migration import MigrationStatus, MigrationType
from moorage.model.network import BindRefused, Port
from moorage.model.server import FlavorCopy, Server, TaskState, VmState
from moorage.operations import move_claims
from moorage.operations.boot.boot import Claim
from moorage.operations.context import SagaContext
from moorage.operations.images.snapshot import IMAGE_PATIENCE_S
from moorage.operations.resize.resize_input import Resize, tries_of
from moorage.operations.steps import move_ports, moving, segment_change, server_action
from moorage.operations.steps import servers as records
from moorage.operations.steps.failures import as_it_was, failed_event
from moorage.operations.steps.guest_respawn import Cards, cards_of
from moorage.operations.steps.hosts import command_context
from moorage.operations.steps.moving import End
from moorage.operations.steps.segments import note_exhausted
from moorage.operations.steps.servers import LocatedServer
from moorage.operations.steps.volumes import disk_of
from moorage.saga import Run, step
from moorage.sql import Tx

NETWORK_PATIENCE_S = 300.0
HOST_PATIENCE_S = 300.0
HOST_UNREACHABLE, DISK_SHRINKS = "host_unreachable", "disk_shrinks"
"""Codes of hosts: the old host cannot reach the new one; the disk would lose data on any host."""
REFUSED_THERE = frozenset({BINDING_FAILED, BINDING_FAILED_KIND})
EVENTS = ("cold_migrate", "compute_prep_resize", "compute_resize_instance", "compute_finish_resize")
DESTINATION_OF = "attempt whose destination is shown"
logger = logging.getLogger(__name__)
ResizeRun = Run[Resize, SagaContext]


@step
async def begin_action(run: ResizeRun) -> LocatedServer:
    """Show the action and the move's record from the start."""
    kind = run.input.kind
    word = "resize" if kind is MigrationType.RESIZE else "migrate"
    return await moving.begun(run, word, kind, MigrationStatus.PRE_MIGRATING, EVENTS[0], run.input.flavor)


@begin_action.undo
async def fail_action(run: ResizeRun) -> None:
    """End the action and the move's record with Error; the server is as before, with the reason as its fault."""
    located = await records.sure(run.context, run.input.server.id)
    if located.cell is None or located.server is None:
        return
    now = server_action.now_us()
    events = (failed_event(EVENTS[0], now, located.server.host, run.turned),)

    status = MigrationStatus.CANCELLED if run.cancelled == moving.ON_REQUEST else MigrationStatus.ERROR

    def finish(tx: Tx) -> None:
        moving.with_status(tx, run.input.migration, status)
        server_action.finish(tx, run, events, now, "Error")

    cause = None if run.cancelled is not None else run.turned
    changed = lambda server: as_it_was(server, cause, now)  # noqa: E731
    await records.change(run.context, located.cell, located.server.id, records.fence(run), changed, finish, last=True)


@step(needs=(begin_action,), no_undo="reads only", patience_s=HOST_PATIENCE_S)
async def check_source(run: ResizeRun) -> None:
    """Check, before anything is changed, that its own host can send guests and that no disk shrinks."""
    server = server_of(run)
    await moving.target_at(run, moving.current_end(server))
    refuse_shrinking(server, run.input.flavor)


def refuse_shrinking(server: Server, new: FlavorCopy) -> None:
    """Raises HostFailed when a disk would become smaller."""
    old = server.flavor
    root = not server.volume_backed and new.disk_gib < old.disk_gib
    if root or new.ephemeral_gib < local_disks.ephemeral_gib_of(old, server.block_devices):
        raise HostFailed("Unable to resize disk down.", code=DISK_SHRINKS)


@step(needs=(begin_action, check_source), no_undo="reads only", patience_s=NETWORK_PATIENCE_S)
async def read_ports(run: ResizeRun) -> Cards:
    """Read the ports once for the whole move: their resource requests and bindings (S1.16). Ports with guarantees need
    hosts that support them.
    """
    cards = await cards_of(run.context, server_of(run))
    move_ports.refuse_old_hosts(run.context, str(run.input.server.host), cards.ports, "moved")
    return cards


@step(region=True, moves=True, needs=(begin_action, read_ports))
async def claim_host(run: ResizeRun) -> Claim:
    """Claim the best host with room in its cell; if another claim was faster, try the next (N1). The move then holds
    what the server held.
    """
    cards = run[read_ports]
    exhausted = frozenset(each for cause in run.causes for each in cause.without)
    where = (server_of(run), cards, cell_of(run), run.blamed)
    return await move_claims.claimed(run, tries_of(run.input, *where, attempt=run.attempt, exhausted=exhausted), cards)


@claim_host.undo
async def give_claim_back(run: ResizeRun) -> None:
    """The server holds again what the move held."""
    await move_claims.given_back(run, run.get(read_ports) if run.input.across else None)


@step(needs=(claim_host,), no_undo="reads only", patience_s=HOST_PATIENCE_S)
async def prepare_host(run: ResizeRun) -> MoveTarget:
    """Read where the host takes guests; a host that is silent, or whose agent does not support moves, is skipped."""
    claim = run[claim_host]
    prepares(claim).note(run)
    try:
        return await moving.target_at(run, claim)
    except Problem:
        run.context.placement.count_failure(claim.host, failed=True)
        raise


def prepares(claim: Claim) -> server_action.ActionProgress:
    """A host was found, and is prepared."""
    return server_action.ActionProgress(EVENTS[:1], ((EVENTS[1], claim.name),))


@step(host_local=True, needs=(read_ports, claim_host, prepare_host), patience_s=NETWORK_PATIENCE_S)
async def bind_destination(run: ResizeRun) -> bool:
    """Make inactive bindings on the host, with the claimed providers (S1.6). Returns False when its ports cannot have
    them.
    """
    claim, cards = run[claim_host], run[read_ports]
    if not await _second(run, claim, cards):
        return False
    await show_destination(run)
    await run.context.network.bind_inactive(run.input.server.id, claim.name, cards.ports, profiles=claim.profiles)
    return True


@bind_destination.undo
async def unbind_destination(run: ResizeRun) -> None:
    claim, cards = run.get(claim_host), run.get(read_ports)
    if claim is not None and cards is not None and await _second(run, claim, cards):
        await run.context.network.delete_binding(run.input.server.id, claim.name, [port.id for port in cards.ports])


async def _second(run: ResizeRun, claim: Claim, cards: Cards) -> bool:
    """Not when a port gets an address of another segment: the call that binds it there also assigns the address."""
    return not claim.subnets and await move_ports.second_bindings(
        run.context, cards, str(run.input.server.host), claim.name
    )


@step(
    needs=(begin_action, claim_host, prepare_host, bind_destination),
    no_undo="what the move's record says of its destination stays; that it failed is said by the first step's undo",
)
async def record_destination(run: ResizeRun) -> None:
    """Write the destination into the move's record, unless that was done before its bindings were made."""
    if not _shows_destination(run):
        await show_destination(run)


async def show_destination(run: ResizeRun) -> None:
    """Write the destination into the move's record, with both cells if they differ, once in each attempt. Raises Stale."""
    if _shows_destination(run):
        await records.not_overtaken(run, cell_of(run))
        return
    claim, left = run[claim_host], cell_of(run)
    cells = (None, None) if claim.cell == left else (left, claim.cell)
    to = move_claims.destination(claim, run[prepare_host].address)
    to |= {"source_cell": cells[0], "dest_cell": cells[1]}
    move, status, task = run.input.migration, MigrationStatus.MIGRATING, TaskState.RESIZE_MIGRATING
    sends = server_action.ActionProgress(EVENTS[1:2], ((EVENTS[2], run.input.server.host),))
    await moving.show(run, left, move, status, task, sends, **to)
    run.cache[DESTINATION_OF] = run.attempt


def _shows_destination(run: ResizeRun) -> bool:
    """Whether this executor has written the destination of this attempt; another one writes it again."""
    return bool(run.cache.get(DESTINATION_OF) == run.attempt)


@step(host_local=True, needs=(begin_action, claim_host, prepare_host, record_destination), patience_s=IMAGE_PATIENCE_S)
async def send_guest(run: ResizeRun) -> None:
    """Let its host switch the guest off and send its disk."""
    order = SendGuest(run[prepare_host], run.input.migration)
    mine = msgspec.structs.replace(command_context(run, "send_guest"), patience_s=run.context.settings.image_deadline_s)
    source = server_action.host_of(run[begin_action])
    with moving.elsewhere_only(HOST_UNREACHABLE):
        await run.context.hosts.change_guest(source, mine, run.input.server.id, Verb.SEND_GUEST, order)


@send_guest.undo
async def start_source(run: ResizeRun) -> None:
    """Switch a guest that was on on again, and remove what was sent.

    The first command ends the sending, because its disk could otherwise arrive after it was removed. For a server that
    is to be deleted, a silent destination that may run the guest is not waited for: then the guest stays off.
    """
    server, claim = run.input.server, run.get(claim_host)
    hosts, source = run.context.hosts, moving.current_end(server)
    await moving.if_there(hosts.power_off(source.address, command_context(run, "stop_sending"), server.id))
    gone = True
    if claim is not None and claim.name != server.host:
        move = run.input.migration
        gone = await moving.take_back_guest(run, "drop_sent", claim, move, same_host=False, source=source)
        await plug_volumes_again(run, partial(command_context, run))
    if server.vm_state is VmState.ACTIVE and (gone or not await moving.for_delete(run)):
        await moving.switch_on_again(run, command_context(run, "start_source"))


async def plug_volumes_again(run: ResizeRun, named: Callable[[str], CommandContext]) -> None:
    """The old host's guest used attachments that no longer exist, if its volumes were switched."""
    input, located = run.input.server, run.get(begin_action)
    if not input.volumes or located is None:
        return
    now = (await records.sure(run.context, input.id)).server
    before = {} if located.server is None else {each.bdm: each.attachment for each in located.server.volumes}
    for each in () if now is None else now.volumes:
        if each.attachment is not None and each.attachment != before.get(each.bdm):
            disk = await disk_of(run.context, each, each.attachment)
            source, mine = moving.current_end(input).address, named(f"plug_{each.bdm}")
            await moving.if_there(run.context.hosts.attach_volume(source, mine, input.id, disk))


@step(host_local=True, needs=(read_ports, claim_host, bind_destination, send_guest), patience_s=NETWORK_PATIENCE_S)
async def activate_bindings(run: ResizeRun) -> tuple[Port, ...]:
    """Direct traffic to the new host. Ports with a single binding are bound there now."""
    claim, cards = run[claim_host], run[read_ports]
    finishes = server_action.ActionProgress(EVENTS[2:3], ((EVENTS[3], claim.name),))
    await records.not_overtaken(run, cell_of(run), TaskState.RESIZE_MIGRATED, lambda tx: finishes.write(tx, run))
    if _stays_bound(run, claim):
        return cards.ports
    end = End(claim.cell, claim.name, claim.availability_zone)
    left = str(run.input.server.host)
    if claim.subnets:
        return await _bound_across(run, end, claim, cards)
    with moving.elsewhere_only():
        return await move_ports.bound_at(
            run, cards, move_ports.BindTarget(end, claim.profiles, left), second=run[bind_destination]
        )


def _stays_bound(run: ResizeRun, claim: Claim) -> bool:
    """On its own host, with the providers and the addresses that it has."""
    return claim.name == run.input.server.host and not claim.profiles and not claim.subnets


async def _bound_across(run: ResizeRun, end: End, claim: Claim, cards: Cards) -> tuple[Port, ...]:
    """Bind with an address of the new segment, in addition to the old one, which stays until the confirm; a segment
    without a free address is skipped in later attempts.
    """
    kept, left = segment_change.addresses_until_confirmed(cards, claim.subnets), str(run.input.server.host)
    try:
        ports = await move_ports.bound_at(
            run, cards, move_ports.BindTarget(end, claim.profiles, left, claim.subnets, kept), second=False
        )
    except BindRefused as refused:
        await note_exhausted(run.context, refused, cards.networks, claim.subnets)
        raise
    except Problem as problem:
        problem.final = True
        raise
    return segment_change.new_only(cards, claim.subnets, ports)


@activate_bindings.undo
async def activate_source(run: ResizeRun) -> None:
    claim, cards = run.get(claim_host), run.get(read_ports)
    if claim is None or cards is None or _stays_bound(run, claim):
        return
    await records.not_overtaken(run, moving.current_end(run.input.server).cell)
    second, end = await _second(run, claim, cards), moving.current_end(run.input.server)
    kept = segment_change.addresses_until_confirmed(cards, claim.subnets)
    try:
        await move_ports.bound_at(
            run, cards, move_ports.BindTarget(end, move_ports.profiles_of(cards), claim.name, keeps=kept), second=second
        )
    except BindRefused as refused:
        if refused.code not in REFUSED_THERE:
            raise
        # # The network agent there is down. The guest runs again all the same, and an audit binds the ports when the
        # agent is back.
        logger.warning("%s: its ports are not bound on their old host: %s", run.input.server.id, refused.public)


def server_of(run: ResizeRun) -> Server:
    server = run[begin_action].server
    assert server is not None
    return server


def cell_of(run: ResizeRun) -> CellId:
    cell = run[begin_action].cell
    assert cell is not None
    return cell
