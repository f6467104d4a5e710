"""Resize and cold migration: the server moves, switched off, to another host and waits there for confirm or revert.

    read_ports        its ports, with their current resource requests
    on a host, and if that one refuses on the next one:
      claim_host      compute, guarantees and addresses in one claim; the move holds the old ones (RULES §11)
      prepare_host    the host reports where it takes guests: a host that cannot take them is found here
      bind_destination   inactive bindings there: a refusal has no effect on the traffic
      send_guest      the guest is switched off, and its disk is sent to the other host
      switch_volumes, activate_bindings, land_guest, start_guest, await_vifs
    record_resized    VERIFY_RESIZE (point of no return)

Until `send_guest` nothing of the server is changed. A later failure restores it: the other host's guest is removed,
ports and volumes go back to the old host, and the guest is switched on there if it was on. If the new host was to
blame, the next one is tried; what the old host or a service refuses would fail there too. The old host keeps guest,
claim and bindings until the move is confirmed or reverted, so a revert is never refused for lack of room.

A migration is a resize to the same flavor. A server may be resized on its own host, if that is allowed; its claim is
held twice then.
"""

import msgspec

from moorage.bus.move_payloads import TakeGuest
from moorage.bus.verbs import Verb
from moorage.model.action import ActionEvent
from moorage.model.errors import Problem, Unavailable
from moorage.model.guest import GuestSpec, PowerState
from moorage.model.migration import MigrationStatus
from moorage.model.network import Port
from moorage.model.server import Moved, Readdressed, Server, TaskState, VmState
from moorage.operations import move_claims
from moorage.operations.resize.prepare_resize import (
    DISK_SHRINKS,
    EVENTS,
    HOST_PATIENCE_S,
    NETWORK_PATIENCE_S,
    ResizeRun,
    activate_bindings,
    begin_action,
    bind_destination,
    cell_of,
    check_source,
    claim_host,
    prepare_host,
    read_ports,
    record_destination,
    send_guest,
    server_of,
)
from moorage.operations.resize.resize_input import Resize
from moorage.operations.steps import left_guests, move_ports, moving, offload, segment_change, server_action
from moorage.operations.steps import servers as records
from moorage.operations.steps.boot_volumes import with_disks
from moorage.operations.steps.config_drives import with_drive
from moorage.operations.steps.guests import guest_of
from moorage.operations.steps.hosts import SILENT, command_context
from moorage.operations.steps.moving import End
from moorage.operations.steps.vif_plugging import VIF_PLUGGING_MAX_S, await_plugged
from moorage.operations.steps.volumes import VOLUME_PATIENCE_S, or_left_to_delete
from moorage.saga import Saga, on_some_host, step
from moorage.sql import Tx
from moorage.store.cell import servers as cell_servers
from moorage.store.region import quotas


@step(host_local=True, needs=(begin_action, claim_host, send_guest), patience_s=VOLUME_PATIENCE_S)
async def switch_volumes(run: ResizeRun) -> dict[str, str]:
    """Export each volume to the new host, and no longer to the old one. Returns mapping → attachment."""
    claim, server = run[claim_host], server_of(run)
    if claim.name == server.host:
        return {each.bdm: each.attachment for each in server.volumes if each.attachment is not None}
    with moving.elsewhere_only():
        return await offload.export_volumes(run, cell_of(run), server, End(claim.cell, claim.name).address, again=True)


@switch_volumes.undo
async def switch_volumes_back(run: ResizeRun) -> None:
    located, claim = run.get(begin_action), run.get(claim_host)
    if located is None or located.server is None or not located.server.volumes:
        return
    if claim is not None and claim.name != located.server.host:
        await or_left_to_delete(run.context, located.server.id, offload.exported_back(run, located.server))


@step(
    host_local=True,
    needs=(begin_action, read_ports, claim_host, send_guest, switch_volumes, activate_bindings),
    patience_s=HOST_PATIENCE_S,
)
async def land_guest(run: ResizeRun) -> None:
    """Let the new host make the guest from what was sent, in its new size; it is still off."""
    claim = run[claim_host]
    guest = await guest_there(run, run[activate_bindings])
    order = TakeGuest(guest, run.input.migration)
    to = End(claim.cell, claim.name).address
    await records.not_overtaken(run, cell_of(run), TaskState.RESIZE_FINISH)
    with moving.elsewhere_only(but=(DISK_SHRINKS,)):
        await run.context.hosts.change_guest(
            to, command_context(run, "land_guest"), guest.server, Verb.TAKE_GUEST, order
        )


@land_guest.undo
async def drop_guest(run: ResizeRun) -> None:
    await _drop(run, "drop_guest")


async def _drop(run: ResizeRun, step: str) -> bool:
    claim = run.get(claim_host)
    if claim is None:
        return True
    same, source = claim.name == run.input.server.host, moving.current_end(run.input.server)
    return await moving.take_back_guest(run, step, claim, run.input.migration, same_host=same, source=source)


async def guest_there(run: ResizeRun, ports: tuple[Port, ...]) -> GuestSpec:
    """The specification of the guest for the claimed host."""
    claim, cards, input = run[claim_host], run[read_ports], run.input
    server = msgspec.structs.replace(server_of(run), flavor=input.flavor)
    guest = guest_of(server, cards.networks, ports, claim.availability_zone)
    guest = msgspec.structs.replace(guest, power_on=server.vm_state is VmState.ACTIVE)
    guest = await with_drive(run.context, server, guest, cards.networks, ports)
    return await with_disks(run.context, server, guest, run[switch_volumes])


@step(host_local=True, needs=(claim_host, switch_volumes, activate_bindings, land_guest), patience_s=HOST_PATIENCE_S)
async def start_guest(run: ResizeRun) -> PowerState:
    """Switch it on there, or leave it off as it was."""
    claim = run[claim_host]
    guest = await guest_there(run, run[activate_bindings])
    to = End(claim.cell, claim.name).address
    try:
        with moving.elsewhere_only(
            but=tuple(SILENT)
        ):  # it may run there: no other host starts it before this is decided
            state = await run.context.hosts.start_guest(to, command_context(run, "start_guest"), guest)
    except Problem:
        run.context.placement.count_failure(claim.host, failed=True)
        raise
    run.context.placement.count_failure(claim.host, failed=False)
    return state


@start_guest.undo
async def stop_guest(run: ResizeRun) -> None:
    """Switch it off. A silent host may run it: the old guest is not started until that host answers or is fenced (RULES
    §11).
    """
    claim = run.get(claim_host)
    if await _drop(run, "stop_guest") or claim is None:
        return
    if await moving.for_delete(run):
        await left_guests.owe_unless_off(run, End(claim.cell, claim.name).address)
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
    """Wait until the network service reports the bound ports as plugged, as a boot does. A guest that is off plugs
    nothing.
    """
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
    """Show VERIFY_RESIZE on the new host, in the new size, and finish the action."""
    now, claim = server_action.now_us(), run[claim_host]
    events = events_of(run, now)

    def also(tx: Tx) -> None:
        moving.with_status(tx, run.input.migration, MigrationStatus.FINISHED)
        server_action.finish(tx, run, events, now)

    by, changed = records.fence(run), lambda server: resized(run, server, now)
    await records.change(
        run.context, moving.current_end(run.input.server).cell, run.input.server.id, by, changed, also, last=True
    )
    run.context.hosts.start_counts(claim.name, run.input.server.id, run.input.seq)


def events_of(run: ResizeRun, now: int) -> tuple[ActionEvent, ...]:
    """The events of the finished action."""
    claim, details = run[claim_host], segment_change.describe(_readdressed(run))
    return tuple(
        ActionEvent(
            each,
            now,
            now,
            "Success",
            run.input.server.host if each == EVENTS[2] else claim.name,
            details=details if each == EVENTS[-1] else None,
        )
        for each in EVENTS
    )


@record_resized.passed
async def was_recorded(run: ResizeRun) -> bool:
    """Whether the record says so already, by this operation. An adopter asks this."""
    by, cell = records.fence(run), moving.current_end(run.input.server).cell
    row = await run.context.cells[cell].write(lambda tx: cell_servers.take_over(tx, run.input.server.id, by))
    shown = row is not None and row.moved is not None and row.moved.migration == run.input.migration
    if shown and row is not None and run.context.notification_writer is not None:
        run.context.notification_writer.seen(run.operation, row)
    return shown


def resized(run: ResizeRun, server: Server, now: int) -> Server:
    """The record of a server that waits for confirm or revert. If that was written already, it stays as it is."""
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
        profiles={} if second else move_ports.profiles_of(cards),
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
        ended=run.operation,
        launched_at=now,
        updated_at=now,
    )


def _readdressed(run: ResizeRun) -> tuple[Readdressed, ...]:
    """The NICs that left their segments."""
    claim, cards, ports = run[claim_host], run[read_ports], run.get(activate_bindings)
    return () if ports is None else segment_change.readdressed(cards, claim.subnets, ports)


def _ended(tx: Tx, run: ResizeRun, status: str) -> None:
    """Release the additional quota when the move failed."""
    if status == "unwound" and run.input.charged:
        quotas.release(tx, run.input.server.project, run.input.charged, run.input.server.user)
    records.release(tx, run, recorded=status == "done")


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
