"""Boot: ports first, then one claim of compute and addresses, then the host.

`accept_boot.py` decides the input before step one. When the network service or a host refuses, the boot goes to the
next host with the same ports and MACs (S0.4, S0.15); only what is local to the refused host is undone in between.
"""

import logging
from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from moorage.bus.agent_calls import HostAddress
from moorage.model.action import ActionEvent
from moorage.model.errors import NoCapacity, Problem, Stale
from moorage.model.guest import PowerState as GuestState
from moorage.model.ids import CellId
from moorage.model.network import BindOptions, BindRefused, NetworkFacts, Port
from moorage.model.server import Server, TaskState, VmState
from moorage.model.verdict import InventoryState
from moorage.operations.boot.boot_claim import HostClaim
from moorage.operations.boot.boot_input import Boot, BootRun, Claim, Made, NoRoom, ask_of, networks_of
from moorage.operations.boot.boot_record import create_action, request_of, without_boot_only, write_error
from moorage.operations.boot.boot_waits import claim_or_sleep
from moorage.operations.boot.legacy_ports import LegacyStart, ports_of
from moorage.operations.steps import left_guests
from moorage.operations.steps import servers as records
from moorage.operations.steps.boot_volumes import connecting, hold_volumes, with_attachments, with_disks
from moorage.operations.steps.config_drives import with_drive
from moorage.operations.steps.guests import guest_of
from moorage.operations.steps.hosts import command_context, names_of
from moorage.operations.steps.ports import (
    nics_of,
    other_subnets,
)
from moorage.operations.steps.record_cells import (
    cells_with_record,
    in_this_cell,
    or_elsewhere,
)
from moorage.operations.steps.segments import note_exhausted
from moorage.operations.steps.server_action import now_us
from moorage.operations.steps.vif_plugging import VIF_PLUGGING_MAX_S
from moorage.saga import Saga, on_some_host, step
from moorage.sql import Tx, label
from moorage.store.cell import actions
from moorage.store.cell import servers as cell_servers
from moorage.store.region import operations as region_operations
from moorage.store.region import servers as region_servers
from moorage.store.region import waiting

NETWORK_PATIENCE_S = 300.0
HOST_PATIENCE_S = 300.0
logger = logging.getLogger(__name__)


@step(patience_s=NETWORK_PATIENCE_S)
async def make_ports(run: BootRun) -> Made:
    """Read the user's ports and make the missing ones; none is bound. The minted MACs make a repeat safe (RULES §7).

    Raises NoCapacity when the request was accepted without room for its servers.
    """
    boot = run.input
    if boot.no_room is not None:
        raise NoCapacity(boot.no_room.fault, private=msgspec.json.encode(boot.no_room.ledger).decode())
    if not boot.nics:
        return Made()
    return await ports_of(run).make()


@make_ports.undo
async def delete_made_ports(run: BootRun) -> None:
    """Delete our ports and release the user's. Both are found by device and MAC, so this is safe when none was made.

    Those of a guest that may run on a silent host stay its own (RULES §25).
    """
    if run.input.nics and not await left_guests.may_run(run.context, run.input.server.id):
        await ports_of(run).release(run.get(claim_host))


@step(region=True, moves=True, needs=(make_ports,))
async def claim_host(run: BootRun) -> Claim:
    """Hold compute and addresses on the best willing host, in one claim; a loser takes the next (N1)."""
    claim, wait = HostClaim(run, run[make_ports]), run.input.wait
    return await (claim.take_best() if wait is None else claim_or_sleep(run, claim, wait, _leave_last_host))


@claim_host.undo
async def release_host(run: BootRun) -> None:
    """Release the claims. They are keyed by server, so a repeat is safe, also when nothing was claimed."""

    def work(tx: Tx) -> Sequence[InventoryState]:
        region_servers.unplace(tx, run.input.server.id, run.operation)
        return run.context.placement.release(tx, run.input.server.id)

    run.context.placement.settle(await run.commit(work))


@step(moves=True, needs=(make_ports, claim_host), patience_s=NETWORK_PATIENCE_S)
async def bind_ports(run: BootRun) -> tuple[Port, ...]:
    """Set the host on each port; deferred addresses are assigned here, and refusals found here (S0.13, S0.14)."""
    claim, ports = run[claim_host], run[make_ports].ports
    options = BindOptions(
        subnets=claim.subnets,
        other_subnets=other_subnets(ports, _networks(run), claim.subnets),
        profiles=claim.profiles,
        tried=names_of(run.context.placement.world(), run.tried),
    )
    try:
        return await ports_of(run).bind(claim, ports, options)
    except BindRefused as refused:
        await note_exhausted(run.context, refused, _networks(run), claim.subnets)
        raise


@bind_ports.undo
async def unbind_ports(run: BootRun) -> None:
    """Runs only in the final unwinding: the next attempt's bind replaces the host (RULES §8). Ports of a guest that may
    run stay bound where it is.
    """
    made = run.get(make_ports)
    if made is not None and made.ports and not await left_guests.may_run(run.context, run.input.server.id):
        await ports_of(run).unbind(made.ports)


@step(moves=True, needs=(claim_host, bind_ports))
async def record_server(run: BootRun) -> int:
    """Write the server's row in its cell, with its boot action; return its generation.

    An earlier attempt's row in another cell is removed first: a server is never shown in two cells.
    """
    claim, boot = run[claim_host], run.input
    by = records.fence(run)
    for earlier in cells_with_record(run, None):
        if earlier != claim.cell:
            await in_this_cell(earlier, partial(_remove_record, run, earlier, by))
    now = now_us()
    server = recorded(run, claim, run[bind_ports], run.attempt, now)
    action = create_action(boot, now, (ActionEvent("compute__do_build_and_run_instance", now, host=claim.name),))

    def write(tx: Tx) -> int:
        written = cell_servers.record(tx, server, by)
        actions.write(tx, action)
        return written.generation

    with label("record_server"):
        return await or_elsewhere(run, claim.cell, lambda: run.context.cells[claim.cell].write(write))


@record_server.undo
async def remove_record(run: BootRun) -> None:
    """Make the region's order the record again; it shows ERROR and the fault since the saga began to unwind
    (docs/decisions/0010).
    """
    claim = run.get(claim_host)
    by = records.fence(run)
    for cell in cells_with_record(run, None if claim is None else claim.cell):
        await _remove_record(run, cell, by)


async def _leave_last_host(run: BootRun) -> None:
    """Before it sleeps: its ports stay its own, with the addresses that they had before, and no cell has its record; safe twice."""
    ports = run[make_ports].ports
    if ports:
        keeps = {port.id: port.fixed_ips for port in ports}
        await run.context.network.take_off_host(run.input.server.id, keeps.keys(), keeps=keeps)
    by = records.fence(run)
    for cell in cells_with_record(run, None):
        await in_this_cell(cell, partial(_remove_record, run, cell, by))


async def _remove_record(run: BootRun, cell: CellId, by: cell_servers.Fence) -> None:
    await run.context.cells[cell].write(lambda tx: _remove(tx, run, by))


def _remove(tx: Tx, run: BootRun, by: cell_servers.Fence) -> None:
    cell_servers.remove(tx, run.input.server.id, by)
    actions.forget(tx, (run.input.server.id,))


@step(host_local=True, needs=(claim_host, bind_ports, record_server), patience_s=HOST_PATIENCE_S)
async def start_guest(run: BootRun) -> GuestState | LegacyStart:
    """Let the host make the guest from complete data: the host calls no network service (S0.20)."""
    claim, ports = run[claim_host], run[bind_ports]
    guest = guest_of(run.input.server, _networks(run), ports, claim.availability_zone, run.input.files)
    guest = await with_disks(run.context, run.input.server, guest, _attachments(run))
    guest = await with_drive(
        run.context, run.input.server, guest, _networks(run), ports, sealed_password=run.input.sealed_password
    )
    try:
        state = await ports_of(run).start(command_context(run, "start_guest"), claim, ports, guest)
    except Problem:
        run.context.placement.count_failure(claim.host, failed=True)
        raise
    run.context.placement.count_failure(claim.host, failed=False)
    return state


@start_guest.undo
async def destroy_guest(run: BootRun) -> None:
    claim = run.get(claim_host)
    if claim is not None:
        to, owes = HostAddress(claim.cell, claim.name), run.input.gates.credentials  # else old hosts release the ports
        await left_guests.undone_or_owed(run, "destroy_guest", to, start_guest.name, owes=owes)


@step(
    needs=(claim_host, bind_ports, start_guest),
    no_undo="it only waits",
    patience_s=VIF_PLUGGING_MAX_S + NETWORK_PATIENCE_S,
)
async def await_vifs(run: BootRun) -> None:
    """Wait until the network service reports the bound ports as plugged, where an operator configured that (RULES §20).

    The inbox and the ports are both read, so an event may come early or be lost. Events about an earlier host do not
    count: the next claim removes them. Raises HostFailed when the time is over and the configuration makes that fatal.
    """
    started = run.get(start_guest)
    await ports_of(run).await_plugged(run[claim_host], run[bind_ports], started)


@step(no_undo="a server that was shown ACTIVE stays so", point_of_no_return=True, needs=(record_server, start_guest))
async def announce(run: BootRun) -> None:
    """Change BUILD to ACTIVE by compare-and-swap, and finish the action. From then on the start counts (RULES §23)."""
    await _show_active(run)
    run.context.hosts.start_counts(run[claim_host].name, run.input.server.id, run.input.seq)


async def _show_active(run: BootRun) -> None:
    claim, boot = run[claim_host], run.input
    now = now_us()
    by = records.fence(run)
    generation, ports, started = run.get(record_server), run.get(bind_ports), run.get(start_guest)
    networks = _networks(run)
    event = ActionEvent("compute__do_build_and_run_instance", boot.server.created_at, now, "Success", claim.name)

    def shown(server: Server) -> Server:
        return shown_active(run, server, started, now, networks)

    def also(tx: Tx) -> None:
        actions.finish(tx, boot.server.id, request_of(boot), (event,), now, None)

    if generation is not None and ports is not None:
        written = recorded(run, claim, ports, generation, now)

        def at_once(tx: Tx) -> None:
            """Write without reading: `record_server` wrote the row, and it has not changed since."""
            cell_servers.write(tx, shown(written), by)
            also(tx)

        try:
            with label("announce"):
                await run.context.cells[claim.cell].write(at_once)
                return
        except Stale:
            logger.info("%s: server %s was changed while it was built", run.operation, boot.server.id)
    await records.change(run.context, claim.cell, boot.server.id, by, shown, also)


@announce.passed
async def was_announced(run: BootRun) -> bool:
    """Whether this operation has shown the server ACTIVE already. An adopter asks this; the earlier executor can write
    no more by then.

    Only `announce` writes `launched_at`; a state that an administrator set since then does not matter.
    """
    claim = run.get(claim_host)
    if claim is None:
        return False
    by = records.fence(run)
    row = await run.context.cells[claim.cell].write(lambda tx: cell_servers.take_over(tx, run.input.server.id, by))
    shown = row is not None and row.operation == run.operation and row.launched_at is not None
    if shown and row is not None and run.context.notification_writer is not None:
        run.context.notification_writer.seen(run.operation, row)
    return shown


def shown_active(
    run: BootRun,
    server: Server,
    started: GuestState | LegacyStart | None,
    now: int,
    networks: Mapping[str, NetworkFacts],
) -> Server:
    """The record once its guest runs."""
    power, nics = ports_of(run).result(started, networks)
    return msgspec.structs.replace(
        server,
        vm_state=VmState.ACTIVE,
        task_state=None,
        power_state=server.power_state if power is None else int(power),
        nics=server.nics if nics is None else nics,
        launched_at=server.launched_at or now,
        updated_at=now,
    )


def recorded(run: BootRun, claim: Claim, ports: tuple[Port, ...], generation: int, now: int) -> Server:
    """The record in the cell while the guest is made."""
    return msgspec.structs.replace(
        with_attachments(claim.order or run.input.server, _attachments(run)),
        operation=run.operation,
        cell=claim.cell,
        host=claim.name,
        node=claim.node,
        provider=claim.host,
        availability_zone=claim.availability_zone,
        nics=nics_of(ports, _networks(run)),
        task_state=TaskState.SPAWNING,
        updated_at=now,
        generation=generation,
    )


def _turned(tx: Tx, run: BootRun, problem: Problem, reason: str) -> None:
    """The server shows ERROR with its fault in the commit that turns the saga; a cancelled one goes on to its delete."""
    if run.input.wait is not None:
        waiting.forget(tx, run.operation)
    if reason == "cancel":
        return
    write_error(tx, run.input, problem)


def _ended(tx: Tx, run: BootRun, status: str) -> None:
    records.release(tx, run, drop_order=status == "done", recorded=status == "done")
    if run.input.wait is not None:
        waiting.forget(tx, run.operation)
    input = without_boot_only(run.input)
    if input is not None:
        region_operations.forget_part(tx, run.operation, msgspec.json.encode(input))


BOOT = Saga(
    "boot/1",
    Boot,
    make_ports,
    on_some_host(  # tried again elsewhere, ports kept (RULES §8)
        claim_host,
        bind_ports,
        record_server,
        start_guest,
        await_vifs,
        host=lambda claim: claim.host,
    ),
    announce,
    turned=_turned,
    ended=_ended,
)

connect_volumes = connecting(claim_host)
BOOT_WITH_VOLUMES = Saga(
    "boot/2",
    Boot,
    hold_volumes,
    make_ports,
    on_some_host(
        claim_host,
        bind_ports,
        connect_volumes,
        record_server,
        start_guest,
        await_vifs,
        host=lambda claim: claim.host,
    ),
    announce,
    turned=_turned,
    ended=_ended,
)

BOOT_THAT_WAITS = Saga("boot/3", Boot, *BOOT.parts, turned=_turned, ended=_ended)
"""The same steps, where no host is found asleep: a conductor of an earlier release, which would end it, does not know the name."""
BOOT_WITH_VOLUMES_THAT_WAITS = Saga("boot/4", Boot, *BOOT_WITH_VOLUMES.parts, turned=_turned, ended=_ended)


def _attachments(run: BootRun) -> dict[str, str] | None:
    return run.get(connect_volumes) if run.input.server.volumes else None


def _networks(run: BootRun) -> Mapping[str, NetworkFacts]:
    return networks_of(run.input, run.get(make_ports))


__all__ = ["BOOT", "BOOT_WITH_VOLUMES", "Boot", "Claim", "Made", "NoRoom", "ask_of"]
