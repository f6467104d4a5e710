"""Writing the lines: what waits for the next commit, and what a commit carries."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from msgspec import Raw

from moorage.model.errors import Internal
from moorage.saga.journal import Appended, CommitUnknown, Fenced, Intent, Line, Log, Result, Status, Undone
from moorage.saga.state import ReplayedState
from moorage.saga.step import Run

T = TypeVar("T")


class JournalWriter:
    """Keeps the book and the journal in step."""

    def __init__(self, log: Log, book: ReplayedState) -> None:
        self.log = log
        self.book = book
        self.cancel = log.cancel
        """The row's `cancel` word, as last seen."""
        self.writing = False
        self.broken: Exception | None = None
        """Fenced or Torn, even if a step swallowed it."""
        self.heard: Callable[[Any, Sequence[Line]], None] | None = None
        """Told `(tx, lines)` in every commit, with the lines it writes: what is said to others of it is written with it."""
        self._pending: list[Line] = []

    def note(self, line: Line) -> None:
        """A line for the next commit."""
        self._pending.append(line)
        self.book.add(line)

    async def flush(self, status: Status) -> None:
        """Commit what is pending, if anything is."""
        if self._pending:
            await self.append([], status=status)

    async def append(
        self, lines: Sequence[Line], work: Callable[[Any], object] | None = None, *, status: Status = "running"
    ) -> None:
        """One commit: what is pending, and `lines`, beside the work."""
        if (await self._commit(lines, work or _nothing, _no_more, status)).refused:
            raise Internal("a commit of the story's own lines cannot be refused")

    async def commit(self, run: Run[Any, Any], work: Callable[[Any], T]) -> T:
        """For `Run.commit`."""
        saga, name, attempt = self.book.saga, run._step, run.attempt
        at = saga.at.get(name, -1)
        if at < 0 or (run.phase == "do" and self.book.is_done(name)):
            raise Internal(f"{name or 'nobody'} commits twice, or outside a step")

        def follows(answer: T) -> Sequence[Line]:
            if run.phase == "undo":
                return [Undone(name, attempt)]
            result = Result(name, attempt, Raw(saga.steps[at].encode(answer)))
            enters = saga.group is not None and at + 1 == saga.group_at.start
            covered = saga.covered_from(at + 1)
            return [result, Intent(covered, 1 if enters else self.book.attempt)] if covered else [result]

        status: Status = "running" if self.book.turn is None else "cleaning"
        return (await self._commit([], work, follows, status)).answer

    async def _commit(
        self,
        lines: Sequence[Line],
        work: Callable[[Any], T],
        follows: Callable[[T], Sequence[Line]],
        status: Status,
    ) -> Appended[T]:
        written: list[Line] = []
        said_no: list[Exception] = []

        def watched(tx: Any) -> T:
            try:
                answer = work(tx)
                written[:] = follows(answer)
                if self.heard is not None:
                    self.heard(tx, [*self._pending, *lines, *written])
                return answer
            except Exception as failure:
                said_no[:] = [failure]
                raise

        def followed(_: T) -> Sequence[Line]:
            return written

        self.writing = True
        try:
            appended = await self.log.append([*self._pending, *lines], watched, then=followed, status=status)
        except Fenced as fenced:
            self.broken = fenced
            raise
        except BaseException as failure:
            if said_no and failure is said_no[0]:
                raise  # the work said no, and nothing was written
            self.broken = CommitUnknown("a write of the journal has no known outcome")
            if isinstance(failure, Exception):
                raise self.broken from failure
            raise
        finally:
            self.writing = False
        if not appended.refused:
            self._pending.clear()
            self.cancel = appended.cancel if appended.cancel is not None else self.cancel
            for line in (*lines, *written):
                self.book.add(line)
        return appended


def _nothing(_tx: Any) -> None:
    """The work of a commit that only writes lines."""


def _no_more(_answer: object) -> Sequence[Line]:
    return ()
