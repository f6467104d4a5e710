"""Moves the record of an offloaded server to another cell, when its cell is drained.

    open_cell      checks that the other cell accepts writes
    begin_copy     the region marks the other cell's record as hidden
    seal_record    requests no longer write to the old record
    copy_record    the record, its actions and its moves are in the other cell
    show_there     the other cell's record is shown (point of no return)
    remove_record, forget_hidden   the old record is removed

The server is on no host, so only records are changed: its ports, volumes and addresses belong to the region. It is
unshelved in the cell that has its record.
"""

import msgspec

from moorage.model.errors import Conflict, Invalid, Unavailable
from moorage.model.ids import CellId, OperationId, ServerId
from moorage.model.operation import Accepted
from moorage.model.server import Server, TaskState, VmState
from moorage.model.task_context import global_request_id
from moorage.operations.accept import accepted, dispatch
from moorage.operations.context import SagaContext
from moorage.operations.steps import other_cells, second_records, server_lock
from moorage.operations.steps import servers as records
from moorage.saga import Run, Saga, step


class MoveRecord(msgspec.Struct, frozen=True):
    """Everything that the move needs; nothing is looked up by name after this."""

    server: Server
    seq: int
    left: CellId
    to: CellId
    request_id: str = ""
    user: str = ""
    global_request_id: str = ""
    by_project: str = ""


MoveRecordRun = Run[MoveRecord, SagaContext]


@step(no_undo=second_records.A_FENCE)
async def open_cell(run: MoveRecordRun) -> None:
    """Check, before anything is changed, that the other cell accepts writes."""
    await second_records.open_cell(run, run.input.to)


@step(region=True, needs=(open_cell,))
async def begin_copy(run: MoveRecordRun) -> None:
    """Mark the other cell's record as hidden."""
    await second_records.open_copy(run, run.input.to)


@begin_copy.undo
async def end_copy(run: MoveRecordRun) -> None:
    """Remove the copy; a cell that does not answer removes it when it is back."""
    await second_records.drop_copy(run, run.input.to)


@step(needs=(begin_copy,))
async def seal_record(run: MoveRecordRun) -> None:
    """Let requests that write wait for the other record."""
    await second_records.seal(run, run.input.left)


@seal_record.undo
async def unseal_record(run: MoveRecordRun) -> None:
    """Let requests write to the record again."""
    await second_records.unseal(run, run.input.left)


@step(needs=(begin_copy, seal_record), no_undo="the undo of begin_copy removes it: until then it is not shown")
async def copy_record(run: MoveRecordRun) -> None:
    """Copy everything of the server in one transaction of the other cell."""
    await second_records.copy(run, run.input.left, run.input.to, second_records.as_it_is)


@step(region=True, needs=(seal_record, copy_record), no_undo=second_records.SHOWN_THERE, point_of_no_return=True)
async def show_there(run: MoveRecordRun) -> None:
    """From this commit on the server is shown in the other cell."""
    await second_records.show(run, run.input.left, run.input.to)


@step(needs=(show_there,), no_undo=second_records.SHOWN_THERE)
async def remove_record(run: MoveRecordRun) -> bool:
    """Remove the old record. Returns False when its cell does not answer; it is not waited for."""
    return await second_records.removed(run, run.input.left)


@step(region=True, needs=(remove_record,), no_undo=second_records.SHOWN_THERE)
async def forget_hidden(run: MoveRecordRun) -> None:
    """Remove the mark of the hidden record when the old record is gone."""
    if run[remove_record]:
        await second_records.forget(run, run.input.left)


MOVE_RECORD = Saga(
    "move_record/1",
    MoveRecord,
    open_cell,
    begin_copy,
    seal_record,
    copy_record,
    show_there,
    remove_record,
    forget_hidden,
    ended=records.release_server,
)


# -------------------------------------------------------------------------------------------------- acceptance


async def begin(
    context: SagaContext, server: ServerId, to: CellId, user: str, project: str, *, request_id: str = ""
) -> OperationId:
    """Accept the move of an offloaded server's record to that cell; return the operation's id.

    Raises Conflict (it is not offloaded, or busy), Invalid (it is there already, or there is no such cell), NotFound,
    and Unavailable while a conductor does not know this operation.
    """
    if to not in context.cells.ids:
        raise Invalid(f"There is no cell {to}.")
    if not await other_cells.all_know(context):
        raise Unavailable(other_cells.TOO_EARLY)
    owner = await context.dispatcher.choose(MOVE_RECORD.name)

    def make(now: Server, operation: OperationId, seq: int) -> Accepted:
        if now.vm_state is not VmState.SHELVED_OFFLOADED or now.cell is None:
            raise Conflict(f"Instance {now.id} is not shelved offloaded: its record alone cannot go to another cell.")
        if now.cell == to:
            raise Invalid(f"Instance {now.id} is in cell {to} already.")
        input = MoveRecord(now, seq, now.cell, to, request_id, user, global_request_id.get(), project)
        return accepted(MOVE_RECORD, operation, now, input, owner=owner, user=user, seq=seq, request_id=request_id)

    new = await server_lock.accept(context, server, "move", make, task=TaskState.MIGRATING)
    await dispatch(context, new)
    return new.id
