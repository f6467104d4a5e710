"""The journal of a saga: the kinds of lines, and the Protocol of whoever stores them.

Lines are evolvable: a field is added with a default, never renamed or re-typed (RULES §19).  They are written one JSON
object a line, so a store may append with `journal = journal || :more`, in the statement that is also the fence.
"""

import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct

from moorage.model.errors import HostFailed, Internal, Problem

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

FIRST_EPOCH = 1
"""The epoch an operation is begun with; each adoption adds one."""

PRIVATE_CHARS_MAX = 20_000
"""A complete record of a decision (16 KiB), and some text around it."""
TRACEBACK_CHARS_MAX = 4_000

BUG = "bug"
"""The code of the Internal problem that an unforeseen exception becomes."""

Status: TypeAlias = Literal["running", "cleaning", "stuck", "done", "unwound"]
Reason: TypeAlias = Literal["failed", "cancel"]


class Fenced(Exception):
    """Another process executes this saga now: stop, and change nothing.  Steps may raise it too, when a cell says so."""


class CommitUnknown(Exception):
    """Raised when the outcome of a write of the journal is unknown: read the journal again, and execute with `adopted=True`."""


class Stuck(Exception):
    """A step that must succeed did not within its patience; executing the saga again goes on from there."""

    def __init__(self, at: str, cause: BaseException) -> None:
        super().__init__(f"stuck at {at}: {cause}")
        self.at = at
        self.cause = cause


class Unwound(Exception):
    """The saga was unwound: everything is undone.  `reason` is "cancel" when somebody cancelled it."""

    def __init__(self, at: str, cause: Problem, reason: Reason = "failed") -> None:
        super().__init__(f"{at}: {cause}")
        self.at = at
        self.cause = cause
        self.reason: Reason = reason


class Slept(Exception):
    """The saga sleeps: nobody executes it until it is woken, which the `Sleep` of its step has seen to."""


class Cause(Struct, frozen=True, omit_defaults=True):
    """Why a step failed, in a form that can be stored."""

    step: str = ""
    attempt: int = 0
    kind: str = "Problem"
    code: str = "problem"
    public: str = ""
    private: str = ""
    left: Raw = Raw(b"null")
    """What the failed attempt leaves for the next one (`HostFailed.left`), as JSON."""
    without: tuple[str, ...] = ()
    """What the next attempts exclude; the host did not cause the failure, and the attempt does not count (`Problem.without`)."""

    @classmethod
    def of(cls, problem: Problem, step: str, attempt: int) -> "Cause":
        private = "\n".join(each for each in (problem.named, problem.private) if each)[-PRIVATE_CHARS_MAX:]
        left = Raw(problem.left) if isinstance(problem, HostFailed) and problem.left else Raw(b"null")
        return cls(step, attempt, type(problem).__name__, problem.code, problem.public, private, left, problem.without)

    def problem(self) -> Problem:
        """The problem again, of the same kind as far as this release knows it."""
        kinds = {kind.__name__: kind for kind in _kinds(Problem)}
        return kinds.get(self.kind, Problem)(self.public, private=self.private, code=self.code)


def _kinds(root: type[Problem]) -> Iterable[type[Problem]]:
    yield root
    for kind in root.__subclasses__():
        yield from _kinds(kind)


def as_problem(step: str, failure: Exception) -> Problem:
    if isinstance(failure, Problem):
        return failure
    private = "".join(traceback.format_exception(failure))[-TRACEBACK_CHARS_MAX:]
    return Internal(f"something unforeseen happened in {step}", private=private, code=BUG)


class Begun(Struct, frozen=True, omit_defaults=True):
    """A step that may have left something behind, and in which attempt."""

    step: str = ""
    attempt: int = 0


class Intent(Struct, frozen=True, omit_defaults=True, tag="intent"):
    """The effects of these steps may begin."""

    steps: tuple[str, ...] = ()
    attempt: int = 0
    trace: str = ""
    """Of the first line: the `traceparent` of the request that began the saga; empty: it is not traced."""


class StepResult(Struct, frozen=True, omit_defaults=True, tag="result"):
    """A step was done."""

    step: str = ""
    attempt: int = 0
    value: Raw = Raw(b"null")


class Failed(Struct, frozen=True, omit_defaults=True, tag="failed"):
    """An attempt on a host failed; the host-local steps of `open` are undone before the next one."""

    cause: Cause = Cause()
    open: tuple[Begun, ...] = ()


class Unwinding(Struct, frozen=True, omit_defaults=True, tag="turn"):
    """The saga unwinds: `open` is undone, newest first."""

    reason: Reason = "failed"
    cause: Cause = Cause()
    cancelled: str | None = None
    attempt: int = 0
    open: tuple[Begun, ...] = ()


class Undone(Struct, frozen=True, omit_defaults=True, tag="undone"):
    """A step was undone."""

    step: str = ""
    attempt: int = 0


class Waiting(Struct, frozen=True, omit_defaults=True, tag="waiting"):
    """A service is out, and the step waits for it; this is shown to people."""

    step: str = ""
    attempt: int = 0
    public: str = ""
    named: str = ""
    """The same for operators, with names; empty: it is the same."""
    asleep: Raw = Raw(b"null")
    """The saga sleeps, and for what, as JSON; null: it is being executed."""


class Stalled(Struct, frozen=True, omit_defaults=True, tag="stalled"):
    """The patience is over, and the saga can neither unwind nor end: an operator must act."""

    step: str = ""
    phase: str = "undo"
    cause: Cause = Cause()


class Ended(Struct, frozen=True, omit_defaults=True, tag="ended"):
    status: Literal["done", "unwound"] = "done"


Line: TypeAlias = Intent | StepResult | Failed | Unwinding | Undone | Waiting | Stalled | Ended

_decoder = msgspec.json.Decoder(Line)
_encoder = msgspec.json.Encoder()


def encode_lines(lines: Iterable[Line]) -> str:
    """Encode lines as JSON, each with a line feed at its end, so that texts can be appended."""
    return _encoder.encode_lines(list(lines)).decode()


def decode_lines(text: str | bytes) -> list[Line]:
    return _decoder.decode_lines(text)


@dataclass(frozen=True)
class Appended(Generic[T_co]):
    """What the store of the journal returns: the work's answer, the row's `cancel` column, and the number of lines.

    `refused`: the work took everything back with `tx.refuse(answer)`; no line was written.
    """

    answer: T_co
    cancel: str | None
    head: int
    refused: bool = False


class Log(Protocol):
    """The journal of one operation, leased in one epoch."""

    @property
    def epoch(self) -> int: ...

    @property
    def journal(self) -> Sequence[Line]:
        """Return the lines at the beginning of this lease."""
        ...

    @property
    def cancel(self) -> str | None:
        """The row's `cancel` column when this lease began."""
        ...

    async def append(
        self,
        lines: Sequence[Line],
        work: Callable[[Any], T],
        *,
        then: Callable[[T], Sequence[Line]] | None = None,
        status: Status = "running",
    ) -> Appended[T]:
        """One transaction: `work(tx)`, then the fencing UPDATE that writes `lines`, `then(answer)` and `status`.

        The UPDATE says `WHERE epoch=:mine AND head=:mine`; finding no row it takes everything back and Fenced is raised.
        It comes after the work because the work's answer is among the lines; either way both are there or neither.
        What the work raises is raised here, and nothing is written.
        """
        ...

    async def cancel_reason(self) -> str | None:
        """Read the row's present `cancel` column; only called after a hint."""
        ...
