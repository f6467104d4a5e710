"""Evacuate: a server whose host is dead is rebuilt on another host, with its ports and addresses, from its image or
volumes.

    begin_action      the action, and the move's record: `accepted`
    fence_source      proof that the old guest cannot run; without it nothing is changed (RULES §11)
    read_ports        its ports, with their current resource requests
  on a host, and after a failure on the next one, with the same ports:
      claim_host      compute, guarantees and addresses in one claim; the move holds what the server held
      bind_ports      each port on the host, with the providers that were claimed (S1.4, S1.5)
      connect_volumes each volume is exported to the new host, and no longer to the old one
      record_destination   `pre-migrating`
      prove_fenced    proof again, at this moment; from here on the old host is told to destroy its guest: `migrating`
      start_guest, await_vifs
    record_evacuated  on its new host (point of no return): `done`
    leave_addresses, release_addresses   addresses of a segment that the server left are released (`evacuate/2`)

Its local disk is made from the image again: what was written on the old host is lost, as in Nova. When the silent old
host returns without the guest, its cell's conductor releases what the move holds there, and the record says `completed`
(conductor/returned_hosts.py). A failure leaves the server in ERROR on its old host, with its claim. For servers that
may leave their cell see `evacuate_cross_cell`.
"""

import msgspec

from moorage.model.action import ActionEvent
from moorage.model.errors import Problem
from moorage.model.fence_proof import FenceProof
from moorage.model.guest import GuestSpec, PowerState
from moorage.model.migration import MigrationStatus
from moorage.model.network import Port
from moorage.model.server import Server, TaskState, VmState
from moorage.operations import move_claims
from moorage.operations.boot.boot import Claim
from moorage.operations.evacuate import failed_evacuation as back
from moorage.operations.evacuate.evacuate_claim import (
    EVENTS,
    NETWORK_PATIENCE_S,
    EvacuateRun,
    begin_action,
    bind_ports,
    cell_of,
    claim_host,
    connect_volumes,
    end_of,
    fence_source,
    read_ports,
    server_of,
)
from moorage.operations.evacuate.evacuate_input import Evacuate
from moorage.operations.steps import fencing, left_guests, moving, old_addresses, segment_change, server_action
from moorage.operations.steps import servers as records
from moorage.operations.steps.boot_volumes import with_disks
from moorage.operations.steps.config_drives import with_drive
from moorage.operations.steps.guests import guest_of
from moorage.operations.steps.hosts import command_context
from moorage.operations.steps.vif_plugging import VIF_PLUGGING_MAX_S, await_plugged
from moorage.saga import Saga, on_some_host, step
from moorage.sql import Tx
from moorage.store.cell import migrations
from moorage.store.cell import servers as cell_servers

HOST_PATIENCE_S = 300.0
OVER = frozenset({MigrationStatus.DONE, MigrationStatus.COMPLETED})


@step(
    moves=True,
    needs=(begin_action, claim_host, bind_ports, connect_volumes),
    no_undo="what the move's record says of its destination stays; that it failed is said by the first step's undo",
)
async def record_destination(run: EvacuateRun) -> None:
    """Write the destination into the move's record."""
    rebuilds = server_action.ActionProgress(EVENTS[:1], ((EVENTS[1], run[claim_host].name),))
    await _show(run, TaskState.REBUILD_BLOCK_DEVICE_MAPPING, MigrationStatus.PRE_MIGRATING, rebuilds)


@step(
    moves=True,
    needs=(begin_action, claim_host, record_destination),
    patience_s=HOST_PATIENCE_S,
)
async def prove_fenced(run: EvacuateRun) -> FenceProof:
    """Record that the source is fenced, with a proof of this moment: from now on an old host that returns is told to
    destroy its guest.

    The old host may have the only disk, so this is recorded only for a host that was proved to be fenced before, too.
    """
    await fencing.prove(run, "prove_fenced", server_of(run))
    await _show(run, TaskState.REBUILD_SPAWNING, MigrationStatus.MIGRATING)
    return await fencing.prove(run, "prove_fenced", server_of(run))


@prove_fenced.undo
async def keep_old_guest(run: EvacuateRun) -> None:
    """Cancel that the old host destroys its guest. Runs after the new guest is gone, and before volumes and ports go
    back.
    """
    await back.keep_guest(run, moving.current_end(run.input.server).cell)


async def _show(
    run: EvacuateRun,
    task: TaskState,
    status: MigrationStatus,
    progress: server_action.ActionProgress | None = None,
) -> None:
    claim = run[claim_host]
    to = {**move_claims.destination(claim), "dest_cell": None if claim.cell == cell_of(run) else claim.cell}
    await moving.show(run, cell_of(run), run.input.migration, status, task, progress, unless=OVER, **to)


@step(
    host_local=True,
    needs=(claim_host, bind_ports, connect_volumes, prove_fenced),
    patience_s=HOST_PATIENCE_S,
)
async def start_guest(run: EvacuateRun) -> PowerState:
    """Let the host make the guest from the image or the volumes: it is proved that the other guest cannot run."""
    claim = run[claim_host]
    guest = await _guest(run, claim)
    try:
        state = await run.context.hosts.start_guest(end_of(claim).address, command_context(run, "start_guest"), guest)
    except Problem:
        run.context.placement.count_failure(claim.host, failed=True)
        raise
    run.context.placement.count_failure(claim.host, failed=False)
    return state


@start_guest.undo
async def destroy_guest(run: EvacuateRun) -> None:
    """Destroy the guest. A silent host does so when it returns; until its start counts it keeps the guest off (RULES
    §23).
    """
    claim = run.get(claim_host)
    if claim is not None:
        await left_guests.undone_or_owed(run, "destroy_guest", end_of(claim).address, start_guest.name)


async def _guest(run: EvacuateRun, claim: Claim) -> GuestSpec:
    cards, server = run[read_ports], server_of(run)
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
    """Wait until the network service reports the bound ports as plugged. A guest that is off plugs nothing."""
    claim, ports = run[claim_host], run[bind_ports]
    if run.input.becomes is VmState.ACTIVE:
        await await_plugged(run, ports, claim.name)


@step(
    needs=(claim_host, start_guest),
    no_undo="a server that was shown on its new host stays there",
    point_of_no_return=True,
)
async def record_evacuated(run: EvacuateRun) -> None:
    """Show the server on its new host, and finish the action."""
    await show_evacuated(run)


def ended_well(run: EvacuateRun, now: int) -> tuple[ActionEvent, ...]:
    """The last event of its action."""
    claim = run[claim_host]
    details = segment_change.describe_bound(run.get(read_ports), claim.subnets, run.get(bind_ports))
    return tuple(
        ActionEvent(each, now, now, "Success", claim.name, details=details if each == EVENTS[-1] else None)
        for each in EVENTS
    )


async def show_evacuated(run: EvacuateRun) -> None:
    """Show the server, evacuated, in its own cell."""
    now, claim = server_action.now_us(), run[claim_host]

    def also(tx: Tx) -> None:
        moving.with_status(tx, run.input.migration, MigrationStatus.DONE, unless=OVER)
        server_action.finish(tx, run, ended_well(run, now), now)

    by, changed = records.fence(run), lambda server: evacuated(run, server, now)
    await records.change(run.context, moving.current_end(run.input.server).cell, run.input.server.id, by, changed, also)
    run.context.hosts.start_counts(claim.name, run.input.server.id, run.input.seq)


@record_evacuated.passed
async def was_recorded(run: EvacuateRun) -> bool:
    """Whether the move's record says so already. An adopter asks this."""
    by, id = records.fence(run), run.input.server.id

    def finished(tx: Tx) -> Server | None:
        row, move = cell_servers.take_over(tx, id, by), migrations.get(tx, run.input.migration)
        return row if move is not None and move.status in OVER else None

    row = await run.context.cells[moving.current_end(run.input.server).cell].write(finished)
    if row is not None and run.context.notification_writer is not None:
        run.context.notification_writer.seen(run.operation, row)
    return row is not None


def evacuated(run: EvacuateRun, server: Server, now: int) -> Server:
    """The record on the new host. A field that the executor has forgotten stays as it is."""
    claim, cards = run[claim_host], run.get(read_ports)
    ports, attachments, state = run.get(bind_ports), run.get(connect_volumes), run.get(start_guest)
    return msgspec.structs.replace(
        move_claims.on_claimed(server, claim, cards, ports, attachments, state),
        vm_state=run.input.becomes,
        task_state=None,
        ended=run.operation,
        launched_at=now,
        updated_at=now,
    )


@step(
    needs=(begin_action, read_ports, claim_host, start_guest),
    no_undo=old_addresses.FORWARD_ONLY,
    patience_s=old_addresses.PATIENCE_S,
)
async def leave_addresses(run: EvacuateRun) -> None:
    """Take addresses of left segments from the ports; the record is in the cell of its new host by now."""
    await old_addresses.leave(run, run[claim_host].cell, run[read_ports], run[claim_host].subnets)


@step(region=True, needs=(read_ports, claim_host, leave_addresses), no_undo=old_addresses.FORWARD_ONLY)
async def release_addresses(run: EvacuateRun) -> None:
    """Release those addresses. What else the move holds on the old host stays until that host returns."""
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
"""For servers that may get addresses of other segments."""
