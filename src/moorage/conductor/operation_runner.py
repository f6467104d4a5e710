"""Executes operations: each from the end of its journal, until it has ended, is stuck, or belongs to another conductor."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from moorage.conductor.lease import ConductorLease
from moorage.conductor.stale_journals import EndedElsewhere, compare
from moorage.model.clock import Clock
from moorage.model.errors import Problem
from moorage.model.ids import OperationId
from moorage.model.operation import Accepted, Operation, OperationStatus
from moorage.model.retry import Backoff, SeldomLog
from moorage.model.task_context import global_request_id, lease_left, operation_id
from moorage.model.tracing import SpanType, span
from moorage.operations.context import SagaContext
from moorage.operations.registry import SAGAS
from moorage.saga import FIRST_EPOCH, CommitUnknown, Fenced, Saga, Slept, Stuck, Unwound, execute
from moorage.saga.journal import Intent, Line
from moorage.saga.step import ATTEMPTS_MAX
from moorage.store.region import operations
from moorage.store.region.journal import Journal

logger = logging.getLogger(__name__)

AGAIN_FIRST_S = 0.5
AGAIN_MOST_S = 15.0
"""The longest pause after a write of unknown outcome, or when the database does not answer."""


class OperationRunner:
    """Executes the operations of one conductor, each in a task of its own."""

    def __init__(
        self,
        context: Callable[[], SagaContext],
        lease: ConductorLease,
        clock: Clock,
        log: SeldomLog,
        *,
        poll: Callable[[], None],
        stuck: Callable[[OperationId], None],
    ) -> None:
        """`context`: the context of each execution. `poll`: called when there may be more work. `stuck`: called with an
        operation that is to be executed again later.
        """
        self._context = context
        self._lease = lease
        self._clock = clock
        self._log = log
        self._poll = poll
        self._stuck = stuck
        self._cancels: dict[OperationId, asyncio.Event] = {}

    def cancel(self, operation: OperationId) -> bool:
        """The operation's `cancel` may have been written. Returns whether it is being executed here."""
        event = self._cancels.get(operation)
        if event is not None:
            event.set()
        return event is not None

    def forget(self, operation: OperationId) -> None:
        """It is no longer executed here."""
        self._cancels.pop(operation, None)

    async def execute(self, operation: Operation) -> None:
        """Execute it until it has ended, is stuck, or belongs to another conductor."""
        adopted = False
        backoff = Backoff(AGAIN_FIRST_S, AGAIN_MOST_S)
        while True:
            head = operation.head
            try:
                await self._execute_once(operation, adopted)
                return
            except CommitUnknown as torn:
                self._log.warning("torn", "operation %s: %s; it is read again after a pause", operation.id, torn)
                again = await self._read_again(operation.id, backoff)
                if again is None or again.owner != self._lease.id or again.ended_at is not None:
                    return
                if again.head != head:
                    backoff.reset()
                operation, adopted = again, True
            except Fenced as fenced:
                logger.warning("operation %s is executed by another: %s", operation.id, fenced)
                return
            except Slept as slept:
                logger.info("operation %s of server %s sleeps: %s", operation.id, operation.server, slept)
                self._context().slept()
                return
            except Stuck as stuck:
                logger.error("operation %s of server %s is %s", operation.id, operation.server, stuck)
                self._stuck(operation.id)
                return
            except Unwound as unwound:
                logger.info("operation %s of server %s unwound at %s", operation.id, operation.server, unwound)
                self._poll()  # a delete may have waited for it
                return
            except Exception:
                logger.exception("operation %s could not be executed", operation.id)
                self._stuck(operation.id)
                return

    async def _execute_once(self, operation: Operation, adopted: bool) -> None:
        saga = SAGAS.get(operation.saga)
        if saga is None:
            logger.error("operation %s is a %s, which this release does not know", operation.id, operation.saga)
            return
        cancel = self._cancels.setdefault(operation.id, asyncio.Event())
        input = msgspec.json.decode(operation.asked, type=saga.input_type)
        lease_left.set(self._lease.left_s)
        operation_id.set(operation.id)
        global_request_id.set(getattr(input, "global_request_id", "") or operation.request_id)
        context = self._context()
        journal = Journal(context.region, operation, held=self._lease.held)
        with span(
            SpanType.OPERATION,
            saga.name,
            parent=began_by(journal.journal),
            seed=operation.request_id,
            operation=operation.id,
            server=operation.server,
            epoch=operation.epoch,
        ) as doing:
            try:
                begun = adopted or journal.epoch > FIRST_EPOCH or len(journal.journal) > 1
                behind = begun and await compare(context, operation, saga, journal)
                await execute(
                    saga,
                    operation.id,
                    input,
                    context,
                    journal,
                    cancel_hint=cancel,
                    adopted=adopted,
                    behind=behind,
                    max_attempts=hosts_tried(saga, context.settings.max_attempts),
                    notification_writer=None
                    if context.notification_writer is None
                    else context.notification_writer.on_commit,
                )
            except EndedElsewhere:
                self._poll()  # another may have waited for it
            except (Unwound, Stuck, Fenced, Slept, CommitUnknown, asyncio.CancelledError) as ending:
                doing.came_to(ending_of(ending))
                raise
            doing.came_to("done")
        if cancel.is_set():
            self._poll()

    async def _read_again(self, operation: OperationId, backoff: Backoff) -> Operation | None:
        """After a pause: an immediate repeat would fail again."""
        while True:
            await self._clock.sleep(backoff.next_s())
            try:
                return await self._context().region.read(lambda tx: operations.get(tx, operation))
            except Problem as problem:
                self._log.warning("again", "operation %s cannot be read yet: %s", operation, problem)


def operation_of(accepted: Accepted) -> Operation:
    """The operation as it is in the table: what this process has accepted need not be read."""
    return Operation(
        id=accepted.id,
        saga=accepted.saga,
        server=accepted.server,
        project=accepted.project,
        user=accepted.user,
        owner=accepted.owner,
        status=OperationStatus.OPEN,
        epoch=accepted.epoch,
        head=accepted.head,
        created_at=accepted.created_at,
        updated_at=accepted.created_at,
        seq=accepted.seq,
        request_id=accepted.request_id,
        asked=accepted.asked,
        journal=accepted.journal,
    )


def began_by(lines: Sequence[Line]) -> str:
    """The `traceparent` of the request that began the saga, whichever conductor executes it now; empty: it was not
    traced.
    """
    return lines[0].trace if lines and isinstance(lines[0], Intent) else ""


def ending_of(ending: BaseException) -> str:
    """In a word, for who counts them: `failed` and `cancelled` are taken back, `stuck` is tried again, `asleep` goes on when it is
    woken, `left` goes on elsewhere.
    """
    match ending:
        case Unwound():
            return "cancelled" if ending.reason == "cancel" else "failed"
        case Stuck():
            return "stuck"
        case Slept():
            return "asleep"
        case _:
            return "left"


def hosts_tried(saga: Saga[Any, Any], setting: int) -> int:
    """As many as for a boot, unless the saga itself allows more."""
    own = 0 if saga.group is None else saga.group.max_attempts
    return max(own, setting) if own > ATTEMPTS_MAX else setting
