"""Unshelve: an offloaded server is placed like a boot, with the ports and addresses it kept, and made from the image of
its disk.

    read_ports      its ports, with their resource requests
    on a host, and after a failure on the next one, with the same ports:
      claim_host    compute, guarantees and the addresses it still has, in one claim that replaces the old one
      bind_ports    each port on the host, which must reach the segment of its address, unless it may leave it
      connect_volumes   each volume, reserved until now, is exported to the host and in use
      record_host, start_guest, await_vifs
    announce        ACTIVE (point of no return)
    leave_addresses, release_addresses   addresses of a segment that the server left are released (`unshelve/2`)
    delete_image

A failure restores it: SHELVED_OFFLOADED with the same image, addresses claimed, ports unbound, volumes reserved. Its
record stays in its cell, so only hosts of that cell are considered; for servers that may leave their cell see
`unshelve_cross_cell`. A SHELVED server is still on its host: `unshelve_in_place` starts it there.
"""

import logging
from collections.abc import Mapping

import msgspec

from moorage.bus.agent_calls import HostAddress
from moorage.model.action import ActionEvent
from moorage.model.errors import Doubtful, NotFound, Problem, Unavailable
from moorage.model.guest import PowerState
from moorage.model.host_ports import PortOrder
from moorage.model.ids import PortId
from moorage.model.network import Port
from moorage.model.server import Nic, Server, TaskState, VmState
from moorage.operations.boot import legacy_ports
from moorage.operations.boot.boot import Claim
from moorage.operations.shelve.unshelve_claim import (
    EVENT,
    NETWORK_PATIENCE_S,
    UnshelveRun,
    begin_action,
    bind_ports,
    cell_at_begin,
    cell_of,
    check_image,
    claim_host,
    connect_volumes,
    host_binds,
    read_ports,
)
from moorage.operations.steps import left_guests, moving, offload, old_addresses, segment_change, server_action
from moorage.operations.steps import servers as records
from moorage.operations.steps.boot_volumes import with_attachments, with_disks
from moorage.operations.steps.config_drives import with_drive
from moorage.operations.steps.guest_respawn import Cards
from moorage.operations.steps.guests import guest_of
from moorage.operations.steps.hosts import command_context, names_of
from moorage.operations.steps.ports import as_recorded, nics_of, other_subnets
from moorage.operations.steps.vif_plugging import VIF_PLUGGING_MAX_S, await_plugged
from moorage.operations.unshelve_input import Unshelve
from moorage.saga import Saga, on_some_host, step
from moorage.store.cell import servers as cell_servers

logger = logging.getLogger(__name__)

HOST_PATIENCE_S = 300.0
PATIENCE_S = 24 * 3600.0


@step(moves=True, needs=(begin_action, claim_host, bind_ports, connect_volumes))
async def record_host(run: UnshelveRun) -> Server:
    """Write the new host into the record."""
    claim, cards, cell = run[claim_host], run[read_ports], cell_of(run)
    ports: tuple[Port, ...] = run[bind_ports]
    nics, attachments = nics_of(ports, cards.networks), run[connect_volumes]
    return await records.change(
        run.context,
        cell,
        run.input.server.id,
        records.fence(run),
        lambda server: msgspec.structs.replace(
            with_attachments(server, attachments),
            host=claim.name,
            node=claim.node,
            provider=claim.host,
            availability_zone=claim.availability_zone,
            nics=tuple(_with_record_fields(server, each) for each in nics),
            task_state=TaskState.SPAWNING,
        ),
    )


@record_host.undo
async def forget_host(run: UnshelveRun) -> None:
    """Restore the record: on no host."""
    located = run.get(begin_action)
    before = located.server.nics if located is not None and located.server is not None and run.input.across else ()
    back = lambda server: _back(server, {nic.port: nic for nic in before})  # noqa: E731
    try:
        await records.change(run.context, cell_at_begin(run), run.input.server.id, records.fence(run), back)
    except NotFound:
        return


def _back(server: Server, before: Mapping[PortId | None, Nic]) -> Server:
    vm_state = server.vm_state
    gone = offload.offloaded(server)
    nics = tuple(segment_change.addressed_as(nic, before.get(nic.port)) for nic in gone.nics)
    return msgspec.structs.replace(gone, vm_state=vm_state, nics=nics)


def _with_record_fields(server: Server, nic: Nic) -> Nic:
    """The fields of a NIC that only the record has."""
    before = next((each for each in server.nics if each.port == nic.port), nic)
    return as_recorded(nic, before)


@step(host_local=True, needs=(claim_host, bind_ports, connect_volumes, record_host), patience_s=HOST_PATIENCE_S)
async def start_guest(run: UnshelveRun) -> PowerState | legacy_ports.LegacyStart:
    """Let the host make the guest from the image of its disk. A host of level 2 binds its ports first, and reports
    them.
    """
    claim, cards, server = run[claim_host], run[read_ports], run[record_host]
    ports: tuple[Port, ...] = run[bind_ports]
    guest = guest_of(server, cards.networks, ports, claim.availability_zone)
    guest = await with_drive(run.context, server, guest, cards.networks, ports)
    guest = msgspec.structs.replace(guest, image=run.input.image or guest.image)
    guest = await with_disks(run.context, server, guest, run[connect_volumes])
    to, mine = HostAddress(claim.cell, claim.name), command_context(run, "start_guest")
    state: PowerState | legacy_ports.LegacyStart
    try:
        if host_binds(run, claim):
            order = _order(run, claim, cards)
            state = await legacy_ports.build(run, mine, claim, order, guest, lambda: _same(cards.ports))
        else:
            state = await run.context.hosts.start_guest(to, mine, guest)
    except Problem:
        run.context.placement.count_failure(claim.host, failed=True)
        raise
    run.context.placement.count_failure(claim.host, failed=False)
    return state


def _order(run: UnshelveRun, claim: Claim, cards: Cards) -> PortOrder:
    return PortOrder(
        how="bind",
        project=run.input.server.project,
        availability_zone=claim.availability_zone,
        ports=cards.ports,
        networks=cards.networks,
        subnets=claim.subnets,
        beside=other_subnets(cards.ports, cards.networks, claim.subnets),
        profiles=claim.profiles,
        tried=names_of(run.context.placement.world(), run.tried),
        unsure=run.unsure or run.attempt > 1,
    )


async def _same(ports: tuple[Port, ...]) -> tuple[Port, ...]:
    """The ports exist: only a boot makes ports."""
    return ports


async def _made_there(run: UnshelveRun, claim: Claim) -> bool:
    """A silent host destroys nothing now."""
    try:
        return await moving.has_guest(run.context, moving.End(claim.cell, claim.name), run.input.server.id)
    except Unavailable as out:
        logger.info("%s: whether %s has the guest is not known: %s", run.operation, claim.name, out)
        return False


@start_guest.undo
async def destroy_guest(run: UnshelveRun) -> None:
    """Destroy what was made. Raises Doubtful when the image from which it was made is gone: then it is all that is left
    (RULES §26).
    """
    claim, image = run.get(claim_host), run.input.image
    if claim is not None and image is not None and not await moving.for_delete(run):
        try:
            await run.context.images.show(image)
        except NotFound:
            if await _made_there(run, claim):
                raise Doubtful(
                    f"The image of instance {run.input.server.id} is gone, so the guest that was made is kept."
                ) from None
    if claim is not None:
        to = HostAddress(claim.cell, claim.name)
        await left_guests.undone_or_owed(run, "destroy_guest", to, start_guest.name)


@step(
    needs=(claim_host, bind_ports, start_guest),
    no_undo="it only waits",
    patience_s=VIF_PLUGGING_MAX_S + NETWORK_PATIENCE_S,
)
async def await_vifs(run: UnshelveRun) -> None:
    """Wait until the network service reports the bound ports as plugged, as a boot does."""
    ports = legacy_ports.bound(run.get(start_guest), run[bind_ports])
    await await_plugged(run, ports, run[claim_host].name)


@step(no_undo="a server that was shown ACTIVE stays so", point_of_no_return=True, needs=(claim_host, start_guest))
async def announce(run: UnshelveRun) -> None:
    """Show ACTIVE on its host, no longer shelved, and finish the action."""
    await show_active(run)


async def show_active(run: UnshelveRun) -> None:
    """Show ACTIVE in the server's own cell."""
    now = server_action.now_us()
    await records.change(
        run.context,
        cell_at_begin(run),
        run.input.server.id,
        records.fence(run),
        lambda server: unshelved(run, server, now),
        lambda tx: server_action.finish(tx, run, ended_well(run, now), now),
    )


def ended_well(run: UnshelveRun, now: int) -> tuple[ActionEvent, ...]:
    """The last event of its action."""
    claim = run[claim_host]
    details = segment_change.describe_bound(run.get(read_ports), claim.subnets, run.get(bind_ports))
    return (ActionEvent(EVENT, now, now, "Success", claim.name, details=details),)


@announce.passed
async def was_announced(run: UnshelveRun) -> bool:
    """Whether this operation has shown the server ACTIVE already. An adopter asks this."""
    by = records.fence(run)
    row = await run.context.cells[cell_at_begin(run)].write(
        lambda tx: cell_servers.take_over(tx, run.input.server.id, by)
    )
    shown = row is not None and row.operation == run.operation and row.shelved is None
    if shown and row is not None and run.context.notification_writer is not None:
        run.context.notification_writer.seen(run.operation, row)
    return shown


def unshelved(run: UnshelveRun, server: Server, now: int) -> Server:
    """The record of a server that runs again; where its host bound the ports, they are as the host reported."""
    cards = run.get(read_ports)
    state, by_host = legacy_ports.answered(run.get(start_guest), {} if cards is None else cards.networks)
    return msgspec.structs.replace(
        server,
        vm_state=VmState.ACTIVE,
        task_state=None,
        power_state=server.power_state if state is None else int(state),
        nics=server.nics if by_host is None else tuple(_with_record_fields(server, each) for each in by_host),
        ended=run.operation,
        pinned_az=run.input.zone,
        shelved=None,
        fault=None,
        launched_at=now,
        updated_at=now,
    )


@step(
    needs=(read_ports, claim_host, start_guest), no_undo=old_addresses.FORWARD_ONLY, patience_s=old_addresses.PATIENCE_S
)
async def leave_addresses(run: UnshelveRun) -> None:
    """Take addresses of left segments from the ports; the record is in the cell of its host by now."""
    await old_addresses.leave(run, run[claim_host].cell, run[read_ports], run[claim_host].subnets)


@step(region=True, needs=(read_ports, claim_host, leave_addresses), no_undo=old_addresses.FORWARD_ONLY)
async def release_addresses(run: UnshelveRun) -> None:
    """Release the addresses that the server held in addition to its new ones."""
    await old_addresses.release(run, run.input.server.id, run[read_ports], run[claim_host].subnets)


@step(needs=(start_guest,), no_undo="it only goes forward", patience_s=PATIENCE_S)
async def delete_image(run: UnshelveRun) -> None:
    """Delete the image: the disk is on the host again. A protected image stays."""
    if run.input.image is not None:
        await run.context.images.delete(run.input.image)


_BEFORE = (begin_action, check_image, read_ports)
_ON_A_HOST = on_some_host(
    claim_host,
    bind_ports,
    connect_volumes,
    record_host,
    start_guest,
    await_vifs,
    host=lambda claim: claim.host,
)

UNSHELVE = Saga("unshelve/1", Unshelve, *_BEFORE, _ON_A_HOST, announce, delete_image, ended=records.release_server)

UNSHELVE_ACROSS = Saga(
    "unshelve/2",
    Unshelve,
    *_BEFORE,
    _ON_A_HOST,
    announce,
    leave_addresses,
    release_addresses,
    delete_image,
    ended=records.release_server,
)
"""For servers that may get addresses of other segments."""
