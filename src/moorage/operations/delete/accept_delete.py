"""Accepts a delete: chooses the version of the saga, and its place behind the operation that holds the server."""

from moorage.model.errors import Unavailable
from moorage.model.ids import ConductorId, OperationId
from moorage.model.operation import Accepted, Operation
from moorage.model.principal import Principal
from moorage.model.server import Server, TaskState
from moorage.model.task_context import global_request_id
from moorage.operations.accept import accepted, dispatch, newest_known, persist
from moorage.operations.context import SagaContext
from moorage.operations.delete.delete import (
    DELETE,
    DELETE_BEFORE_SHOWN,
    DELETE_IN_ALL_CELLS,
    DELETE_WITH_MOVES,
    DELETE_WITH_VOLUMES,
    VERSIONS,
    Delete,
    DeleteSaga,
)
from moorage.operations.steps import moving
from moorage.operations.steps import servers as records
from moorage.operations.steps.sleepers import waker_of
from moorage.sql import Tx
from moorage.store.cell import servers as cell_servers
from moorage.store.doubts import doubt_about
from moorage.store.region import operations as region_operations
from moorage.store.region import servers as region_servers

ACROSS_CELLS = frozenset(
    {"resize/2", "live_migrate/2", "confirm_resize/2", "revert_resize/2", "unshelve/3", "evacuate/3", "move_record/1"}
)
"""While one of these operations holds a server, another cell may have a record of the server."""
MOVES = ACROSS_CELLS | {"resize/1", "live_migrate/1", "confirm_resize/1", "revert_resize/1"}
WITHOUT_VOLUMES = frozenset(
    {"boot/1", "boot/3", "power/1", "attach_interface/1", "attach_interface/2", "detach_interface/1", DELETE.name}
)
"""While one of these operations holds a server, no volume is attached to it."""
NOT_YET = "this server cannot be deleted before all conductors are of this release; try again later"


async def begin(
    context: SagaContext, principal: Principal, server: Server, *, force: bool = False, request_id: str = ""
) -> None:
    """Accept a delete: at once if no operation holds the server; otherwise behind the holder, which is asked to stop
    (RULES §9).

    A repeated delete has no further effect. Raises Unavailable while no version of the saga that removes everything is
    known to all conductors.
    """
    waker = await waker_of(context)
    (newest, owner), gates = await newest_known(context, *reversed(VERSIONS)), context.gates()
    last_seq, server = await _read_server(context, server)
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
            region_operations.ask_to_cancel(tx, held.holder, moving.DELETED, waker)
        overtaken, owed = held.holder is None and held.seq != last_seq + 1, where is not None and where.debts > 0
        saga = _version(server, newest, holder, overtaken=overtaken, owed=owed)
        input = Delete(
            server,
            held.seq,
            request_id,
            principal.user,
            "forceDelete" if force else "delete",
            global_request_id.get(),
            principal.project or "",
            gates,
        )
        new = accepted(
            saga,
            operation,
            server,
            input,
            owner=owner,
            user=principal.user,
            seq=held.seq,
            after=held.holder,
            request_id=request_id,
        )
        persist(context, tx, [new])
        holder_owner = None if held.holder is None else region_operations.owner_of(tx, held.holder)
        return new, held.holder, holder_owner

    new, holder, holder_owner = await context.region.write(work)
    await dispatch(context, new, holder, holder_owner)


async def _read_server(context: SagaContext, server: Server) -> tuple[int, Server]:
    """The server's number of operations, and then its record. The record is read after the number, so it shows the
    effects of every operation that had ended by then.

    When the cell does not answer, the record as the caller read it. Raises Doubtful.
    """
    where = await context.region.read(lambda tx: region_servers.find(tx, server.id))
    if where is None or where.cell is None:
        return (0 if where is None else where.op_seq), server
    try:
        record = await context.cells[where.cell].read_inline(lambda tx: cell_servers.get(tx, server.id))
    except Unavailable:
        record = None
    if record is not None and doubt_about(record, where) is not None:
        await records.sure(context, server.id)
    return where.op_seq, record or server


def _version(
    server: Server, newest: DeleteSaga, holder: Operation | None, *, overtaken: bool, owed: bool = False
) -> DeleteSaga:
    """Choose the version of the saga. The shortest is for a server that has nothing more: the previous release knows
    it, and that release may return.

    Otherwise it is the newest; while a conductor lives that does not know it, the shortest of the others that removes
    everything. `overtaken`: the server may have more by now than was read. `owed`: a host owes it something. Raises Unavailable while a conductor lives
    that does not know the version that is needed.
    """
    if server.moved is not None or overtaken or (holder is not None and holder.saga in MOVES):
        wanted = DELETE_WITH_MOVES
    elif (
        owed
        or server.volumes
        or server.shelved is not None
        or (holder is not None and holder.saga not in WITHOUT_VOLUMES)
    ):
        wanted = DELETE_WITH_VOLUMES
    else:
        return DELETE
    if newest is DELETE_IN_ALL_CELLS and (moving.cell_left(server) is not None or _crosses(holder)):
        return newest
    if VERSIONS.index(newest) >= VERSIONS.index(DELETE_BEFORE_SHOWN):
        return DELETE_BEFORE_SHOWN  # a reconciler removes the record that a move may leave in another cell meanwhile
    if VERSIONS.index(newest) >= VERSIONS.index(wanted):
        return wanted
    if overtaken:
        return newest  # an operation that some conductor does not know cannot have begun
    raise Unavailable(NOT_YET)


def _crosses(holder: Operation | None) -> bool:
    return holder is not None and holder.saga in ACROSS_CELLS
