"""Delete: goes only forward. What was destroyed cannot come back, so nothing is undone; it is executed until it is
done.

It works on a half-built, unplaced or ERROR server (RULES §9): when the operation that held the server has ended, the
first step reads where the server is.
"""

import logging
from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from moorage.bus.agent_calls import HostAddress
from moorage.model.action import Action, ActionEvent
from moorage.model.errors import HostFailed, Unavailable
from moorage.model.flavor_classes import charged_of
from moorage.model.ids import CellId
from moorage.model.migration import MigrationStatus
from moorage.model.server import ApiPowerState, Server, VmState
from moorage.model.verdict import InventoryState
from moorage.operations.boot.legacy_ports import release_order
from moorage.operations.context import SagaContext
from moorage.operations.gates import OPEN, PORTS_ARRIVE_BOUND, Gates
from moorage.operations.resize import confirm_resize
from moorage.operations.steps import left_guests, moving, second_records
from moorage.operations.steps import servers as records
from moorage.operations.steps.hosts import destroy_or_leave
from moorage.operations.steps.server_action import now_us
from moorage.operations.steps.servers import LocatedServer
from moorage.operations.steps.volumes import release_all
from moorage.saga import Run, Saga, no_result, step
from moorage.sql import Tx
from moorage.store.cell import actions
from moorage.store.region import debts, hidden_records, quotas, server_groups
from moorage.store.region import servers as region_servers

logger = logging.getLogger(__name__)

FORWARD_ONLY = "what was destroyed cannot come back: a delete only goes forward"
PATIENCE_S = 24 * 3600.0
"""How long a delete waits for a service that does not answer before it is stuck."""


class Delete(msgspec.Struct, frozen=True):
    server: Server
    """The record when the delete was accepted; the saga reads it again."""
    seq: int
    request_id: str = ""
    user: str = ""
    action: Literal["delete", "forceDelete"] = "delete"
    """The action that the user asked for."""
    global_request_id: str = ""
    by_project: str = ""
    """The project of the token with which the user asked."""
    gates: Gates = OPEN
    """Who makes and binds the ports; decided when the delete was accepted (RULES §13)."""


DeleteRun = Run[Delete, SagaContext]


@step(no_undo="reads only", patience_s=PATIENCE_S)
async def find_server(run: DeleteRun) -> LocatedServer:
    """Find where the server is, now that no other operation holds it."""
    return await records.sure(run.context, run.input.server.id)


@step(no_undo=FORWARD_ONLY, needs=(find_server,), patience_s=PATIENCE_S, point_of_no_return=True)
async def destroy_guest(run: DeleteRun) -> bool:
    """Let the host destroy the guest, if there is one. A silent host does so when it returns, and owes it until then.

    If the host reports a failure, it is asked again without limit: a delete does not unwind, and operators see what it
    waits for. Raises Unavailable for such a failure.
    """
    located = run[find_server]
    if located.server is None or located.cell is None or located.server.host is None:
        return True
    release = None if run.input.gates.bind_in_conductor else release_order(located.server.nics)
    try:
        to = HostAddress(located.cell, located.server.host)
        if not run.input.gates.credentials:  # ports are released by old hosts, with their guests
            return await destroy_or_leave(run, destroy_guest.name, to.cell, to.host, located.server.id, release)
        return await left_guests.destroyed_or_owed(run, destroy_guest.name, to, release)
    except HostFailed as failed:
        raise Unavailable(f"the host could not destroy the guest: {failed.public}", private=failed.private) from failed


@step(no_undo=FORWARD_ONLY, needs=(find_server,), patience_s=PATIENCE_S)
async def release_ports(run: DeleteRun) -> None:
    """Delete our ports, release the user's (S0.8). The record tells which is which; without a record the minted MACs
    do.

    An old host did this with its guest. It is done here too, unless the conductor cannot reach the network service.
    Ports of a guest that may run on a silent host stay its own until the host has destroyed it (RULES §25).
    """
    server = run[find_server].server or run.input.server
    if await _may_run(run):
        return
    if not run.input.gates.credentials and (not server.nics or await _released_by_host(run)):
        return
    macs = tuple(nic.mac for nic in server.nics if nic.ours and nic.mac)
    await run.context.network.release_ports(server.id, macs)


async def _may_run(run: DeleteRun) -> bool:
    """Whether a silent host owes the destruction of a guest: then nothing that the guest uses is released."""
    is_sure = run.get(destroy_guest) is True and not run[find_server].debts
    return not is_sure and await left_guests.may_run(run.context, run.input.server.id)


async def _released_by_host(run: DeleteRun) -> bool:
    """Whether the ports are gone though we cannot read them: an old host said so, or no host ever had them."""
    located = run[find_server]
    if located.server is None or located.cell is None or located.server.host is None:
        return True
    slot = run.context.placement.world().slots_by_name.get(located.server.host)
    old = slot is not None and int(run.context.placement.world().level[slot]) < PORTS_ARRIVE_BOUND
    return old and run.get(destroy_guest) is True


@step(no_undo=FORWARD_ONLY, needs=(find_server, destroy_guest), patience_s=PATIENCE_S)
async def release_volumes(run: DeleteRun) -> bool:
    """Release the volumes, and delete those that are to go with the server. Returns False when the volume service does
    not answer.

    The step does not wait then: the delete goes on, and `finish_volumes` releases them when the service answers again.
    Those of a guest that may run on a silent host are released when that has destroyed it.
    """
    if await _may_run(run):
        return True
    try:
        await _release_all(run)
    except Unavailable as out:
        logger.warning("%s: volumes of %s wait: %s", run.operation, run.input.server.id, out.public)
        return False
    return True


async def _release_all(run: DeleteRun) -> None:
    located = run[find_server]
    server = located.server or run.input.server
    await release_all(run.context, server.id, server.volumes, owed=located.debts > 0)


@step(no_undo=FORWARD_ONLY, needs=(find_server,), patience_s=PATIENCE_S)
async def mark_deleted(run: DeleteRun) -> None:
    """Let the record say DELETED, in the cell or in the region, and finish the action."""
    located = run[find_server]
    if located.server is None or located.cell is None:
        return  # the commit that ends the saga marks the region's own record
    now = now_us()
    event = ActionEvent("compute_terminate_instance", now, now, "Success", located.server.host)
    action = Action(
        server=located.server.id,
        action="delete",  # also for a forced delete, as in Nova
        request_id=run.input.request_id or f"req-{run.operation}",
        user=run.input.user,
        project=located.server.project,
        started_at=now,
        updated_at=now,
        finished_at=now,
        events=(event,),
    )
    await records.change(
        run.context,
        located.cell,
        located.server.id,
        records.fence(run),
        lambda server: deleted(server, now),
        lambda tx: actions.write(tx, action),
    )


def deleted(server: Server, now: int) -> Server:
    """The record of a deleted server."""
    return msgspec.structs.replace(
        server,
        vm_state=VmState.DELETED,
        task_state=None,
        power_state=ApiPowerState.NOSTATE,
        moved=None,
        hints={},  # it never moves again
        deleted_at=server.deleted_at or now,
        terminated_at=server.terminated_at or now,
        updated_at=now,
    )


@step(no_undo=FORWARD_ONLY, needs=(find_server, release_ports, mark_deleted), region=True)
async def release_claims(run: DeleteRun) -> None:
    """Release compute, addresses, quota and the place in its group in one commit, with the region's record."""
    await _give_back(run)


async def _give_back(run: DeleteRun, *, of_move: bool = False) -> None:
    located, may_run = run[find_server], await _may_run(run)

    def work(tx: Tx) -> Sequence[InventoryState]:
        server = located.server or run.input.server
        rows = [] if may_run else [*run.context.placement.release(tx, server.id)]
        if of_move and located.server is not None and located.server.moved is not None:
            rows += run.context.placement.release(tx, located.server.moved.migration)
        server_groups.leave(tx, [server.id])
        region_servers.mark_deleted(tx, server.id, now_us())
        if located.debts:
            debts.end_all_of(tx, server.id)
        if located.server is None or located.server.deleted or located.server.vm_state is VmState.SOFT_DELETED:
            return rows  # an earlier delete released its quota
        quotas.release(tx, server.project, charged_of(server), server.user)
        if located.cell is None:
            region_servers.write_order(tx, deleted(server, now_us()))
        return rows

    run.context.placement.settle(await run.commit(work, result=no_result))


@step(no_undo=FORWARD_ONLY, needs=(find_server, release_volumes), patience_s=PATIENCE_S)
async def finish_volumes(run: DeleteRun) -> None:
    """Release the volumes that could not be released while the volume service did not answer; it waits without limit."""
    if run.get(release_volumes) is not True:
        await _release_all(run)


@step(no_undo=FORWARD_ONLY, needs=(find_server,), patience_s=PATIENCE_S)
async def delete_shelved_image(run: DeleteRun) -> None:
    """Delete the image of a shelved server's disk: it is ours and goes with the server."""
    server = run[find_server].server or run.input.server
    if server.shelved is not None and server.shelved.image is not None:
        await run.context.images.delete(server.shelved.image)


@step(no_undo=FORWARD_ONLY, needs=(find_server,), patience_s=PATIENCE_S)
async def confirm_move(run: DeleteRun) -> None:
    """Remove the guest and bindings that a resize or migration waiting for confirmation left on the old host."""
    server = run[find_server].server
    if server is None or server.moved is None or server.deleted:
        return
    await confirm_resize.clear(run, "confirm_move", server)
    if run.input.gates.credentials:
        await confirm_resize.drop_bindings_at_both_ends(run, server)


@step(no_undo=FORWARD_ONLY, needs=(find_server,), patience_s=PATIENCE_S)
async def end_move(run: DeleteRun) -> None:
    """Let the move's record say that it was confirmed."""
    located = run[find_server]
    server = located.server
    if server is None or server.moved is None or located.cell is None or server.deleted:
        return
    move = server.moved.migration
    await run.context.cells[located.cell].write(lambda tx: moving.with_status(tx, move, MigrationStatus.CONFIRMED))


@step(no_undo=FORWARD_ONLY, needs=(find_server, confirm_move, end_move), region=True)
async def release_move(run: DeleteRun) -> None:
    """Release what the move held on the old host."""
    server = run[find_server].server

    def work(tx: Tx) -> Sequence[InventoryState]:
        if server is None or server.moved is None:
            return ()
        return run.context.placement.release(tx, server.moved.migration)

    run.context.placement.settle(await run.commit(work, result=no_result))


@step(no_undo=FORWARD_ONLY, needs=(find_server, confirm_move, end_move, release_ports), region=True)
async def release_all_claims(run: DeleteRun) -> None:
    """Release compute, addresses, quota and the claim of a move before the server is seen as deleted: an owner who then
    boots at once finds quota and room free.
    """
    await _give_back(run, of_move=True)


@step(no_undo=FORWARD_ONLY, needs=(find_server, mark_deleted), patience_s=PATIENCE_S)
async def remove_record(run: DeleteRun) -> tuple[CellId, ...]:
    """Try once to remove hidden records of the server in other cells. Returns the cells where it is gone; a reconciler
    removes the others.
    """
    server = run.input.server.id
    hidden = await run.context.region.read(lambda tx: hidden_records.open_of(tx, [server]))
    cells = sorted(hidden.get(server, ()))
    return tuple([cell for cell in cells if await second_records.removed(run, cell)])


@step(no_undo=FORWARD_ONLY, needs=(remove_record,), region=True)
async def forget_hidden(run: DeleteRun) -> None:
    """Remove the marks of hidden records that are gone."""
    gone = run[remove_record]

    def work(tx: Tx) -> None:
        for cell in gone:
            hidden_records.end_row(tx, run.input.server.id, cell, now_us())

    if gone:
        await run.commit(work)


DELETE = Saga(
    "delete/1",
    Delete,
    find_server,
    destroy_guest,
    release_ports,
    mark_deleted,
    release_claims,
    ended=records.release_unrecorded,
    forward_only=True,
)
"""For servers without volumes and without an image of their disk. Every release knows it, so the release may be
downgraded meanwhile.

Quota and claims are released one commit after the server is seen as deleted; once the previous release knows
`delete/4`, that version is for all servers.
"""

DELETE_WITH_VOLUMES = Saga(
    "delete/2",
    Delete,
    find_server,
    destroy_guest,
    release_ports,
    release_volumes,
    mark_deleted,
    release_claims,
    finish_volumes,
    delete_shelved_image,
    ended=records.release_unrecorded,
    forward_only=True,
)


DELETE_WITH_MOVES = Saga(
    "delete/3",
    Delete,
    find_server,
    destroy_guest,
    confirm_move,
    end_move,
    release_move,
    release_ports,
    release_volumes,
    mark_deleted,
    release_claims,
    finish_volumes,
    delete_shelved_image,
    ended=records.release_unrecorded,
    forward_only=True,
)
"""For servers that were moved, or that their holder may move: it confirms the move first, as Nova does."""

DELETE_BEFORE_SHOWN = Saga(
    "delete/4",
    Delete,
    find_server,
    destroy_guest,
    confirm_move,
    end_move,
    release_ports,
    release_volumes,
    release_all_claims,
    mark_deleted,
    finish_volumes,
    delete_shelved_image,
    ended=records.release_unrecorded,
    forward_only=True,
)
"""For servers that have more: quota and claims are released before the server is seen as deleted.

A volume service that does not answer delays neither: volumes are tried once before, and finished after the record says
DELETED.
"""


DELETE_IN_ALL_CELLS = Saga(
    "delete/5",
    Delete,
    *DELETE_BEFORE_SHOWN.steps,
    remove_record,
    forget_hidden,
    ended=records.release_unrecorded,
    forward_only=True,
)
"""For servers that have records in other cells, or may have."""


DeleteSaga: TypeAlias = Saga[Delete, SagaContext]
VERSIONS: tuple[DeleteSaga, ...] = (
    DELETE,
    DELETE_WITH_VOLUMES,
    DELETE_WITH_MOVES,
    DELETE_BEFORE_SHOWN,
    DELETE_IN_ALL_CELLS,
)
"""In order: from the version that removes least to the one that removes everything."""
