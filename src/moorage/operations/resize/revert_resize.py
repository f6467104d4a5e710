"""Revert a resize or migration: the server is on its old host again, in its old size; its new disk is lost.

check_source, read_ports         the old host and its network agent both answer
stop_destination                 the new guest is off: until here it can be undone
clear_destination                the new guest is removed (point of no return)
take_claim_back                  the server holds again what the move held, so there is always room (N16)
return_volumes, return_ports, start_source, record_reverted, drop_destination_bindings

A server that came from another cell goes back with its current record (`revert_resize/2`): `open_cell` checks before
anything is changed that the old cell accepts writes, and `seal_record`, `copy_record` and `show_there` replace
`record_reverted`. The region's row that hides the old cell's record exists since the move.
"""

from collections.abc import Sequence

import msgspec

from moorage.bus.move_payloads import OfMove
from moorage.bus.verbs import Verb
from moorage.model.debt import DebtKind
from moorage.model.errors import Conflict, HostFailed, Unavailable
from moorage.model.guest import PowerState
from moorage.model.ids import CellId, OperationId
from moorage.model.migration import MigrationStatus
from moorage.model.network import Port
from moorage.model.operation import Accepted
from moorage.model.principal import Principal
from moorage.model.server import Moved, Server, TaskState, VmState
from moorage.model.task_context import global_request_id
from moorage.model.verdict import InventoryState
from moorage.operations.accept import accepted, dispatch
from moorage.operations.context import SagaContext
from moorage.operations.resize.confirm_resize import difference
from moorage.operations.steps import (
    move_ports,
    moving,
    offload,
    record_copies,
    second_records,
    segment_change,
    server_action,
    server_lock,
)
from moorage.operations.steps import servers as records
from moorage.operations.steps.boot_volumes import with_attachments, with_disks
from moorage.operations.steps.config_drives import with_drive
from moorage.operations.steps.debts import done_or_owed
from moorage.operations.steps.guest_respawn import Cards, cards_of
from moorage.operations.steps.guests import guest_of
from moorage.operations.steps.hosts import NO_GUEST, command_context, was_never_sent
from moorage.operations.steps.ports import nics_after
from moorage.operations.steps.servers import LocatedServer, StateCheck
from moorage.saga import Run, Saga, no_result, step
from moorage.sql import Tx
from moorage.store.cell.record_transfer import RecordCopy
from moorage.store.region import quotas

PATIENCE_S = 24 * 3600.0
HOST_PATIENCE_S = 300.0
NETWORK_PATIENCE_S = 300.0
ACTION, EVENTS = "revertResize", ("compute_revert_resize", "compute_finish_revert_resize")
FORWARD_ONLY = "the new guest is gone: a revert that has begun is finished"
CUT_OFF = "The network service's agent on the server's old host is dead: its ports could not be bound there."
OFF = (PowerState.SHUTDOWN, PowerState.CRASHED)


class RevertResize(msgspec.Struct, frozen=True):
    server: Server
    seq: int
    request_id: str = ""
    user: str = ""
    global_request_id: str = ""
    by_project: str = ""


RevertRun = Run[RevertResize, SagaContext]


@step
async def begin_revert(run: RevertRun) -> LocatedServer:
    return await moving.begun_after(run, ACTION, MigrationStatus.REVERTING, EVENTS[0])


@begin_revert.undo
async def fail_revert(run: RevertRun) -> None:
    """It is still on its new host, and may be confirmed or reverted."""
    await server_action.failed(run, EVENTS[0])
    located = await records.sure(run.context, run.input.server.id)
    if located.server is not None and located.server.moved is not None:
        await moving.show_moved(run, located, MigrationStatus.FINISHED)


@step(needs=(begin_revert,), no_undo="a guest that is off stays off", patience_s=HOST_PATIENCE_S)
async def check_source(run: RevertRun) -> None:
    """Check that its old host answers and has the old guest, switched off, before the new guest is changed."""
    server = _server(run)
    source = moving.source_of(server)
    await moving.target_at(run, source)
    moved, mine = moving.moved_of(server), command_context(run, "check_source")
    if moved.live:
        await run.context.hosts.change_guest(
            source.address, mine, server.id, Verb.RETURN_GUEST, OfMove(moved.migration)
        )
    elif not moving.on_one_host(server):
        await run.context.hosts.power_off(source.address, mine, server.id)


@step(needs=(begin_revert,), no_undo="reads only", patience_s=NETWORK_PATIENCE_S)
async def read_ports(run: RevertRun) -> Cards:
    """Read the ports' bindings. Raises HostFailed while they cannot be bound on the old host."""
    server = _server(run)
    cards = await cards_of(run.context, server)
    if run.past or moving.on_one_host(server):
        return cards
    if await run.context.network.binds_nothing(moving.moved_of(server).host, cards.ports):
        raise HostFailed(CUT_OFF, private=moving.moved_of(server).host, code="network_agent_dead")
    return cards


@step(needs=(begin_revert, check_source, read_ports), patience_s=HOST_PATIENCE_S)
async def stop_destination(run: RevertRun) -> None:
    """Switch the new guest off. A silent host cannot confirm that, so the revert is refused: two guests could run.

    A host that has lost the guest runs none: the old host has all that is left.
    """
    server = _server(run)
    try:
        await run.context.hosts.power_off(
            moving.current_end(server).address, command_context(run, "stop_destination"), server.id
        )
    except HostFailed as failed:
        if failed.code != NO_GUEST or moving.on_one_host(server):
            raise


@stop_destination.undo
async def start_destination(run: RevertRun) -> None:
    """Switch the guest on again if it was on; a silent host that may have switched it off owes that."""
    server = run.input.server
    if server.power_state in OFF or was_never_sent(run, stop_destination.name):
        return
    host = moving.current_end(server).address
    call = run.context.hosts.power_on(host, command_context(run, "start_destination"), server.id)
    await done_or_owed(run, DebtKind.SWITCH_ON, host, call)


@step(needs=(begin_revert, stop_destination), no_undo=FORWARD_ONLY, patience_s=PATIENCE_S, point_of_no_return=True)
async def clear_destination(run: RevertRun) -> None:
    """Remove the new guest. It is off already, so a host that falls silent now destroys it when it returns."""
    server = _server(run)
    move, same = moving.moved_of(server).migration, moving.on_one_host(server)
    await moving.take_back_guest(run, "clear_destination", moving.current_end(server), move, same_host=same)


@step(region=True, needs=(begin_revert, clear_destination), no_undo=FORWARD_ONLY)
async def take_claim_back(run: RevertRun) -> None:
    """The server's claim is the one that the move held, and its quota that of the old flavor."""
    server = _server(run)
    after = msgspec.structs.replace(server, flavor=moving.moved_of(server).flavor, moved=None)

    def work(tx: Tx) -> Sequence[InventoryState]:
        before = segment_change.held_before(server)
        rows = run.context.placement.move_back(tx, server.id, moving.moved_of(server).migration, before=before)
        quotas.release(tx, server.project, difference(server, after), server.user)
        return rows

    run.context.placement.settle(await run.commit(work, result=no_result))


@step(needs=(begin_revert, take_claim_back), no_undo=FORWARD_ONLY, patience_s=PATIENCE_S)
async def return_volumes(run: RevertRun) -> dict[str, str]:
    """Export the volumes to the old host. Returns mapping → attachment."""
    server = _server(run)
    if moving.on_one_host(server):
        return {each.bdm: each.attachment for each in server.volumes if each.attachment is not None}
    to = moving.source_of(server).address
    return await offload.export_volumes(run, _cell(run), server, to, again=True, only_forward=True)


@step(needs=(begin_revert, read_ports, take_claim_back), no_undo=FORWARD_ONLY, patience_s=PATIENCE_S)
async def return_ports(run: RevertRun) -> tuple[Port, ...]:
    """Activate the binding on the old host. Its providers are still right (S1.6), and its addresses were kept."""
    server, cards = _server(run), run[read_ports]
    moved = moving.moved_of(server)
    finishes = server_action.ActionProgress(EVENTS[:1], ((EVENTS[1], moved.host),))
    await records.not_overtaken(run, _cell(run), also=lambda tx: finishes.write(tx, run))
    if moving.on_one_host(server) and not any(moved.profiles.values()) and not moved.readdressed:
        return cards.ports
    to, left = moving.source_of(server), moving.current_end(server).name
    kept = segment_change.addresses_to_restore(server, cards)
    return await move_ports.bound_at(
        run, cards, move_ports.BindTarget(to, moved.profiles, left, keeps=kept), second=moved.second_bindings
    )


@step(
    needs=(begin_revert, read_ports, return_volumes, return_ports),
    no_undo=FORWARD_ONLY,
    patience_s=PATIENCE_S,
)
async def start_source(run: RevertRun) -> PowerState:
    """Start the old guest, or leave it off if it was off before the move. Raises Unavailable when the host fails."""
    server, cards, ports = _server(run), run[read_ports], run[return_ports]
    moved, source = moving.moved_of(server), moving.source_of(server)
    old = msgspec.structs.replace(server, flavor=moved.flavor)
    guest = guest_of(old, cards.networks, ports, source.availability_zone)
    guest = msgspec.structs.replace(guest, power_on=moved.vm_state is VmState.ACTIVE)
    guest = await with_drive(run.context, old, guest, cards.networks, ports)
    guest = await with_disks(run.context, old, guest, run[return_volumes])
    try:
        return await run.context.hosts.start_guest(source.address, command_context(run, "start_source"), guest)
    except HostFailed as failed:
        raise Unavailable(f"the host could not start the guest: {failed.public}", private=failed.private) from failed


@step(needs=(begin_revert, read_ports, start_source), no_undo=FORWARD_ONLY, patience_s=PATIENCE_S)
async def record_reverted(run: RevertRun) -> None:
    """Show the server where and as it was, and finish the action."""
    located, now, server = run[begin_revert], server_action.now_us(), _server(run)
    assert located.cell is not None
    moved = moving.moved_of(server)
    events = tuple(server_action.ended_event(each, now, moved.host) for each in EVENTS)

    def also(tx: Tx) -> None:
        moving.with_status(tx, moved.migration, MigrationStatus.REVERTED)
        server_action.finish(tx, run, events, now)

    changed = lambda row: reverted(run, row, moved, now)  # noqa: E731
    await records.change(run.context, located.cell, server.id, records.fence(run), changed, also)
    run.context.hosts.start_counts(moved.host, server.id, run.input.seq)


def reverted(run: RevertRun, server: Server, moved: Moved, now: int) -> Server:
    """The record of a server that is where it was."""
    ports, cards, state = run.get(return_ports), run.get(read_ports), run.get(start_source)
    nics = server.nics if ports is None or cards is None else nics_after(server, ports, cards.networks)
    return msgspec.structs.replace(
        with_attachments(server, run.get(return_volumes)),
        flavor=moved.flavor,
        host=moved.host,
        node=moved.node,
        provider=moved.provider,
        availability_zone=moved.availability_zone,
        disk_config=moved.disk_config,
        nics=nics,
        moved=None,
        vm_state=moved.vm_state,
        task_state=None,
        ended=run.operation,
        power_state=server.power_state if state is None else int(state),
        launched_at=now,
        updated_at=now,
    )


@step(needs=(begin_revert, read_ports, record_reverted), no_undo=FORWARD_ONLY, patience_s=PATIENCE_S)
async def drop_destination_bindings(run: RevertRun) -> None:
    """Remove the inactive bindings on the host that was left."""
    await _drop_bindings(run)


async def _drop_bindings(run: RevertRun) -> None:
    server = _server(run)
    ports = [port.id for port in run[read_ports].ports]
    if moving.moved_of(server).second_bindings and ports and not moving.on_one_host(server):
        await run.context.network.delete_binding(server.id, moving.current_end(server).name, ports)


@step(needs=(begin_revert, check_source), no_undo=second_records.A_FENCE, patience_s=HOST_PATIENCE_S)
async def open_cell(run: RevertRun) -> None:
    """Check, before anything is changed, that the old cell accepts writes; otherwise the revert is refused."""
    await second_records.open_cell(run, _old_cell(run))


@step(needs=(begin_revert, read_ports, start_source), no_undo=FORWARD_ONLY, patience_s=PATIENCE_S)
async def seal_record(run: RevertRun) -> None:
    """Let requests that write wait for the old cell's record."""
    await second_records.seal(run, _cell(run))


@step(needs=(begin_revert, read_ports, seal_record), no_undo=FORWARD_ONLY, patience_s=PATIENCE_S)
async def copy_record(run: RevertRun) -> None:
    """Write the record, still hidden, to the old cell: reverted, with all changes since the move, and the end."""
    now, moved = server_action.now_us(), moving.moved_of(_server(run))
    events = tuple(server_action.ended_event(each, now, moved.host) for each in EVENTS)

    def rewritten(record: RecordCopy) -> RecordCopy:
        copied = record_copies.with_status(record, moved.migration, MigrationStatus.REVERTED, now)
        copied = record_copies.finished(copied, server_action.request_of(run), events, now)
        return msgspec.structs.replace(copied, server=reverted(run, record.server, moved, now))

    await second_records.copy(run, _cell(run), _old_cell(run), rewritten)


@step(region=True, needs=(begin_revert, copy_record), no_undo=FORWARD_ONLY)
async def show_there(run: RevertRun) -> None:
    """From this commit on the server is shown in the old cell."""
    await second_records.show(run, _cell(run), _old_cell(run))
    run.context.hosts.start_counts(moving.moved_of(_server(run)).host, run.input.server.id, run.input.seq)


@step(needs=(begin_revert, read_ports, show_there), no_undo=FORWARD_ONLY, patience_s=PATIENCE_S)
async def drop_bindings_there(run: RevertRun) -> None:
    """The same as `drop_destination_bindings`."""
    await _drop_bindings(run)


@step(needs=(begin_revert, show_there), no_undo=FORWARD_ONLY)
async def remove_record(run: RevertRun) -> bool:
    """Try once to remove the record of the cell to which it had gone. Returns False when the database does not answer."""
    return await second_records.removed(run, _cell(run))


@step(region=True, needs=(begin_revert, remove_record), no_undo=FORWARD_ONLY)
async def forget_hidden(run: RevertRun) -> None:
    """Remove the mark of the hidden record when that record is gone."""
    if run[remove_record]:
        await second_records.forget(run, _cell(run))


def _old_cell(run: RevertRun) -> CellId:
    return moving.source_of(_server(run)).cell


def _server(run: RevertRun) -> Server:
    server = run[begin_revert].server
    assert server is not None
    return server


def _cell(run: RevertRun) -> CellId:
    cell = run[begin_revert].cell
    assert cell is not None
    return cell


REVERT_RESIZE = Saga(
    "revert_resize/1",
    RevertResize,
    begin_revert,
    check_source,
    read_ports,
    stop_destination,
    clear_destination,
    take_claim_back,
    return_volumes,
    return_ports,
    start_source,
    record_reverted,
    drop_destination_bindings,
    ended=records.release_server,
)

REVERT_TO_OTHER_CELL = Saga(
    "revert_resize/2",
    RevertResize,
    begin_revert,
    check_source,
    open_cell,
    read_ports,
    stop_destination,
    clear_destination,
    take_claim_back,
    return_volumes,
    return_ports,
    start_source,
    seal_record,
    copy_record,
    show_there,
    drop_bindings_there,
    remove_record,
    forget_hidden,
    ended=records.release_server,
)
"""For servers that came from another cell."""


async def begin(
    context: SagaContext, principal: Principal, server: Server, *, check: StateCheck, request_id: str = ""
) -> None:
    """Accept a revert. Raises Conflict and NotFound."""
    saga = _version(server)
    owner = await context.dispatcher.choose(saga.name)

    def make(now: Server, operation: OperationId, seq: int) -> Accepted:
        check(now)
        moving.moved_of(now)
        if _version(now) is not saga:
            raise Conflict(f"Instance {now.id} was moved again meanwhile; try again.")
        input = RevertResize(now, seq, request_id, principal.user, global_request_id.get(), principal.project or "")
        return accepted(saga, operation, now, input, owner=owner, user=principal.user, seq=seq, request_id=request_id)

    new = await server_lock.accept(context, server.id, ACTION, make, task=TaskState.RESIZE_REVERTING)
    await dispatch(context, new)


def _version(server: Server) -> Saga[RevertResize, SagaContext]:
    return REVERT_RESIZE if moving.cell_left(server) is None else REVERT_TO_OTHER_CELL
