"""Delete: forward only.  What was destroyed cannot come back, so nothing here is taken back; it is told until it is done.

It works on a half-built, unplaced or ERROR server (RULES §9): its first step looks where the server is now, after whatever
held the server has ended.
"""

import logging
import time
from typing import Literal, TypeAlias

import msgspec

from moorage.clients.http import request_id as carried
from moorage.model.action import Action, Event
from moorage.model.asker import Asker
from moorage.model.errors import HostFailed, Unavailable
from moorage.model.ids import ConductorId, OperationId
from moorage.model.migration import MigrationStatus
from moorage.model.operation import Accepted, Operation
from moorage.model.server import PowerState, Server, TaskState, VmState
from moorage.model.verdict import Row
from moorage.operations import confirm_resize
from moorage.operations.accept import accepted, keep, tell_later
from moorage.operations.gates import OPEN, PORTS_ARRIVE_BOUND, Gates
from moorage.operations.late_ports import release_order
from moorage.operations.rooms import Rooms
from moorage.operations.steps import moving
from moorage.operations.steps import servers as records
from moorage.operations.steps.hosts import destroy_or_leave
from moorage.operations.steps.servers import Found
from moorage.operations.steps.volumes import release_all
from moorage.saga import Run, Saga, step
from moorage.sql import Tx
from moorage.store.cell import actions
from moorage.store.cell import servers as cell_servers
from moorage.store.region import operations as region_operations
from moorage.store.region import quotas, server_groups
from moorage.store.region import servers as region_servers

logger = logging.getLogger(__name__)

FORWARD_ONLY = "what was destroyed cannot come back: a delete only goes forward"
PATIENCE_S = 24 * 3600.0
"""A delete waits this long for a neighbour that is out before it is stuck."""


class Delete(msgspec.Struct, frozen=True):
    server: Server
    """As it was when the delete was asked; the story looks again."""
    seq: int
    request_id: str = ""
    user: str = ""
    action: Literal["delete", "forceDelete"] = "delete"
    global_request_id: str = ""
    by_project: str = ""
    """The project whoever asked acted for."""
    gates: Gates = OPEN
    """Who sees to the ports, decided when it was asked (RULES §13)."""


DeleteRun = Run[Delete, Rooms]


@step(no_undo="reads only", patience_s=PATIENCE_S)
async def find_server(run: DeleteRun) -> Found:
    """Where the server is now that nobody else holds it."""
    return await records.find(run.rooms, run.asked.server.id)


@step(no_undo=FORWARD_ONLY, needs=(find_server,), patience_s=PATIENCE_S, point_of_no_return=True)
async def destroy_guest(run: DeleteRun) -> bool:
    """The host destroys the guest, if there is one; a silent host does so when it is back.

    A host that says it failed is asked again, for as long as it takes: a delete does not turn, and people see what it waits for.
    """
    found = run[find_server]
    if found.server is None or found.cell is None or found.server.host is None:
        return True
    release = None if run.asked.gates.bind_in_conductor else release_order(found.server.nics)
    try:
        return await destroy_or_leave(run, "destroy_guest", found.cell, found.server.host, found.server.id, release)
    except HostFailed as failed:
        raise Unavailable(f"the host could not destroy the guest: {failed.public}", private=failed.private) from failed


@step(no_undo=FORWARD_ONLY, needs=(find_server,), patience_s=PATIENCE_S)
async def release_ports(run: DeleteRun) -> None:
    """Ours are deleted, the user's let go (S0.8); the record says which, and minted MACs say it where there is no record.

    An old host did so with its guest.  It is looked after here too, unless the conductor has no way to the network service.
    """
    server = run[find_server].server or run.asked.server
    if not run.asked.gates.credentials and (not server.nics or await _released_by_host(run)):
        return
    macs = tuple(nic.mac for nic in server.nics if nic.ours and nic.mac)
    await run.rooms.network.release_ports(server.id, macs)


async def _released_by_host(run: DeleteRun) -> bool:
    """Whether the ports are gone though we cannot see them: an old host answered, or no host ever had them."""
    found = run[find_server]
    if found.server is None or found.cell is None or found.server.host is None:
        return True
    slot = run.rooms.placement.world().slots_by_name.get(found.server.host)
    old = slot is not None and int(run.rooms.placement.world().level[slot]) < PORTS_ARRIVE_BOUND
    return old and run.get(destroy_guest) is True


@step(no_undo=FORWARD_ONLY, needs=(find_server, destroy_guest), patience_s=PATIENCE_S)
async def release_volumes(run: DeleteRun) -> bool:
    """Volumes are let go, and those that go with the server deleted; False: the volume service is out.

    Nobody waits for it here: the server goes all the same, and `finish_volumes` does it when the service is back.
    """
    try:
        await release_all(run.rooms, run[find_server].server or run.asked.server)
    except Unavailable as out:
        logger.warning("%s: volumes of %s wait: %s", run.operation, run.asked.server.id, out.public)
        return False
    return True


@step(no_undo=FORWARD_ONLY, needs=(find_server,), patience_s=PATIENCE_S)
async def mark_deleted(run: DeleteRun) -> None:
    """The record says DELETED, in the cell or in the region, and the action is finished."""
    found = run[find_server]
    if found.server is None or found.cell is None:
        return  # the region's own record is marked by the commit that ends the story
    now = _now()
    event = Event("compute_terminate_instance", now, now, "Success", found.server.host)
    action = Action(
        server=found.server.id,
        action=run.asked.action,
        request_id=run.asked.request_id or f"req-{run.operation}",
        user=run.asked.user,
        project=found.server.project,
        started_at=now,
        updated_at=now,
        finished_at=now,
        events=(event,),
    )
    await records.change(
        run.rooms,
        found.cell,
        found.server.id,
        records.fence(run),
        lambda server: deleted(server, now),
        lambda tx: actions.write(tx, action),
    )


def deleted(server: Server, now: int) -> Server:
    """The record of a server that is no more."""
    return msgspec.structs.replace(
        server,
        vm_state=VmState.DELETED,
        task_state=None,
        power_state=PowerState.NOSTATE,
        moved=None,
        deleted_at=server.deleted_at or now,
        terminated_at=server.terminated_at or now,
        updated_at=now,
    )


@step(no_undo=FORWARD_ONLY, needs=(find_server, release_ports, mark_deleted), region=True)
async def release_claims(run: DeleteRun) -> None:
    """Compute, addresses, quota and the group's place go in one commit, with the region's record."""
    found = run[find_server]
    given_back: list[Row] = []

    def work(tx: Tx) -> None:
        server = found.server or run.asked.server
        given_back[:] = run.rooms.placement.release(tx, server.id)
        server_groups.leave(tx, [server.id])
        region_servers.mark_deleted(tx, server.id, _now())
        if found.server is None or found.server.deleted or found.server.vm_state is VmState.SOFT_DELETED:
            return  # an earlier delete gave back its quota
        quotas.release(tx, server.project, server.charged, server.user)
        if found.cell is None:
            region_servers.write_order(tx, deleted(server, _now()))

    await run.commit(work)
    run.rooms.placement.settle(given_back)


@step(no_undo=FORWARD_ONLY, needs=(find_server, release_volumes, release_claims), patience_s=PATIENCE_S)
async def finish_volumes(run: DeleteRun) -> None:
    """What a volume service that was out could not let go is let go when it is back, however long that takes."""
    if run.get(release_volumes) is not True:
        await release_all(run.rooms, run[find_server].server or run.asked.server)


@step(no_undo=FORWARD_ONLY, needs=(find_server, release_claims), patience_s=PATIENCE_S)
async def delete_shelved_image(run: DeleteRun) -> None:
    """A shelved server's disk is an image of ours: it goes with the server."""
    server = run[find_server].server or run.asked.server
    if server.shelved is not None and server.shelved.image is not None:
        await run.rooms.images.delete(server.shelved.image)


@step(no_undo=FORWARD_ONLY, needs=(find_server,), patience_s=PATIENCE_S)
async def confirm_move(run: DeleteRun) -> None:
    """What a server that waits to be confirmed or reverted left on its old host goes first: guest and bindings."""
    server = run[find_server].server
    if server is None or server.moved is None or server.deleted:
        return
    await confirm_resize.clear(run, "confirm_move", server)
    if run.asked.gates.credentials:
        await confirm_resize.drop_bindings_at_both_ends(run, server)


@step(no_undo=FORWARD_ONLY, needs=(find_server,), patience_s=PATIENCE_S)
async def end_move(run: DeleteRun) -> None:
    """The move's record says that it was confirmed."""
    found = run[find_server]
    server = found.server
    if server is None or server.moved is None or found.cell is None or server.deleted:
        return
    move = server.moved.migration
    await run.rooms.cells[found.cell].write(lambda tx: moving.with_status(tx, move, MigrationStatus.CONFIRMED))


@step(no_undo=FORWARD_ONLY, needs=(find_server, confirm_move, end_move), region=True)
async def release_move(run: DeleteRun) -> None:
    """What the move held on the old host."""
    server = run[find_server].server
    given_back: list[Row] = []

    def work(tx: Tx) -> None:
        if server is not None and server.moved is not None:
            given_back[:] = run.rooms.placement.release(tx, server.moved.migration)

    await run.commit(work)
    run.rooms.placement.settle(given_back)


def _ended(tx: Tx, run: DeleteRun, status: str) -> None:
    records.let_go(tx, run)


DELETE = Saga(
    "delete/1",
    Delete,
    find_server,
    destroy_guest,
    release_ports,
    mark_deleted,
    release_claims,
    ended=_ended,
    forward_only=True,
)
"""For servers without volumes and without an image of their disk: every release knows it, so a release may be taken back meanwhile."""

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
    ended=_ended,
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
    ended=_ended,
    forward_only=True,
)
"""For servers that were moved, and may be by who holds them: it confirms first, as Nova does."""


DeleteSaga: TypeAlias = Saga[Delete, Rooms]
VERSIONS: tuple[DeleteSaga, ...] = (DELETE, DELETE_WITH_VOLUMES, DELETE_WITH_MOVES)
"""From the one that takes away least to the one that takes away all."""
MOVES = frozenset({"resize/1", "live_migrate/1", "confirm_resize/1", "revert_resize/1"})
WITHOUT_VOLUMES = frozenset(
    {"boot/1", "power/1", "attach_interface/1", "attach_interface/2", "detach_interface/1", DELETE.name}
)
"""Of a server that one of these holds nothing is attached meanwhile."""
NOT_YET = "this server cannot be deleted before all conductors are of this release; try again later"


async def begin(rooms: Rooms, asker: Asker, server: Server, *, force: bool = False, request_id: str = "") -> None:
    """Accept a delete: at once if nobody holds the server, else behind the holder, who is told to stop (RULES §9).

    A repeated delete adds nothing.
    """
    (newest, owner), gates = await _told_by(rooms), rooms.gates()
    seen, server = await _seen(rooms, server)
    operation = region_operations.new_id()

    def work(tx: Tx) -> tuple[Accepted | None, OperationId | None, ConductorId | None]:
        held = region_servers.queue(tx, server.id, operation, TaskState.DELETING)
        if held is None or held.seq == 0:
            tx.refuse((None, None, None))
        where = region_servers.find(tx, server.id)
        holder = None
        if where is not None and held.holder is not None:
            holder = region_operations.get(tx, held.holder)
            if holder is not None and holder.name == "delete":
                tx.refuse((None, None, None))
            region_operations.ask_to_cancel(tx, held.holder, "deleted")
        saga = _version(server, newest, holder, overtaken=held.holder is None and held.seq != seen + 1)
        asked = Delete(
            server,
            held.seq,
            request_id,
            asker.user,
            "forceDelete" if force else "delete",
            carried.get(),
            asker.project or "",
            gates,
        )
        new = accepted(
            saga,
            operation,
            server,
            asked,
            owner=owner,
            user=asker.user,
            seq=held.seq,
            after=held.holder,
            request_id=request_id,
        )
        keep(rooms, tx, [new])
        holder_owner = None if held.holder is None else region_operations.owner_of(tx, held.holder)
        return new, held.holder, holder_owner

    new, holder, holder_owner = await rooms.region.write(work)
    await tell_later(rooms, new, holder, holder_owner)


async def _seen(rooms: Rooms, server: Server) -> tuple[int, Server]:
    """The server's number of operations, and its record as it was after that: what ends after it is no secret to the version.

    The record as the caller read it where its cell is out.
    """
    where = await rooms.region.read(lambda tx: region_servers.find(tx, server.id))
    if where is None or where.cell is None:
        return (0 if where is None else where.op_seq), server
    try:
        found = await rooms.cells[where.cell].glance(lambda tx: cell_servers.get(tx, server.id))
    except Unavailable:
        found = None
    return where.op_seq, found or server


def _version(server: Server, newest: DeleteSaga, holder: Operation | None, *, overtaken: bool) -> DeleteSaga:
    """The shortest version that takes away all that the server has; `overtaken`: it may have more by now than was read.

    Raises Unavailable while a conductor lives that does not know it.
    """
    if server.moved is not None or overtaken or (holder is not None and holder.saga in MOVES):
        wanted = DELETE_WITH_MOVES
    elif server.volumes or server.shelved is not None or (holder is not None and holder.saga not in WITHOUT_VOLUMES):
        wanted = DELETE_WITH_VOLUMES
    else:
        return DELETE
    if VERSIONS.index(newest) >= VERSIONS.index(wanted):
        return wanted
    if overtaken:
        return newest  # nobody can have begun what a living conductor does not know
    raise Unavailable(NOT_YET)


async def _told_by(rooms: Rooms) -> tuple[DeleteSaga, ConductorId]:
    """The newest version that every living conductor knows, and who begins. Raises Unavailable when there is none."""
    for version in reversed(VERSIONS[1:]):
        try:
            return version, await rooms.tellers.choose(version.name)
        except Unavailable:
            continue
    return DELETE, await rooms.tellers.choose(DELETE.name)


def _now() -> int:
    return time.time_ns() // 1000
