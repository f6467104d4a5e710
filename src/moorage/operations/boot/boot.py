"""Boot: ports first, then one claim of compute and addresses, then the host.

What is asked is decided in `boot_request.py` before step one.  A refusal by the network or by a host moves on to the next
host with the same ports and MACs (S0.4, S0.15); only what is local to the refused host is taken back in between.
"""

import logging
from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from moorage.model.action import Action, ActionEvent
from moorage.model.errors import NoCapacity, Problem, Stale, Unavailable
from moorage.model.guest import PowerState as GuestState
from moorage.model.ids import CellId, HostId, ProviderId
from moorage.model.network import BindOptions, BindRefused, NetworkFacts, Port
from moorage.model.server import Server, TaskState, VmState
from moorage.model.verdict import Claimed, DecisionRecord, Row, Shortage
from moorage.model.world import Ask, Choice
from moorage.operations.boot import legacy_ports
from moorage.operations.boot.boot_input import Boot, Claim, Made, NoRoom, ask_of
from moorage.operations.context import SagaContext
from moorage.operations.steps import groups
from moorage.operations.steps import servers as records
from moorage.operations.steps.boot_volumes import connecting, hold_volumes, with_attachments, with_disks
from moorage.operations.steps.claims import first, granted
from moorage.operations.steps.config_drives import with_drive
from moorage.operations.steps.failures import fault_of
from moorage.operations.steps.guests import guest_of
from moorage.operations.steps.hosts import command_context, destroy_or_leave, names_of
from moorage.operations.steps.ports import (
    VIF_PLUGGED,
    made_macs,
    nics_of,
    other_subnets,
)
from moorage.operations.steps.record_cells import (
    WAITING,
    cells_out,
    cells_with_record,
    in_this_cell,
    or_elsewhere,
)
from moorage.operations.steps.segments import note_exhausted, without_exhausted
from moorage.operations.steps.server_action import now_us
from moorage.operations.steps.vif_plugging import VIF_PLUGGING_MAX_S, await_plugged
from moorage.saga import Run, Saga, on_some_host, step
from moorage.sql import Tx, label
from moorage.store.cell import actions
from moorage.store.cell import servers as cell_servers
from moorage.store.region import inbox
from moorage.store.region import operations as region_operations
from moorage.store.region import servers as region_servers

LOST_KEPT_MAX = 20
CLAIM_ROUNDS_MAX = 50
"""Ranked anew this often at most; each round but the first follows a lost claim."""
NETWORK_PATIENCE_S = 300.0
HOST_PATIENCE_S = 300.0
logger = logging.getLogger(__name__)


BootRun = Run[Boot, SagaContext]


@step(patience_s=NETWORK_PATIENCE_S)
async def make_ports(run: BootRun) -> Made:
    """Get the user's ports and make the missing ones, none bound. The MACs minted before make a repeat safe (RULES §7)."""
    boot, network = run.input, run.context.network
    if boot.no_room is not None:
        raise NoCapacity(boot.no_room.fault, private=msgspec.json.encode(boot.no_room.ledger).decode())
    if not boot.nics:
        return Made()
    if not boot.gates.early_ports:
        return Made(legacy_ports.ports_to_be(boot.nics))
    ports = await network.ensure_ports(
        boot.server.id, boot.server.project, boot.nics, unsure=run.unsure, security_groups=boot.security_groups
    )
    unknown = {port.network for port in ports} - boot.networks.keys()
    return Made(ports, {each: await network.network(each) for each in unknown})


@make_ports.undo
async def delete_made_ports(run: BootRun) -> None:
    """Ours are deleted, the user's let go; found by device and MAC, so it is safe though nothing was made."""
    input = run.input
    if input.nics and not input.gates.credentials:
        await legacy_ports.release_by_host(run, run.get(claim_host))
    elif input.nics:
        users = () if input.gates.early_ports else legacy_ports.users_ports(input.nics)
        await run.context.network.release_ports(input.server.id, made_macs(input.nics), users=users)


@step(region=True, moves=True, needs=(make_ports,))
async def claim_host(run: BootRun) -> Claim:
    """Hold compute and addresses on the best willing host, in one claim; a loser takes the next (N1)."""
    engine = run.context.placement
    ports, exhausted = run[make_ports].ports, frozenset(each for cause in run.causes for each in cause.without)
    not_on = tuple(HostId(host) for host in run.blamed)
    ask = ask_of(run.input, _networks(run), ports, not_on=not_on)
    ask = without_exhausted(ask, ports, exhausted)
    ask = msgspec.structs.replace(ask, cells_out=cells_out(run))
    verdict, fresh = engine.rank(ask), False
    lost: list[str] = []
    for _ in range(CLAIM_ROUNDS_MAX):
        for choice in verdict.best:
            claim = _claim_of(run, choice, ask, verdict.ledger, tuple(lost))
            with engine.holding(choice, ask):
                answer = await _take(run, choice, ask, claim)
            if isinstance(answer, Claim):
                return answer
            lost.append(answer.why())
            if answer.stale:  # so may be the others of this verdict
                break
        if fresh and not verdict.best:
            if ask.cells_out and engine.rank(msgspec.structs.replace(ask, cells_out=())).best:
                if still_out := run.context.cells.out():
                    raise Unavailable(WAITING).naming(f"waiting for the database of cell {', '.join(still_out)}")
                ask = msgspec.structs.replace(ask, cells_out=())  # they were out when an earlier attempt ended
                verdict, fresh = engine.rank(ask), False
                continue
            raise NoCapacity(verdict.fault(), private=msgspec.json.encode(verdict.ledger).decode())
        verdict, fresh = await engine.rank_fresh(ask), True
    raise NoCapacity(
        "No valid host was found. Every claim was taken by another request first.",
        private=msgspec.json.encode(verdict.ledger).decode(),
    )


def _claim_of(run: BootRun, choice: Choice, ask: Ask, ledger: DecisionRecord, lost: tuple[str, ...]) -> Claim:
    """What a claim on this host would be, as the picture knows the host now."""
    world = run.context.placement.world()
    slot = world.slots[choice.host]
    return Claim(
        host=choice.host,
        name=choice.name,
        node=world.nodes[slot],
        cell=choice.cell,
        availability_zone=world.zone_names[int(world.zone[slot])],
        level=int(world.level[slot]),
        subnets=_subnets(run, choice.segments),
        ledger=ledger,
        lost=lost[-LOST_KEPT_MAX:],
        profiles=groups.profiles(run[make_ports].ports, choice) if ask.groups else {},
        given=groups.given(ask.groups, choice, world),
    )


async def _take(run: BootRun, choice: Choice, ask: Ask, claim: Claim) -> Claim | Shortage:
    """One transaction: the claim, and in which cell the server is to be; a shortage writes nothing."""
    boot, engine = run.input, run.context.placement

    def work(tx: Tx) -> tuple[Claim, Claimed]:
        answer = engine.claim(
            tx,
            boot.server.id,
            choice,
            ask,
            project=boot.server.project,
            user=boot.server.user,
            operation=run.operation,
            attempt=run.attempt,
            replace=run.attempt > 1 or run.unsure,
        )
        if isinstance(answer, Shortage):
            tx.refuse(answer)
        if run.attempt > 1:
            inbox.drop(tx, boot.server.id, VIF_PLUGGED)
        order = region_servers.place(tx, boot.server.id, run.operation, choice.cell)
        profiles = groups.with_functions(claim.profiles, run[make_ports].ports, answer.functions)
        changed = order if _was_changed(boot, order) else None
        return msgspec.structs.replace(claim, profiles=profiles, order=changed), answer

    with label("claim_host"):
        answer = await run.commit(work, result=first)
    return granted(engine, answer)


def _was_changed(boot: Boot, order: Server | None) -> bool:
    """Whether the owner changed what is shown of the server since it was asked; fences and the place do not count."""
    kept = {
        name: getattr(boot.server, name) for name in ("generation", "operation", "op_epoch", "op_line", "updated_at")
    }
    return order is not None and msgspec.structs.replace(order, **kept) != boot.server


@claim_host.undo
async def release_host(run: BootRun) -> None:
    """Claims are keyed by server, so this is safe twice and safe when nothing was claimed."""

    def work(tx: Tx) -> Sequence[Row]:
        region_servers.unplace(tx, run.input.server.id, run.operation)
        return run.context.placement.release(tx, run.input.server.id)

    run.context.placement.settle(await run.commit(work))


@step(moves=True, needs=(make_ports, claim_host), patience_s=NETWORK_PATIENCE_S)
async def bind_ports(run: BootRun) -> tuple[Port, ...]:
    """Set the host on each port; deferred addresses are given here, and refusals found here (S0.13, S0.14)."""
    claim, ports = run[claim_host], run[make_ports].ports
    if legacy_ports.host_plumbs(run.input, claim):
        return ports
    try:
        return await run.context.network.bind_ports(
            run.input.server.id,
            claim.name,
            claim.availability_zone,
            await legacy_ports.made_late(run, ports),
            BindOptions(
                subnets=claim.subnets,
                other_subnets=other_subnets(ports, _networks(run), claim.subnets),
                profiles=claim.profiles,
                tried=names_of(run.context.placement.world(), run.tried),
            ),
        )
    except BindRefused as refused:
        await note_exhausted(run.context, refused, _networks(run), claim.subnets)
        raise


@bind_ports.undo
async def unbind_ports(run: BootRun) -> None:
    """Only in the final unwinding; the next attempt's bind replaces the host (RULES §8)."""
    made = run.get(make_ports)
    if made is not None and made.ports and run.input.gates.early_ports:
        await run.context.network.unbind_ports(run.input.server.id, made.ports)


@step(moves=True, needs=(claim_host, bind_ports))
async def record_server(run: BootRun) -> int:
    """The server's row in its cell, with the action that began it; its generation.

    An earlier attempt's row in another cell goes first: a server is never in two cells.
    """
    claim, boot = run[claim_host], run.input
    by = records.fence(run)
    for earlier in cells_with_record(run, None):
        if earlier != claim.cell:
            await in_this_cell(earlier, partial(_remove_record, run, earlier, by))
    now = now_us()
    server = recorded(run, claim, run[bind_ports], run.attempt, now)
    action = _action(boot, now, (ActionEvent("compute__do_build_and_run_instance", now, host=claim.name),))

    def write(tx: Tx) -> int:
        written = cell_servers.record(tx, server, by)
        actions.write(tx, action)
        return written.generation

    with label("record_server"):
        return await or_elsewhere(run, claim.cell, lambda: run.context.cells[claim.cell].write(write))


@record_server.undo
async def remove_record(run: BootRun) -> None:
    """The region's order is the record again, in ERROR with its fault since the turn (docs/decisions/0010)."""
    claim = run.get(claim_host)
    by = records.fence(run)
    for cell in cells_with_record(run, None if claim is None else claim.cell):
        await _remove_record(run, cell, by)


async def _remove_record(run: BootRun, cell: CellId, by: cell_servers.Fence) -> None:
    await run.context.cells[cell].write(lambda tx: _remove(tx, run, by))


def _remove(tx: Tx, run: BootRun, by: cell_servers.Fence) -> None:
    cell_servers.remove(tx, run.input.server.id, by)
    actions.forget(tx, (run.input.server.id,))


@step(host_local=True, needs=(claim_host, bind_ports, record_server), patience_s=HOST_PATIENCE_S)
async def start_guest(run: BootRun) -> GuestState | legacy_ports.Built:
    """The host makes the guest, from finished data: it asks no network service for anything (S0.20).

    Only a host of level 1 or 2 sees to the ports first, while a gate is shut, and tells what became of them (S0.12).
    """
    claim, ports = run[claim_host], run[bind_ports]
    guest = guest_of(run.input.server, _networks(run), ports, claim.availability_zone, run.input.files)
    guest = await with_disks(run.context, run.input.server, guest, _attachments(run))
    guest = await with_drive(
        run.context, run.input.server, guest, _networks(run), ports, sealed_password=run.input.sealed_password
    )
    try:
        state = await legacy_ports.start(run, command_context(run, "start_guest"), claim, ports, guest)
    except Problem:
        run.context.placement.count_failure(claim.host, failed=True)
        raise
    run.context.placement.count_failure(claim.host, failed=False)
    return state


@start_guest.undo
async def destroy_guest(run: BootRun) -> None:
    claim = run.get(claim_host)
    if claim is not None:
        await destroy_or_leave(run, "destroy_guest", claim.cell, claim.name, run.input.server.id)


@step(
    needs=(claim_host, bind_ports, start_guest),
    no_undo="it only waits",
    patience_s=VIF_PLUGGING_MAX_S + NETWORK_PATIENCE_S,
)
async def await_vifs(run: BootRun) -> None:
    """Wait until the network says that what was bound is plugged, where an operator asked for that (RULES §20).

    The inbox and the port are both read, so an event that came early, or never, is no matter; what is said of an earlier
    host does not count: it goes with the next claim.  Raises HostFailed when the time is over and that is to be fatal.
    """
    if run.input.gates.credentials:
        await await_plugged(run, legacy_ports.bound(run.get(start_guest), run[bind_ports]), run[claim_host].name)


@step(no_undo="a server that was shown ACTIVE stays so", point_of_no_return=True, needs=(record_server, start_guest))
async def announce(run: BootRun) -> None:
    """BUILD → ACTIVE, compare-and-swap; the action is finished with it.  From then on the start counts (RULES §23)."""
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
        return shown_active(server, started, now, networks)

    def also(tx: Tx) -> None:
        actions.finish(tx, boot.server.id, _request(boot), (event,), now, None)

    if generation is not None and ports is not None:
        written = recorded(run, claim, ports, generation, now)

        def at_once(tx: Tx) -> None:
            """What `record_server` wrote is known: no need to read it, unless somebody changed it since."""
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
    """An adopter asks: was the server shown ACTIVE already, by this operation?  Who told it before can write no more then.

    `launched_at` is written by `announce` alone; what an administrator says of the state since then does not matter.
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
    server: Server, started: GuestState | legacy_ports.Built | None, now: int, networks: Mapping[str, NetworkFacts]
) -> Server:
    """The record once its guest runs; where the host saw to the ports, they are as it said."""
    power, by_host = legacy_ports.answered(started, networks)
    return msgspec.structs.replace(
        server,
        vm_state=VmState.ACTIVE,
        task_state=None,
        power_state=server.power_state if power is None else int(power),
        nics=server.nics if by_host is None else by_host,
        launched_at=server.launched_at or now,
        updated_at=now,
    )


def recorded(run: BootRun, claim: Claim, ports: tuple[Port, ...], generation: int, now: int) -> Server:
    """The record as it is in the cell while the guest is made."""
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
    if reason == "cancel":
        return
    now = now_us()
    fault = fault_of(problem, now)
    where = region_servers.find(tx, run.input.server.id)
    order = run.input.server if where is None or where.order is None else where.order
    region_servers.write_order(
        tx,
        msgspec.structs.replace(
            order,
            vm_state=VmState.ERROR,
            task_state=None,
            fault=fault,
            updated_at=now,
            generation=order.generation + 1,
        ),
    )


def _ended(tx: Tx, run: BootRun, status: str) -> None:
    records.release(tx, run, drop_order=status == "done")
    input = without_what_only_the_boot_needs(run.input)
    if input is not None:
        region_operations.forget_part(tx, run.operation, msgspec.json.encode(input))


def without_what_only_the_boot_needs(boot: Boot) -> Boot | None:
    """The order as its journal keeps it when the boot is over; None: there is nothing to leave out.

    What moves need of it stands in the server's record.
    """
    server = boot.server
    if not (server.hints or server.user_data or boot.files or boot.sealed_password):
        return None
    server = msgspec.structs.replace(server, hints={}, user_data=None)
    return msgspec.structs.replace(boot, server=server, files=(), sealed_password="")


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


def _attachments(run: BootRun) -> dict[str, str] | None:
    return run.get(connect_volumes) if run.input.server.volumes else None


# ------------------------------------------------------------------------------------------ what is asked of whom


def _networks(run: BootRun) -> Mapping[str, NetworkFacts]:
    made = run.get(make_ports)
    return run.input.networks if made is None or not made.networks else {**run.input.networks, **made.networks}


def _subnets(run: BootRun, segments: tuple[ProviderId | None, ...]) -> dict[int, str]:
    """For each NIC with a claimed segment, that segment's IPv4 subnet, unless its address was chosen before."""
    found: dict[int, str] = {}
    networks = _networks(run)
    for port, segment in zip(run[make_ports].ports, segments, strict=False):
        network = networks.get(port.network)
        if segment is None or network is None or port.address_chosen or port.ip_allocation == "none":
            continue
        subnet = next((s.id for s in network.subnets if s.segment == segment and s.version == 4), None)
        if subnet is not None:
            found[port.index] = subnet
    return found


def _action(boot: Boot, now: int, events: tuple[ActionEvent, ...]) -> Action:
    return Action(
        server=boot.server.id,
        action="create",
        request_id=_request(boot),
        user=boot.server.user,
        project=boot.server.project,
        started_at=boot.server.created_at,
        updated_at=now,
        events=events,
    )


def _request(boot: Boot) -> str:
    return boot.request_id or f"req-{boot.server.id}"


__all__ = ["BOOT", "BOOT_WITH_VOLUMES", "Boot", "Claim", "Made", "NoRoom", "ask_of"]
