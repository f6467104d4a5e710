"""Takes the server lock for a short operation, or waits for a short one that holds it.

Attach and detach do not change the server's task state, as in Nova, so users may request several at once: they are done
one after the other, each as soon as the previous one has released the lock. Any other holder is a conflict, unless
users see its end already.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

import msgspec

from moorage.model.errors import Conflict, NotFound, Problem, Unavailable
from moorage.model.ids import ConductorId, OperationId, ServerId
from moorage.model.operation import Accepted, OperationStatus
from moorage.model.server import Server, TaskState, VmState
from moorage.operations.accept import persist
from moorage.operations.context import SagaContext
from moorage.operations.preview import Previewed
from moorage.operations.steps import servers as records
from moorage.saga import decode_lines
from moorage.saga.journal import Unwinding
from moorage.sql import Tx
from moorage.store.region import operations as region_operations
from moorage.store.region import servers as region_servers

SHORT = frozenset(
    {
        "attach_interface",
        "detach_interface",
        "attach_volume",
        "detach_volume",
        "extend_volume",
        "assisted_snapshot",
        "settle_debt",
    }
)
"""Operations that are waited for; others are a conflict."""
TURN_COMES_WITHIN_S, PREVIEWED_WITHIN_S = 30.0, 1.0
"""The second is for a preview, which may concern a whole host."""
LOOK_FIRST_S = 0.01
LOOK_MOST_S = 0.25
GIVEN_UP = "gave_up"
UNWOUND_WITHIN_S = 10.0

Make = Callable[[Server, OperationId, int], Accepted]
"""(the current record, the operation's id, its seq) → the operation; may raise a Refusal."""


class _Busy(msgspec.Struct, frozen=True):
    holder: OperationId
    name: str


class _Moved(msgspec.Struct, frozen=True):
    """Another operation began and ended since the record was read."""


Also = Callable[[Tx, Server], Problem | None]
"""What else the transaction writes, for the record that `make` got; a Problem refuses all of it."""


async def accept(
    context: SagaContext,
    server: ServerId,
    word: str,
    make: Make,
    *,
    task: TaskState | None = None,
    also: Also | None = None,
    though_owed: bool = False,
) -> Accepted:
    """Take the server lock and write the operation, in one transaction, as soon as no short operation holds the lock.

    `make` gets the record as it is while no operation holds the server; `task` shows from then on. `though_owed`: also
    while a host owes something to the server. Raises NotFound, Doubtful, Conflict when another operation holds the
    server or a host owes it something, Unavailable when short operations hold it all the time, what `make` raises, and
    what `also` returns.
    """
    within_s = PREVIEWED_WITHIN_S if context.preview else TURN_COMES_WITHIN_S
    deadline, pause_s = time.monotonic() + within_s, LOOK_FIRST_S
    while True:
        answer = await _try(context, server, make, task, also, though_owed=though_owed)
        if isinstance(answer, Accepted):
            return answer
        late = time.monotonic() > deadline
        if isinstance(answer, _Busy) and (late or not await _soon_over(context, server, answer)):
            raise Conflict(f"Cannot '{word}' instance {server} while another action is in progress.")
        if late:
            raise Unavailable(f"instance {server} is always in use by other operations; try again later")
        if isinstance(answer, _Busy):
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, LOOK_MOST_S)


async def _try(
    context: SagaContext,
    server: ServerId,
    make: Make,
    task: TaskState | None,
    also: Also | None,
    *,
    though_owed: bool,
) -> Accepted | _Busy | _Moved:
    where = await context.region.read(lambda tx: region_servers.find(tx, server))
    if where is None:
        raise NotFound(f"Instance {server} could not be found.")
    if where.operation is not None:
        return await _busy(context, where.operation)
    record = (await records.sure(context, server)).server
    if record is None or record.deleted:
        raise NotFound(f"Instance {server} could not be found.")
    operation = region_operations.new_id()
    new = make(record, operation, where.op_seq + 1)
    if context.preview:
        raise await _not_taken(context, new, record, also, is_owed=where.debts > 0 and not though_owed)

    def work(tx: Tx) -> Accepted | OperationId | Problem | _Moved | None:
        held = region_servers.take(tx, server, operation, task, though_owed=though_owed)
        if held is None or held.owed:
            return tx.refuse(None if held is None else owed(server))
        if held.holder is not None:
            return tx.refuse(held.holder)
        if held.seq != new.seq:
            return tx.refuse(_Moved())
        if also is not None and (refused := also(tx, record)) is not None:
            return tx.refuse(refused)
        persist(context, tx, [new])
        return new

    answer = await context.region.write(work)
    if answer is None:
        raise NotFound(f"Instance {server} could not be found.")
    if isinstance(answer, Problem):
        raise answer
    return await _busy(context, answer) if isinstance(answer, str) else answer


def owed(server: ServerId) -> Conflict:
    """The refusal while a host owes something to the server."""
    return Conflict(
        f"Instance {server} waits for its host, which has been silent and must first do what it was told: try again later. "
        "It can be deleted meanwhile, or evacuated when its host is down.",
        code="host_owes",
    )


async def _not_taken(
    context: SagaContext, new: Accepted, record: Server, also: Also | None, *, is_owed: bool
) -> Exception:
    """In a preview: what is refused, also by `also`, or what would be written; its writes are rolled back."""
    if is_owed:
        return owed(record.id)

    def work(tx: Tx) -> Problem | None:
        tx.refuse(None if also is None else also(tx, record))

    return (None if also is None else await context.region.write(work)) or Previewed([new])


async def _busy(context: SagaContext, holder: OperationId) -> _Busy:
    operation = await context.region.read(lambda tx: region_operations.get(tx, holder))
    return _Busy(holder, "" if operation is None else operation.name)


async def _soon_over(context: SagaContext, server: ServerId, busy: _Busy) -> bool:
    """Whether it is a short operation, or one whose end users see already while its last line is still to be written.

    A boot shows the server ACTIVE, without a task, before it releases the lock: a user who waited for ACTIVE must not
    get a conflict.
    """
    if busy.name in SHORT:
        return True
    where = await context.region.read(lambda tx: region_servers.find(tx, server))
    if where is None or where.operation != busy.holder:
        return True  # it is over
    located = await records.find(context, server)
    if located.server is not None and located.server.ended == busy.holder:
        return True
    if located.server is None or located.cell is None or where.task is not None:
        return False
    if busy.name == "confirm_resize" and located.server.vm_state is VmState.RESIZED:
        return False  # it shows no task, from its first line to its last
    return located.server.operation == busy.holder and located.server.task_state is None


async def soon_released(context: SagaContext, server: ServerId, holder: OperationId) -> bool:
    """Wait for the holder if it is short; return whether it has released the lock, so that the refused request may be
    tried again.
    """
    return await _soon_over(context, server, await _busy(context, holder)) and await over(context, holder)


async def over(context: SagaContext, holder: OperationId) -> bool:
    """Whether it ended, with success or failure, within the time to wait."""
    try:
        return await _wait(context, holder, TURN_COMES_WITHIN_S)
    except Problem:
        return True  # it was undone; its own requester gets the reason


async def ended(context: SagaContext, operation: OperationId, owner: ConductorId, within_s: float) -> None:
    """Wait until the operation ends with success. Raises the problem with which it failed; Unavailable when it takes
    too long.

    An operation that takes too long is asked to stop, so that a refused request has no effect.
    """
    if await _wait(context, operation, within_s):
        return
    await context.region.write(lambda tx: region_operations.ask_to_cancel(tx, operation, GIVEN_UP))
    await context.dispatcher.cancelled(operation, owner)
    if not await _wait(context, operation, UNWOUND_WITHIN_S):
        raise Unavailable(f"it could not be done in {within_s:.0f} s, and is being undone; try again later")


async def ended_or(
    context: SagaContext, operation: OperationId, enough: Callable[[], Awaitable[bool]], within_s: float
) -> None:
    """Wait until `enough` is true, or until the operation ends. Raises the problem with which it failed; returns after
    `within_s` in any case.
    """
    deadline, pause_s = time.monotonic() + within_s, LOOK_FIRST_S
    while time.monotonic() < deadline:
        await asyncio.sleep(pause_s)  # it was just accepted: to look for its effect at once is in vain
        if await enough() or await _is_done(context, operation):
            return
        pause_s = min(pause_s * 2, LOOK_MOST_S)


async def _wait(context: SagaContext, operation: OperationId, within_s: float) -> bool:
    """Whether it ended with success in time; raises the problem with which it failed."""
    deadline, pause_s = time.monotonic() + within_s, LOOK_FIRST_S
    while time.monotonic() < deadline:
        if await _is_done(context, operation):
            return True
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 2, LOOK_MOST_S)
    return False


async def _is_done(context: SagaContext, operation: OperationId) -> bool:
    """Whether it has ended with success; raises the problem with which it failed."""
    now = await context.region.read(lambda tx: region_operations.get(tx, operation))
    if now is None or now.status is OperationStatus.DONE:
        return True
    if now.status is OperationStatus.UNDONE:
        raise _turned(now.journal)
    return False


def _turned(journal: bytes) -> Problem:
    turn = next((line for line in reversed(decode_lines(journal)) if isinstance(line, Unwinding)), None)
    if turn is None:
        return Problem("it was taken back")
    if turn.reason == "cancel":
        if turn.cancelled == GIVEN_UP:
            return Unavailable("it took too long, and was taken back; try again later")
        return Conflict("it was stopped, because the server is being deleted")
    return turn.cause.problem()


__all__ = ["SHORT", "accept", "ended", "ended_or", "over", "owed", "soon_released"]
