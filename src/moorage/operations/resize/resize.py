"""Resize and cold migration: the server goes to another host, off, and waits there for its owner to confirm or revert it.

    read_ports        its ports, with what they ask of a host by now
    on a host, and if that cannot have it on the next one:
      claim_host      compute, guarantees and addresses there in one claim; what it had is held by the move (RULES §11)
      prepare_host    the host says where it takes guests: one that cannot is found out here
      bind_destination   inactive bindings there: a refusal costs nothing, traffic stays where it is
      send_guest      the guest is switched off, and its disk goes to the other host
      switch_volumes, activate_bindings, land_guest, start_guest, await_vifs
    record_resized    VERIFY_RESIZE (point of no return)

Until `send_guest` nothing of the server was touched.  What fails after that gives it back as it was: the guest of the other host goes,
ports and volumes are its old host's again, and the guest is switched on there if it was on.  If the new host was to blame, the next one is
tried then; what its old host or another service refuses would fail there too.  Its old host keeps guest, claim and
bindings until the move is confirmed or reverted, so a revert is never refused for lack of room.

A migration is a resize to the same flavor.  A server may be resized where it is, if that is allowed; its claim is held twice then.
"""

import logging
from collections.abc import Callable
from functools import partial

import msgspec

from moorage.bus.agent_rpc import CommandContext
from moorage.bus.messages import SendGuest, TakeGuest, Verb
from moorage.clients.network.decoding import BINDING_FAILED_KIND
from moorage.clients.network.ports import BINDING_FAILED
from moorage.model.action import Event
from moorage.model.errors import HostFailed, Problem, Unavailable
from moorage.model.guest import GuestSpec, MoveTarget, PowerState
from moorage.model.ids import CellId
from moorage.model.migration import MigrationStatus, MigrationType
from moorage.model.network import BindRefused, Port
from moorage.model.server import FlavorCopy, Moved, Readdressed, Server, TaskState, VmState
from moorage.operations import move_claims
from moorage.operations.boot.boot import Claim
from moorage.operations.context import SagaContext
from moorage.operations.images.snapshot import IMAGE_PATIENCE_S
from moorage.operations.resize.resize_input import Resize, tries_of
from moorage.operations.steps import moving, offload, segment_change, server_action
from moorage.operations.steps import servers as records
from moorage.operations.steps.boot_volumes import with_disks
from moorage.operations.steps.config_drives import with_drive
from moorage.operations.steps.failures import as_it_was, failed_event
from moorage.operations.steps.guest_respawn import Cards, cards_of
from moorage.operations.steps.guests import guest_of
from moorage.operations.steps.hosts import HOST_SILENT, command_context
from moorage.operations.steps.moving import End
from moorage.operations.steps.segments import note_exhausted
from moorage.operations.steps.servers import LocatedServer
from moorage.operations.steps.vif_plugging import VIF_PLUGGING_MAX_S, await_plugged
from moorage.operations.steps.volumes import VOLUME_PATIENCE_S, disk_of, or_left_to_delete
from moorage.saga import Run, Saga, on_some_host, step
from moorage.sql import Tx
from moorage.store.cell import actions
from moorage.store.cell import servers as cell_servers
from moorage.store.region import quotas

NETWORK_PATIENCE_S = 300.0
HOST_PATIENCE_S = 300.0
HOST_UNREACHABLE, DISK_SHRINKS = "host_unreachable", "disk_shrinks"
"""Codes of hosts: the new one cannot be reached from the old one; the disk would lose data, wherever it goes."""
REFUSED_THERE = frozenset({BINDING_FAILED, BINDING_FAILED_KIND})
EVENTS = ("cold_migrate", "compute_prep_resize", "compute_resize_instance", "compute_finish_resize")

logger = logging.getLogger(__name__)

ResizeRun = Run[Resize, SagaContext]


@step
async def begin_action(run: ResizeRun) -> LocatedServer:
    """The action and the move's record show from the start."""
    kind = run.input.kind
    word = "resize" if kind is MigrationType.RESIZE else "migrate"
    return await moving.begun(run, word, kind, MigrationStatus.PRE_MIGRATING, run.input.flavor)


@begin_action.undo
async def fail_action(run: ResizeRun) -> None:
    """The action ends in Error and the move's record with it; the server is as it was, with the reason as its fault."""
    found = await records.find(run.context, run.input.server.id)
    if found.cell is None or found.server is None:
        return
    now = server_action.now_us()
    events = (failed_event(EVENTS[0], now, found.server.host, run.turned),)

    status = MigrationStatus.CANCELLED if run.cancelled == moving.ON_REQUEST else MigrationStatus.ERROR

    def finish(tx: Tx) -> None:
        moving.with_status(tx, run.input.migration, status)
        actions.finish(tx, run.input.server.id, server_action.request_of(run), events, now, "Error")

    cause = None if run.cancelled is not None else run.turned
    changed = lambda server: as_it_was(server, cause, now)  # noqa: E731
    await records.change(run.context, found.cell, found.server.id, records.fence(run), changed, finish)


@step(needs=(begin_action,), no_undo="reads only", patience_s=HOST_PATIENCE_S)
async def check_source(run: ResizeRun) -> None:
    """Its own host can send guests, and no disk is to shrink: refused before anything is touched."""
    server = _server(run)
    await moving.target_at(run, moving.here(server))
    refuse_shrinking(server, run.input.flavor)


def refuse_shrinking(server: Server, new: FlavorCopy) -> None:
    """Raises HostFailed: a disk would be smaller than it is."""
    old = server.flavor
    root = not server.volume_backed and new.disk_gib < old.disk_gib
    if root or new.ephemeral_gib < old.ephemeral_gib:
        raise HostFailed("Unable to resize disk down.", code=DISK_SHRINKS)


@step(needs=(begin_action, check_source), no_undo="reads only", patience_s=NETWORK_PATIENCE_S)
async def read_ports(run: ResizeRun) -> Cards:
    """One reading for the whole move: what the ports ask, and how they are bound (S1.16). Guarantees need hosts that understand them."""
    cards = await cards_of(run.context, _server(run))
    moving.refuse_old_hosts(run.context, str(run.input.server.host), cards.ports, "moved")
    return cards


@step(region=True, moves=True, needs=(begin_action, read_ports))
async def claim_host(run: ResizeRun) -> Claim:
    """The best willing host of its cell; a loser takes the next (N1). What the server held is held by the move from then on."""
    cards = run[read_ports]
    exhausted = frozenset(each for cause in run.causes for each in cause.without)
    where = (_server(run), cards, _cell(run), run.blamed)
    return await move_claims.claimed(run, tries_of(run.input, *where, attempt=run.attempt, exhausted=exhausted), cards)


@claim_host.undo
async def give_claim_back(run: ResizeRun) -> None:
    """What the move held is the server's again."""
    await move_claims.given_back(run, run.get(read_ports) if run.input.across else None)


@step(needs=(claim_host,), no_undo="reads only", patience_s=HOST_PATIENCE_S)
async def prepare_host(run: ResizeRun) -> MoveTarget:
    """Where the host takes guests; one that is silent, or whose agent knows no moves, is not the one."""
    claim = run[claim_host]
    try:
        return await moving.target_at(run, claim)
    except Problem:
        run.context.placement.count_failure(claim.host, failed=True)
        raise


@step(host_local=True, needs=(read_ports, claim_host, prepare_host), patience_s=NETWORK_PATIENCE_S)
async def bind_destination(run: ResizeRun) -> bool:
    """Inactive bindings on the host, with the providers that were claimed there (S1.6); False: its ports can have none."""
    claim, cards = run[claim_host], run[read_ports]
    if not await _second(run, claim, cards):
        return False
    await moving.not_overtaken(run, _cell(run))
    await run.context.network.bind_inactive(run.input.server.id, claim.name, cards.ports, profiles=claim.profiles)
    return True


@bind_destination.undo
async def unbind_destination(run: ResizeRun) -> None:
    claim, cards = run.get(claim_host), run.get(read_ports)
    if claim is not None and cards is not None and await _second(run, claim, cards):
        await run.context.network.delete_binding(run.input.server.id, claim.name, [port.id for port in cards.ports])


async def _second(run: ResizeRun, claim: Claim, cards: Cards) -> bool:
    """Not where a port is to have an address of another segment: that comes with the one call that binds it there."""
    return not claim.subnets and await moving.second_bindings(
        run.context, cards, str(run.input.server.host), claim.name
    )


@step(
    needs=(begin_action, claim_host, prepare_host, bind_destination),
    no_undo="what the move's record says of its destination stays; that it failed is said by the first step's undo",
)
async def record_destination(run: ResizeRun) -> None:
    """The move's record says where it goes."""
    to = move_claims.destination(run[claim_host], run[prepare_host].address)
    move, status, task = run.input.migration, MigrationStatus.MIGRATING, TaskState.RESIZE_MIGRATING
    await moving.show(run, _cell(run), move, status, task, **to)


@step(host_local=True, needs=(begin_action, claim_host, prepare_host, record_destination), patience_s=IMAGE_PATIENCE_S)
async def send_guest(run: ResizeRun) -> None:
    """Its host switches the guest off and sends its disk."""
    order = SendGuest(run[prepare_host], run.input.migration)
    mine = msgspec.structs.replace(command_context(run, "send_guest"), patience_s=run.context.settings.image_deadline_s)
    source = server_action.host_of(run[begin_action])
    with moving.elsewhere_only(HOST_UNREACHABLE):
        await run.context.hosts.tell(source, mine, run.input.server.id, Verb.SEND_GUEST, order)


@send_guest.undo
async def start_source(run: ResizeRun) -> None:
    """What was on is on again, and nothing is left of what was sent.

    The first command ends the sending, whose disk would come after it was dropped.  Who is deleted has not waited for a
    destination that is silent and may run the guest: then it stays off, for the delete that wants it gone.
    """
    server, claim = run.input.server, run.get(claim_host)
    hosts, source = run.context.hosts, moving.here(server).address
    await moving.if_there(hosts.power_off(source, command_context(run, "stop_sending"), server.id))
    gone = True
    if claim is not None and claim.name != server.host:
        gone = await moving.take_back_guest(run, "drop_sent", claim, run.input.migration, same_host=False)
        await plug_volumes_again(run, partial(command_context, run))
    if server.vm_state is VmState.ACTIVE and (gone or not await moving.for_delete(run)):
        await moving.switch_on_again(run, command_context(run, "start_source"))


async def plug_volumes_again(run: ResizeRun, named: Callable[[str], CommandContext]) -> None:
    """The old host's guest knew exports that are no more, if its volumes were switched."""
    input, found = run.input.server, run.get(begin_action)
    if not input.volumes or found is None:
        return
    now = (await records.find(run.context, input.id)).server
    before = {} if found.server is None else {each.bdm: each.attachment for each in found.server.volumes}
    for each in () if now is None else now.volumes:
        if each.attachment is not None and each.attachment != before.get(each.bdm):
            disk = await disk_of(run.context, each, each.attachment)
            here, mine = moving.here(input).address, named(f"plug_{each.bdm}")
            await moving.if_there(run.context.hosts.attach_volume(here, mine, input.id, disk))


@step(host_local=True, needs=(begin_action, claim_host, send_guest), patience_s=VOLUME_PATIENCE_S)
async def switch_volumes(run: ResizeRun) -> dict[str, str]:
    """Mapping → attachment: each volume is exported to the new host, and to the old one no more."""
    claim, server = run[claim_host], _server(run)
    if claim.name == server.host:
        return {each.bdm: each.attachment for each in server.volumes if each.attachment is not None}
    with moving.elsewhere_only():
        return await offload.export_volumes(run, _cell(run), server, End(claim.cell, claim.name).address, again=True)


@switch_volumes.undo
async def switch_volumes_back(run: ResizeRun) -> None:
    found, claim = run.get(begin_action), run.get(claim_host)
    if found is None or found.server is None or not found.server.volumes:
        return
    if claim is not None and claim.name != found.server.host:
        await or_left_to_delete(run.context, found.server.id, offload.exported_back(run, found.server))


@step(host_local=True, needs=(read_ports, claim_host, bind_destination, send_guest), patience_s=NETWORK_PATIENCE_S)
async def activate_bindings(run: ResizeRun) -> tuple[Port, ...]:
    """The switch: traffic goes to the new host. Where ports have one binding only, it is bound there."""
    claim, cards = run[claim_host], run[read_ports]
    if _stays_bound(run, claim):
        return cards.ports
    await moving.not_overtaken(run, _cell(run))
    end = End(claim.cell, claim.name, claim.availability_zone)
    left = str(run.input.server.host)
    if claim.subnets:
        return await _bound_across(run, end, claim, cards)
    with moving.elsewhere_only():
        return await moving.bound_at(
            run, cards, moving.BindTarget(end, claim.profiles, left), second=run[bind_destination]
        )


def _stays_bound(run: ResizeRun, claim: Claim) -> bool:
    """On its own host, with the providers and the addresses that it has."""
    return claim.name == run.input.server.host and not claim.profiles and not claim.subnets


async def _bound_across(run: ResizeRun, end: End, claim: Claim, cards: Cards) -> tuple[Port, ...]:
    """With an address of the new segment, beside the old one, which stays until this is confirmed; a segment without any is left out then."""
    kept, left = segment_change.addresses_until_confirmed(cards, claim.subnets), str(run.input.server.host)
    try:
        ports = await moving.bound_at(
            run, cards, moving.BindTarget(end, claim.profiles, left, claim.subnets, kept), second=False
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
    await moving.not_overtaken(run, moving.here(run.input.server).cell)
    second, end = await _second(run, claim, cards), moving.here(run.input.server)
    kept = segment_change.addresses_until_confirmed(cards, claim.subnets)
    try:
        await moving.bound_at(
            run, cards, moving.BindTarget(end, moving.profiles_of(cards), claim.name, keeps=kept), second=second
        )
    except BindRefused as refused:
        if refused.code not in REFUSED_THERE:
            raise
        # The network's agent there is dead: its guest runs again all the same, and an audit binds the ports when it is back.
        logger.warning("%s: its ports are not bound on their old host: %s", run.input.server.id, refused.public)


@step(
    host_local=True,
    needs=(begin_action, read_ports, claim_host, send_guest, switch_volumes, activate_bindings),
    patience_s=HOST_PATIENCE_S,
)
async def land_guest(run: ResizeRun) -> None:
    """The new host makes the guest of what was sent, in its new size; it is off still."""
    claim = run[claim_host]
    guest = await guest_there(run, run[activate_bindings])
    order = TakeGuest(guest, run.input.migration)
    to = End(claim.cell, claim.name).address
    with moving.elsewhere_only(but=(DISK_SHRINKS,)):
        await run.context.hosts.tell(to, command_context(run, "land_guest"), guest.server, Verb.TAKE_GUEST, order)


@land_guest.undo
async def drop_guest(run: ResizeRun) -> None:
    await _drop(run, "drop_guest")


async def _drop(run: ResizeRun, step: str) -> bool:
    claim = run.get(claim_host)
    if claim is None:
        return True
    same = claim.name == run.input.server.host
    return await moving.take_back_guest(run, step, claim, run.input.migration, same_host=same)


async def guest_there(run: ResizeRun, ports: tuple[Port, ...]) -> GuestSpec:
    """What the host that was claimed is told to make."""
    claim, cards, input = run[claim_host], run[read_ports], run.input
    server = msgspec.structs.replace(_server(run), flavor=input.flavor)
    guest = guest_of(server, cards.networks, ports, claim.availability_zone)
    guest = msgspec.structs.replace(guest, power_on=server.vm_state is VmState.ACTIVE)
    guest = await with_drive(run.context, server, guest, cards.networks, ports)
    return await with_disks(run.context, server, guest, run[switch_volumes])


@step(host_local=True, needs=(claim_host, switch_volumes, activate_bindings, land_guest), patience_s=HOST_PATIENCE_S)
async def start_guest(run: ResizeRun) -> PowerState:
    """It is switched on there, or left off as it was."""
    claim = run[claim_host]
    guest = await guest_there(run, run[activate_bindings])
    to = End(claim.cell, claim.name).address
    try:
        with moving.elsewhere_only(but=(HOST_SILENT,)):  # it may run there: nobody else starts it before that is over
            state = await run.context.hosts.start_guest(to, command_context(run, "start_guest"), guest)
    except Problem:
        run.context.placement.count_failure(claim.host, failed=True)
        raise
    run.context.placement.count_failure(claim.host, failed=False)
    return state


@start_guest.undo
async def stop_guest(run: ResizeRun) -> None:
    """A silent host may run it: the old guest is not started before that host is heard, or said to be fenced (RULES §11)."""
    claim = run.get(claim_host)
    if await _drop(run, "stop_guest") or claim is None or await moving.for_delete(run):
        return
    if claim.name not in run.context.placement.forced_down(claim.cell):
        problem = Unavailable("the new host is silent and may run the guest; it is waited for")
        raise problem.naming(f"host {claim.name} is silent and may run the guest; it is waited for, or force it down")


@step(
    needs=(claim_host, activate_bindings, start_guest),
    no_undo="it only waits",
    patience_s=VIF_PLUGGING_MAX_S + NETWORK_PATIENCE_S,
)
async def await_vifs(run: ResizeRun) -> None:
    """Wait until the network says that what was bound is plugged, as a boot does; a guest that is off plugs nothing."""
    claim, ports = run[claim_host], run[activate_bindings]
    if run.input.server.vm_state is VmState.ACTIVE and claim.name != run.input.server.host:
        with moving.elsewhere_only():
            await await_plugged(run, ports, claim.name)


@step(
    needs=(claim_host, start_guest),
    no_undo="a server that was shown VERIFY_RESIZE is reverted by another operation",
    point_of_no_return=True,
)
async def record_resized(run: ResizeRun) -> None:
    """VERIFY_RESIZE, on its new host, in its new size; the action is finished with it."""
    now, claim = server_action.now_us(), run[claim_host]
    events = events_of(run, now)

    def also(tx: Tx) -> None:
        moving.with_status(tx, run.input.migration, MigrationStatus.FINISHED)
        actions.finish(tx, run.input.server.id, server_action.request_of(run), events, now, None)

    by, changed = records.fence(run), lambda server: resized(run, server, now)
    await records.change(run.context, moving.here(run.input.server).cell, run.input.server.id, by, changed, also)
    run.context.hosts.start_counts(claim.name, run.input.server.id, run.input.seq)


def events_of(run: ResizeRun, now: int) -> tuple[Event, ...]:
    """Of the action that went well."""
    claim, told = run[claim_host], segment_change.describe(_readdressed(run))
    return tuple(
        Event(each, now, now, "Success", claim.name, details=told if each == EVENTS[-1] else None) for each in EVENTS
    )


@record_resized.passed
async def was_recorded(run: ResizeRun) -> bool:
    """An adopter asks: does the record say so already, by this operation?"""
    by, cell = records.fence(run), moving.here(run.input.server).cell
    row = await run.context.cells[cell].write(lambda tx: cell_servers.take_over(tx, run.input.server.id, by))
    shown = row is not None and row.moved is not None and row.moved.migration == run.input.migration
    if shown and row is not None and run.context.notification_writer is not None:
        run.context.notification_writer.seen(run.operation, row)
    return shown


def resized(run: ResizeRun, server: Server, now: int) -> Server:
    """The record of a server that waits to be confirmed or reverted. Done already, it stays as it is."""
    input, claim, cards = run.input, run[claim_host], run[read_ports]
    ports, attachments, state = run.get(activate_bindings), run.get(switch_volumes), run.get(start_guest)
    if server.moved is not None and server.moved.migration == input.migration:
        return server
    assert server.host is not None
    second = run.get(bind_destination) is True
    moved = Moved(
        at=now,
        migration=input.migration,
        vm_state=input.server.vm_state,
        flavor=server.flavor,
        host=server.host,
        node=server.node,
        provider=server.provider,
        availability_zone=server.availability_zone,
        disk_config=server.disk_config,
        second_bindings=second,
        profiles={} if second else moving.profiles_of(cards),
        readdressed=_readdressed(run),
        cell=None if claim.cell == server.cell else server.cell,
    )
    return msgspec.structs.replace(
        move_claims.on_claimed(server, claim, cards, ports, attachments, state),
        cell=claim.cell,
        flavor=input.flavor,
        moved=moved,
        disk_config=input.disk_config or server.disk_config,
        vm_state=VmState.RESIZED,
        task_state=None,
        launched_at=now,
        updated_at=now,
    )


def _readdressed(run: ResizeRun) -> tuple[Readdressed, ...]:
    """The cards that left their segments."""
    claim, cards, ports = run[claim_host], run[read_ports], run.get(activate_bindings)
    return () if ports is None else segment_change.readdressed(cards, claim.subnets, ports)


def _ended(tx: Tx, run: ResizeRun, status: str) -> None:
    """What it weighed more in its quota is given back with a move that did not come to be."""
    if status == "unwound" and run.input.charged:
        quotas.release(tx, run.input.server.project, run.input.charged, run.input.server.user)
    records.release(tx, run)


RESIZE = Saga(
    "resize/1",
    Resize,
    begin_action,
    check_source,
    read_ports,
    on_some_host(
        claim_host,
        prepare_host,
        bind_destination,
        record_destination,
        send_guest,
        switch_volumes,
        activate_bindings,
        land_guest,
        start_guest,
        await_vifs,
        host=lambda claim: claim.host,
    ),
    record_resized,
    ended=_ended,
)


# ------------------------------------------------------------------------------------------------- what is asked


def _server(run: ResizeRun) -> Server:
    server = run[begin_action].server
    assert server is not None
    return server


def _cell(run: ResizeRun) -> CellId:
    cell = run[begin_action].cell
    assert cell is not None
    return cell
