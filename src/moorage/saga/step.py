"""A step: a do, and the undo that takes it back.

The rules of a step (RULES §2, §3, §8 to §12 say them exactly):

1. **Do may run twice.**  When `run.unsure` is set, read the state before you act, or use a call that is safe to repeat.
2. **Undo may run twice, and though do never ran or never finished.**  Absent is success.  It reads the saga's *input* and
   what *earlier* steps left, never its own result.  A result that no commit carried is lost when the process dies: an undo
   reads with `run.get(step)`, or only what a region step wrote (that result is in the commit of its work).
3. **Key by what this saga creates.**
4. **Undo outdates its do.**  A request that timed out may still arrive: every command carries a fencing token or a revision.
5. **One effect per step.**  If its name needs an *and*, it is two steps.
6. **Bounded.**  `Unavailable` is tried again within `patience_s`; anything else unwinds the saga.  So does `HostUnanswered`, but not at
   a point of no return, which waits for the host (RULES §24); an undo that a silent host cannot obey is owed (§25).
7. **A shutdown is not a failure.**  A process that is shut down leaves the saga where it is.
8. **Some sagas do not unwind.**  After `point_of_no_return` a saga only goes forward.
9. **A region step** (`region=True`) changes the region's database only, through `run.commit`, once: its work, its result,
   the results before it and the next intent are one transaction.
10. **What was done while the request was answered** (an image made, a service that waits for an answer) is undone by the first
   step: `of_request=True`.  It is open from the start, and undone also when the saga is cancelled before the step begins.
11. **A do that can go on only after an event** raises `Sleep`: nobody executes the saga until it is woken, and then the do runs again.
   It first gives back what is not to be held meanwhile, in ways that are safe twice.
"""

import copy
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypedDict, TypeVar, Unpack, get_type_hints, overload

import msgspec

from moorage.model.errors import Internal
from moorage.model.ids import OperationId
from moorage.saga.journal import Cause

InputT = TypeVar("InputT")
ContextT = TypeVar("ContextT")
ResultT = TypeVar("ResultT")
T = TypeVar("T")
Input_co = TypeVar("Input_co", covariant=True)
Context_co = TypeVar("Context_co", covariant=True)
Input_contra = TypeVar("Input_contra", contravariant=True)
Context_contra = TypeVar("Context_contra", contravariant=True)

Phase: TypeAlias = Literal["do", "undo"]
PATIENCE_S = 300.0
ATTEMPTS_MAX = 3


class ResultReader(Protocol):
    """The part of the executor that a Run needs."""

    def result_of(self, step: "Step[Any, Any, Any]", view: int) -> tuple[bool, Any]: ...


class Writer(Protocol):
    """The part of the journal writer that a Run needs."""

    async def commit(
        self, run: "Run[Any, Any]", work: Callable[[Any], T], result: Callable[[T], object] | None = None
    ) -> T: ...


@dataclass(eq=False)
class Run(Generic[Input_co, Context_co]):
    """A step's view of its saga."""

    input: Input_co
    context: Context_co
    operation: OperationId
    epoch: int
    attempt: int
    """0 outside `on_some_host`; inside it 1, 2, …"""
    tried: tuple[str, ...]
    """The hosts of the earlier attempts, from the first step's results."""
    blamed: tuple[str, ...]
    """Those hosts that may have caused the failure; the others may be tried again."""
    causes: tuple[Cause, ...]
    """How the earlier attempts ended."""
    causes_since_sleep: tuple[Cause, ...]
    """Those of them that ended since the saga slept last: what was exhausted before may not be now."""
    unsure: bool
    """This step may have been done already, by a process that died or by a try without an answer: read the state first."""
    cancelled: str | None
    turned: Cause | None
    """Why the saga is unwinding; None: it is not."""
    phase: Phase
    past: bool
    """The point of no return lies behind for certain: what fails is tried again until it is done."""
    line: int
    """A number that grows from step to step, and is the same whenever the same step of the same attempt is done again."""
    cache: dict[str, Any]
    """What this executor's steps keep for later ones to spare them a read; lost with the process, and then it is read."""
    _step: str
    _view: int
    _executor: ResultReader
    _journal_writer: Writer

    def __getitem__(self, step: "Step[Any, Any, ResultT]") -> ResultT:
        """The result of an earlier step, in this attempt.  Raises Internal when there is none."""
        if step.name == self._step:
            raise Internal(f"{step.name} asks for its own result, which a step must not rely on")
        has_result, result = self._executor.result_of(step, self._view)
        if not has_result:
            raise Internal(f"{self._step} asks for the result of {step.name}, and there is none")
        return result  # type: ignore[no-any-return]  # decoded by the step's own return annotation

    def get(self, step: "Step[Any, Any, ResultT]") -> ResultT | None:
        """Return a step's result; None if the step was not done, if its result was lost with its process, or if only
        another version of the saga has the step: for undos, and for steps that versions share.

        The undo of a region step may ask for that step's own result, because the commit that did the work wrote it.
        Raises Internal when a step asks for its own result in any other case.
        """
        if step.name == self._step and not (step.region and self.phase == "undo"):
            raise Internal(f"{step.name} asks for its own result, which a step must not rely on")
        has_result, result = self._executor.result_of(step, self._view)
        return result if has_result else None

    def earlier(self, step: "Step[Any, Any, ResultT]") -> ResultT | None:
        """The result of a region step of `on_some_host`, from the last attempt before this one that has a result of it."""
        for attempt in range(self.attempt - 1, 0, -1):
            has_result, result = self._executor.result_of(step, attempt)
            if has_result:
                return result  # type: ignore[no-any-return]  # decoded by the step's own return annotation
        return None

    async def commit(self, work: Callable[[Any], T], result: Callable[[T], object] | None = None) -> T:
        """Execute one transaction: `work(tx)`, all lines not yet written, this step's result, the next intent.

        The step's result is what `work` returns, or what `result` takes of it.  Returns what `work` returns.
        When the work refuses (`tx.refuse(x)`) nothing is written and `x` is returned: try the next candidate.
        Raises Fenced when another conductor executes the saga now.
        """
        return await self._journal_writer.commit(self, work, result)


def no_result(_answer: object) -> None:
    """For `Run.commit`: the work returns something, and the step has no result."""


Do: TypeAlias = Callable[[Run[InputT, ContextT]], Awaitable[ResultT]]
Undo: TypeAlias = Callable[[Run[InputT, ContextT]], Awaitable[None]]
HasPassed: TypeAlias = Callable[[Run[InputT, ContextT]], Awaitable[bool]]


class StepOptions(TypedDict, total=False):
    """Options of a step."""

    name: str
    """Its name in journals, which never changes; without it, the name of its do."""
    patience_s: float
    """How long a do that fails with `Unavailable` is tried again."""
    needs: "tuple[Step[Any, Any, Any], ...]"
    """The steps whose results it reads; they must come before it."""
    moves: bool
    """Its next do replaces what an earlier attempt did; it is undone only in the final unwinding."""
    host_local: bool
    """It is undone before the next host is tried."""
    no_undo: str
    """Why it needs no undo."""
    point_of_no_return: bool
    region: bool
    """It changes the region's database only, in one commit."""
    of_request: bool
    """It was done while the request was answered."""


class Step(Generic[Input_contra, Context_contra, ResultT]):
    """Made by `@step`."""

    def __init__(
        self, do: Callable[[Run[Input_contra, Context_contra]], Awaitable[ResultT]], **options: Unpack[StepOptions]
    ) -> None:
        if unknown := options.keys() - StepOptions.__annotations__.keys():
            raise TypeError(f"{do.__name__}: a step has no option {', '.join(sorted(unknown))}")
        self.do = do
        self.name: str = options.get("name", do.__name__)
        self.__doc__ = do.__doc__
        self.patience_s = options.get("patience_s", PATIENCE_S)
        self.needs = tuple(each.name for each in options.get("needs", ()))
        self.moves = options.get("moves", False)
        self.host_local = options.get("host_local", False)
        self.no_undo = options.get("no_undo")
        self.point_of_no_return = options.get("point_of_no_return", False)
        self.region = options.get("region", False)
        self.of_request = options.get("of_request", False)
        self.undo_with: Undo[Any, Any] | None = None
        self.passed_when: HasPassed[Any, Any] | None = None
        self._decoder: msgspec.json.Decoder[ResultT] | None = None

    def undo(self, undo: Undo[InputT, ContextT]) -> Undo[InputT, ContextT]:
        """Register the undo; its name should say what it does (`release_host`, never `undo_claim`)."""
        self.undo_with = undo
        return undo

    def passed(self, passed: HasPassed[InputT, ContextT]) -> HasPassed[InputT, ContextT]:
        """For a point of no return: has it been passed?  Called by a process that adopts the saga; it reads results of region steps only."""
        self.passed_when = passed
        return passed

    def encode(self, result: ResultT) -> bytes:
        return msgspec.json.encode(result)

    def decode(self, value: bytes | msgspec.Raw) -> ResultT:
        return self._decodes().decode(value)

    def _decodes(self) -> msgspec.json.Decoder[ResultT]:
        if self._decoder is None:
            self._decoder = msgspec.json.Decoder(get_type_hints(self.do)["return"])
        return self._decoder

    def but(
        self,
        do: Callable[[Run[Any, Any]], Awaitable[Any]] | None = None,
        undo: Undo[Any, Any] | None = None,
    ) -> "Step[Input_contra, Context_contra, ResultT]":
        """The same step with another do or undo, under the same name: for the proof."""
        changed = copy.copy(self)
        if do is not None:
            changed._decoder, changed.do = self._decodes(), do
        if undo is not None:
            changed.undo_with = undo
        return changed


class RetryGroup(Generic[Input_contra, Context_contra]):
    """Steps that are tried together on one host, and if that fails on the next; made by `on_some_host`."""

    def __init__(
        self, steps: tuple[Step[Input_contra, Context_contra, Any], ...], max_attempts: int, host: Callable[[Any], str]
    ) -> None:
        self.steps = steps
        self.max_attempts = max_attempts
        self.host = host


def _itself(result: Any) -> str:
    return str(result)


def on_some_host(
    first: Step[InputT, ContextT, Any],
    *rest: Step[InputT, ContextT, Any],
    max_attempts: int = ATTEMPTS_MAX,
    host: Callable[[Any], str] = _itself,
) -> RetryGroup[InputT, ContextT]:
    """`first` chooses a host; when one of `rest` fails, what is `host_local` is undone and `first` chooses again.

    `host` reads the host's id off the first step's result, for `run.tried`.
    """
    return RetryGroup((first, *rest), max_attempts, host)


@overload
def step(do: Callable[[Run[InputT, ContextT]], Awaitable[ResultT]], /) -> Step[InputT, ContextT, ResultT]: ...


@overload
def step(
    **options: Unpack[StepOptions],
) -> Callable[[Callable[[Run[InputT, ContextT]], Awaitable[ResultT]]], Step[InputT, ContextT, ResultT]]: ...


def step(do: Any = None, /, **options: Any) -> Any:
    """Make a Step of an async function; bare, or with what is special about it."""
    if do is not None:
        return Step(do)
    return lambda do: Step(do, **options)
