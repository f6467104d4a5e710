"""Confirm a resize or migration: what the server left on its old host is released: guest, bindings and claim.

Once the first of these is gone it only goes forward; a host that has fallen silent destroys its guest when it returns.

When a server came from another cell, the record there is removed last (`confirm_resize/2`). The confirm does not wait
for a database that does not answer: the reconciler `hidden_records` removes the record later.
"""

from collections.abc import Callable, Sequence

import msgspec

from moorage.bus.move_payloads import OfMove
from moorage.bus.verbs import Verb
from moorage.clients.network.bindings import BINDING_IS_ACTIVE
from moorage.model.errors import BusOut, Conflict, HostFailed, Unavailable
from moorage.model.flavor_classes import charged_of
from moorage.model.ids import OperationId
from moorage.model.migration import MigrationStatus
from moorage.model.operation import Accepted
from moorage.model.server import ApiPowerState, Server, VmState
from moorage.model.task_context import global_request_id
from moorage.model.verdict import InventoryState
from moorage.operations.accept import accepted, dispatch
from moorage.operations.context import SagaContext
from moorage.operations.steps import move_ports, moving, second_records, server_action, server_lock
from moorage.operations.steps import servers as records
from moorage.operations.steps.hosts import COMMAND_ENDS, NO_GUEST, SILENT, command_context, destroy_or_leave
from moorage.operations.steps.servers import AboutServer, LocatedServer, StateCheck
from moorage.saga import Run, Saga, no_result, step
from moorage.sql import Tx
from moorage.store.region import quotas

PATIENCE_S = 24 * 3600.0
HOST_PATIENCE_S = 300.0
ACTION, EVENT = "confirmResize", "compute_confirm_resize"
LOST = "The server's new host has no guest of it: revert the move, or delete the server."
FORWARD_ONLY = "what was left on the old host is gone: a confirmed move stays"


class ConfirmResize(msgspec.Struct, frozen=True):
    server: Server
    seq: int
    request_id: str = ""
    user: str = ""
    global_request_id: str = ""
    by_project: str = ""


ConfirmRun = Run[ConfirmResize, SagaContext]


@step(patience_s=HOST_PATIENCE_S)
async def begin_confirm(run: ConfirmRun) -> LocatedServer:
    """Begin. Raises HostFailed while the new host reports that it has no such guest: what its old host keeps may be all
    that is left.
    """
    located = await moving.begun_after(run, ACTION, MigrationStatus.CONFIRMING, EVENT)
    server = located.server
    if server is None or moving.on_one_host(server) or await _was_cleared(run, server):
        return located
    if await moving.is_lost(run.context, server):
        raise HostFailed(LOST, private=str(server.host), code="guest_lost")
    return located


async def _was_cleared(run: ConfirmRun, server: Server) -> bool:
    """Whether an earlier executor has released the old guest already, so that nothing is left to keep. If this is
    unknown: no.

    A live migration leaves no guest, so a host without a guest may still have its disk.
    """
    if not run.unsure or moving.moved_of(server).live:
        return False
    try:
        return not await moving.has_guest(run.context, moving.source_of(server), server.id)
    except BusOut:
        raise
    except Unavailable:
        return False


@begin_confirm.undo
async def fail_confirm(run: ConfirmRun) -> None:
    """Nothing was released: it may still be confirmed or reverted."""
    await server_action.failed(run, EVENT)
    located = await records.sure(run.context, run.input.server.id)
    if located.server is not None and located.server.moved is not None:
        await moving.show_moved(run, located, MigrationStatus.FINISHED)


@step(needs=(begin_confirm,), no_undo=FORWARD_ONLY, patience_s=PATIENCE_S, point_of_no_return=True)
async def clear_source(run: ConfirmRun) -> None:
    await clear(run, "clear_source", _server(run))


async def clear(run: Run[AboutServer, SagaContext], step: str, server: Server) -> None:
    """Destroy the guest on the host that was left; where that is the server's own host, remove what was kept for a
    revert.

    Raises Unavailable when the host fails.
    """
    source, move = moving.source_of(server), moving.moved_of(server).migration
    try:
        if not moving.on_one_host(server):
            await destroy_or_leave(run, step, source.cell, source.name, server.id)
            return
        await run.context.hosts.change_guest(
            source.address, command_context(run, step), server.id, Verb.FORGET_LEFT, OfMove(move)
        )
    except COMMAND_ENDS as failed:
        if failed.code not in {*SILENT, NO_GUEST}:
            why = f"the host could not release the guest: {failed.public}"
            raise Unavailable(why, private=failed.private) from failed


@step(needs=(begin_confirm, clear_source), no_undo=FORWARD_ONLY, patience_s=PATIENCE_S)
async def drop_source_bindings(run: ConfirmRun) -> None:
    """Remove the bindings there, and the addresses of the old host's segments when the move gave others."""
    server = _server(run)
    await drop_bindings(run, server)
    left = {str(each.port): [old.address for old in each.old] for each in moving.moved_of(server).readdressed}
    if left:
        await records.not_overtaken(run, moving.current_end(server).cell)
        await run.context.network.leave_addresses(server.id, left)


async def drop_bindings(run: Run[AboutServer, SagaContext], server: Server) -> None:
    """Remove the inactive bindings on the host that was left."""
    moved = moving.moved_of(server)
    ports = [str(nic.port) for nic in server.nics if nic.port is not None]
    if moved.second_bindings and ports:
        await run.context.network.delete_binding(server.id, moved.host, ports)


async def drop_bindings_at_both_ends(run: Run[AboutServer, SagaContext], server: Server) -> None:
    """For a delete: the ports may be active on either host when a revert was lost with a database. The active binding
    goes with its port.
    """
    try:
        await drop_bindings(run, server)
        return
    except Conflict as conflict:
        if conflict.code != BINDING_IS_ACTIVE:
            raise
    for host in (moving.moved_of(server).host, moving.current_end(server).name):
        for port in [str(nic.port) for nic in server.nics if nic.port is not None]:
            try:
                await run.context.network.delete_binding(server.id, host, [port])
            except Conflict as conflict:
                if conflict.code != BINDING_IS_ACTIVE:
                    raise


@step(region=True, needs=(begin_confirm, drop_source_bindings), no_undo=FORWARD_ONLY)
async def release_source(run: ConfirmRun) -> None:
    """Release the claim that the move held, and the quota that the larger flavor used in addition."""
    server = _server(run)
    after = msgspec.structs.replace(server, moved=None)

    def work(tx: Tx) -> Sequence[InventoryState]:
        rows = run.context.placement.release(tx, moving.moved_of(server).migration)
        quotas.release(tx, server.project, difference(server, after), server.user)
        return rows

    run.context.placement.settle(await run.commit(work, result=no_result))


def difference(before: Server, after: Server) -> dict[str, int]:
    """What a server uses less than before."""
    now = charged_of(after)
    return {name: amount - now.get(name, 0) for name, amount in charged_of(before).items()}


@step(needs=(begin_confirm, release_source), no_undo=FORWARD_ONLY, patience_s=PATIENCE_S)
async def record_confirmed(run: ConfirmRun) -> None:
    """Show ACTIVE, or STOPPED when the guest is off, and finish the action."""
    located, now, server = run[begin_confirm], server_action.now_us(), _server(run)
    assert located.cell is not None
    events = (server_action.ended_event(EVENT, now, moving.moved_of(server).host),)

    def also(tx: Tx) -> None:
        moving.with_status(tx, moving.moved_of(server).migration, MigrationStatus.CONFIRMED)
        server_action.finish(tx, run, events, now)

    await records.change(run.context, located.cell, server.id, records.fence(run), confirmed(now), also, last=True)


def confirmed(now: int) -> Callable[[Server], Server]:
    """The record of a server that stays where it is."""

    def change(server: Server) -> Server:
        off = server.power_state in (ApiPowerState.SHUTDOWN, ApiPowerState.CRASHED)
        state = VmState.STOPPED if off else VmState.ACTIVE
        return msgspec.structs.replace(server, vm_state=state, task_state=None, moved=None, updated_at=now)

    return change


@step(needs=(begin_confirm, record_confirmed), no_undo=FORWARD_ONLY)
async def remove_record(run: ConfirmRun) -> bool:
    """Try once to remove the record of the cell that it left. Returns False when the database does not answer."""
    return await second_records.removed(run, moving.source_of(_server(run)).cell)


@step(region=True, needs=(begin_confirm, remove_record), no_undo=FORWARD_ONLY)
async def forget_hidden(run: ConfirmRun) -> None:
    """Remove the mark of the hidden record when that record is gone."""
    if run[remove_record]:
        await second_records.forget(run, moving.source_of(_server(run)).cell)


def _server(run: ConfirmRun) -> Server:
    server = run[begin_confirm].server
    assert server is not None
    return server


CONFIRM_RESIZE = Saga(
    "confirm_resize/1",
    ConfirmResize,
    begin_confirm,
    clear_source,
    drop_source_bindings,
    release_source,
    record_confirmed,
    ended=records.release_server,
)

CONFIRM_IN_OTHER_CELL = Saga(
    "confirm_resize/2",
    ConfirmResize,
    begin_confirm,
    clear_source,
    drop_source_bindings,
    release_source,
    record_confirmed,
    remove_record,
    forget_hidden,
    ended=records.release_server,
)
"""For servers that came from another cell."""


async def begin(
    context: SagaContext, server: Server, user: str, project: str, *, check: StateCheck, request_id: str = ""
) -> None:
    """Accept a confirm. Raises NotFound; Conflict, also while the old host is silent, as in Nova, or the host that lost
    the guest is.
    """
    saga = _version(server)
    owner = await context.dispatcher.choose(saga.name)

    def make(now: Server, operation: OperationId, seq: int) -> Accepted:
        check(now)
        if _version(now) is not saga:
            raise Conflict(f"Instance {now.id} was moved again meanwhile; try again.")
        move_ports.refuse_silent(context, moving.source_of(now).name)
        if moving.moved_of(
            now
        ).live:  # the new host had lost the guest: nothing is removed before it reports the guest again
            move_ports.refuse_silent(context, moving.current_end(now).name)
        input = ConfirmResize(now, seq, request_id, user, global_request_id.get(), project)
        return accepted(saga, operation, now, input, owner=owner, user=user, seq=seq, request_id=request_id)

    await dispatch(context, await server_lock.accept(context, server.id, ACTION, make))


def _version(server: Server) -> Saga[ConfirmResize, SagaContext]:
    return CONFIRM_RESIZE if moving.cell_left(server) is None else CONFIRM_IN_OTHER_CELL
