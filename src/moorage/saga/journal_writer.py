"""Writes the journal: lines that wait for the next commit, and the lines that a commit carries."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from msgspec import Raw

from moorage.model.errors import Internal
from moorage.saga.journal import Appended, CommitUnknown, Fenced, Intent, Line, Log, Status, StepResult, Undone
from moorage.saga.state import ReplayedState
from moorage.saga.step import Run

T = TypeVar("T")


class JournalWriter:
    """Writes the journal, and updates the replayed state with each line."""

    def __init__(self, log: Log, state: ReplayedState) -> None:
        self.log = log
        self.state = state
        self.cancel = log.cancel
        """The row's `cancel` column, as last seen."""
        self.writing = False
        self.broken: Exception | None = None
        """Fenced or CommitUnknown, even if a step caught it."""
        self.on_commit: Callable[[Any, Sequence[Line]], None] | None = None
        """Called with `(tx, lines)` in every commit: notifications are written in the same transaction."""
        self._pending: list[Line] = []

    def note(self, line: Line) -> None:
        """Add a line to the next commit."""
        self._pending.append(line)
        self.state.add(line)

    async def flush(self, status: Status) -> None:
        """Commit the pending lines, if there are any."""
        if self._pending:
            await self.append([], status=status)

    async def append(
        self, lines: Sequence[Line], work: Callable[[Any], object] | None = None, *, status: Status = "running"
    ) -> None:
        """Write the pending lines and `lines` in one commit, together with `work`.

        Raises Internal when the work refuses.
        """
        if (await self._commit(lines, work or _nothing, _no_more, status)).refused:
            raise Internal("a commit of the saga's own lines cannot be refused")

    async def commit(
        self, run: Run[Any, Any], work: Callable[[Any], T], result: Callable[[T], object] | None = None
    ) -> T:
        """Commit a step's work for `Run.commit`.

        Raises Internal when the step has committed already, or when no step is being executed.
        """
        saga, name, attempt = self.state.saga, run._step, run.attempt
        at = saga.at.get(name, -1)
        if at < 0 or (run.phase == "do" and self.state.is_done(name)):
            raise Internal(f"{name or 'nobody'} commits twice, or outside a step")

        def follows(answer: T) -> Sequence[Line]:
            if run.phase == "undo":
                return [Undone(name, attempt)]
            value = saga.steps[at].encode(answer if result is None else result(answer))
            line = StepResult(name, attempt, Raw(value))
            enters = saga.group is not None and at + 1 == saga.group_at.start
            covered = saga.covered_from(at + 1)
            return [line, Intent(covered, 1 if enters else self.state.attempt)] if covered else [line]

        status: Status = "running" if self.state.turn is None else "cleaning"
        return (await self._commit([], work, follows, status)).answer

    async def _commit(
        self,
        lines: Sequence[Line],
        work: Callable[[Any], T],
        follows: Callable[[T], Sequence[Line]],
        status: Status,
    ) -> Appended[T]:
        before = [*self._pending, *lines]
        working = _Work(work, follows, before, self.on_commit)
        self.writing = True
        try:
            appended = await self.log.append(before, working, then=lambda _: working.lines, status=status)
        except Fenced as fenced:
            self.broken = fenced
            raise
        except BaseException as failure:
            if failure is working.failure:
                raise  # the work itself failed, and nothing was written
            self.broken = CommitUnknown("a write of the journal has no known outcome")
            if isinstance(failure, Exception):
                raise self.broken from failure
            raise
        finally:
            self.writing = False
        if not appended.refused:
            self._pending.clear()
            self.cancel = appended.cancel if appended.cancel is not None else self.cancel
            for line in (*lines, *working.lines):
                self.state.add(line)
        return appended


class _Work(Generic[T]):
    """The work of one commit, with the lines that follow from it, and the failure that it raised last."""

    def __init__(
        self,
        work: Callable[[Any], T],
        follows: Callable[[T], Sequence[Line]],
        before: Sequence[Line],
        on_commit: Callable[[Any, Sequence[Line]], None] | None,
    ) -> None:
        self.lines: Sequence[Line] = ()
        self.failure: Exception | None = None
        self._work, self._follows, self._before, self._on_commit = work, follows, before, on_commit

    def __call__(self, tx: Any) -> T:
        """Do the work; the database may call this again when it repeats a transaction."""
        try:
            answer = self._work(tx)
            self.lines = self._follows(answer)
            if self._on_commit is not None:
                self._on_commit(tx, [*self._before, *self.lines])
            return answer
        except Exception as failure:
            self.failure = failure
            raise


def _nothing(_tx: Any) -> None:
    """The work of a commit that only writes lines."""


def _no_more(_answer: object) -> Sequence[Line]:
    return ()
