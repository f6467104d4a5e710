"""The journal of one operation, as the saga engine's `Log`: lines, work and fence in one transaction (RULES §2, §3).

The operation's row is written last, because the work's result is among the lines; a fence that matches no row rolls the
work back. When the outcome of a write is unknown (the database broke off at COMMIT), `CommitUnknown` is raised: read
the row again.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from sqlalchemy.exc import DBAPIError

from moorage.model.errors import Unavailable
from moorage.model.operation import Operation, OperationStatus
from moorage.saga import Appended, CommitUnknown, Fenced, Line, Status, decode_lines, encode_lines
from moorage.saga.journal import Stalled, Unwinding, Waiting
from moorage.sql import Database, TransactionRefused, Tx, current_label, label
from moorage.store.region import operations

T = TypeVar("T")

STATUS_OF: dict[Status, OperationStatus] = {
    "running": OperationStatus.OPEN,
    "cleaning": OperationStatus.CLEANING,
    "stuck": OperationStatus.STUCK,
    "done": OperationStatus.DONE,
    "unwound": OperationStatus.UNDONE,
}
ENDED: frozenset[Status] = frozenset({"done", "unwound"})


class _Refused:
    """Wraps a work's refusal until the transaction ends, to distinguish it from a result."""

    def __init__(self, answer: object) -> None:
        self.answer = answer


class _NotOurs(Exception):
    """The fence matched no row; raised inside the transaction to roll all of it back."""


class Journal:
    """One operation, held in one epoch by this process."""

    def __init__(
        self, region: Database, operation: Operation, *, held: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """`held` returns when it is certain that the lease under which this writes is valid (RULES §23)."""
        self._region = region
        self._held = held
        self._operation = operation.id
        self._epoch = operation.epoch
        self._head = operation.head
        self._bytes = len(operation.journal)
        self._journal = decode_lines(operation.journal)
        self._cancel = operation.cancel
        self.waiting: str | None = operation.waiting

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def journal(self) -> Sequence[Line]:
        return self._journal

    @property
    def cancel(self) -> str | None:
        return self._cancel

    async def append(
        self,
        lines: Sequence[Line],
        work: Callable[[Tx], T],
        *,
        then: Callable[[T], Sequence[Line]] | None = None,
        status: Status = "running",
    ) -> Appended[T]:
        """See `saga.Log.append`. Raises Fenced when another executor has the operation, CommitUnknown when the outcome
        of the write is unknown.
        """
        written, after, flagged = 0, self._head, False
        if self._held is not None:
            await self._held()

        def together(tx: Tx) -> "tuple[T, str | None] | _Refused":
            nonlocal written, after, flagged
            flagged = False
            try:
                answer = work(tx)
            except TransactionRefused as refused:
                raise TransactionRefused(_Refused(refused.value)) from None
            all_lines = [*lines, *(then(answer) if then is not None else ())]
            more = encode_lines(all_lines).encode()
            after = self._head + max(len(all_lines), 1)
            write = operations.JournalWrite(
                epoch=self._epoch,
                head=self._head,
                after=after,
                more=more,
                spill=self._bytes + len(more) > operations.JOURNAL_MAX_BYTES,
                status=STATUS_OF[status],
                ended=status in ENDED,
                waiting=_waiting(all_lines),
                fault=_fault(all_lines),
            )
            ours, cancel = operations.append(tx, self._operation, write)
            if not ours:
                raise _NotOurs
            written, flagged = len(more), True
            return answer, cancel

        try:
            with label(current_label() or _about(lines, status)):
                answered = await self._region.write(together)
        except _NotOurs as lost:
            raise Fenced(f"operation {self._operation} has another executor than epoch {self._epoch}") from lost
        except (Unavailable, DBAPIError, OSError) as unknown:
            if not flagged:
                raise
            raise CommitUnknown(f"operation {self._operation}: the outcome of a journal write is unknown") from unknown
        if isinstance(answered, _Refused):
            return Appended(answered.answer, None, self._head, refused=True)  # type: ignore[arg-type]
        answer, cancel = answered
        self._head = after
        self._bytes += written
        return Appended(answer, cancel, after)

    async def cancel_reason(self) -> str | None:
        """See `saga.Log.cancel_reason`."""
        row = await self._region.read(lambda tx: operations.get(tx, self._operation))
        return None if row is None else row.cancel


def _waiting(lines: Sequence[Line]) -> str | None:
    return next((line.public for line in reversed(lines) if isinstance(line, Waiting)), None)


def _fault(lines: Sequence[Line]) -> str | None:
    return next((line.cause.public for line in reversed(lines) if isinstance(line, Unwinding | Stalled)), None)


def _about(lines: Sequence[Line], status: Status) -> str:
    if status in ENDED:
        return "end"
    names = [getattr(line, "step", "") for line in lines]
    return next((name for name in reversed(names) if name), "commit")
