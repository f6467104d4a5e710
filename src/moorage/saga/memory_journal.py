"""A journal in memory, for proofs: it can fail before a commit, or after the commit and before the reply."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn, Protocol, TypeVar, cast

from moorage.saga.journal import FIRST_EPOCH, Appended, Fenced, Line, Status, decode_lines, encode_lines

T = TypeVar("T")

TornWhen = Literal["before", "after"]


class Killed(BaseException):
    """Raised where a test lets the process die; no code of the process may catch it."""


class _Refused(Exception):
    def __init__(self, value: object) -> None:
        super().__init__("refused")
        self.value = value


class MemoryJournalTx:
    """A transaction for a world without a database."""

    def refuse(self, value: object) -> NoReturn:
        raise _Refused(value)


class Transact(Protocol):
    """Run a function in one transaction; what the function refuses (`tx.refuse(x)`) is answered, what it raises is raised."""

    def __call__(self, work: Callable[[Any], T], /) -> Awaitable[T]: ...


async def _on_nothing(work: Callable[[Any], T], /) -> T:
    try:
        return work(MemoryJournalTx())
    except _Refused as refused:
        return cast("T", refused.value)


@dataclass
class JournalRow:
    """The operation's row, which all its leases share."""

    epoch: int = FIRST_EPOCH
    cancel: str | None = None
    status: Status = "running"
    text: str = ""
    head: int = 0
    appends: int = 0


@dataclass
class _Done:
    answer: Any
    cancel: str | None
    head: int


@dataclass
class MemoryJournal:
    """One lease of a row in memory; `adopted()` is the next process's, and fences this one off."""

    lines: Sequence[Line] = ()
    """The lines of a new row: `first_lines`."""
    transact: Transact = _on_nothing
    tears_after: int | None = None
    """The process dies at the append after this many."""
    tears: TornWhen = "before"
    row: JournalRow = field(default_factory=JournalRow)

    def __post_init__(self) -> None:
        if self.lines:
            self.row.text = encode_lines(self.lines)
            self.row.head = len(self.lines)
        self.epoch = self.row.epoch
        self.cancel = self.row.cancel
        self.journal: Sequence[Line] = decode_lines(self.row.text)
        self._head = self.row.head

    def adopted(self) -> "MemoryJournal":
        """Return the lease of the next process."""
        self.row.epoch += 1
        return MemoryJournal(transact=self.transact, row=self.row)

    def written(self) -> list[Line]:
        """Return the present lines."""
        return decode_lines(self.row.text)

    async def cancel_reason(self) -> str | None:
        return self.row.cancel

    async def append(
        self,
        lines: Sequence[Line],
        work: Callable[[Any], T],
        *,
        then: Callable[[T], Sequence[Line]] | None = None,
        status: Status = "running",
    ) -> Appended[T]:
        """Append lines in one commit, together with `work`.

        Raises Killed where the test wants the process to die, and Fenced when another executor has taken over.
        """
        torn = self.tears_after is not None and self.row.appends >= self.tears_after
        if torn and self.tears == "before":
            raise Killed

        def together(tx: Any) -> _Done:
            answer = work(tx)
            more = [*lines, *(then(answer) if then else ())]
            if (self.row.epoch, self.row.head) != (self.epoch, self._head):
                raise Fenced
            return _Done((answer, more), self.row.cancel, self.row.head + len(more))

        done: Any = await self.transact(together)
        if not isinstance(done, _Done):
            return Appended(done, None, self._head, refused=True)
        answer, more = done.answer
        self.row.text += encode_lines(more)
        self.row.head = self._head = done.head
        self.row.status = status
        self.row.appends += 1
        if torn:
            raise Killed
        return Appended(answer, done.cancel, done.head)
