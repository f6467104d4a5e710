"""A saga and a journal that report the point of an execution, and trigger faults there.

A *point* is a moment at which an executor may die, be cancelled, or be put to sleep: entering and leaving every do and undo,
before and after every commit.  Points are counted: a proof first counts them, and then triggers a fault at each.
"""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from typing_extensions import override

from moorage.model.errors import Problem
from moorage.saga import Appended, Killed, Line, Log, Run, Saga, Status, Step

T = TypeVar("T")

When: TypeAlias = Literal["before", "after"]
TriggerAction: TypeAlias = Literal["nothing", "kill", "cancel", "interrupt", "sleep"]
CANCEL_WORD = "deleted"


class ManualClock:
    """A clock whose time passes only when a task sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)

    def timeout(self, seconds: float) -> AbstractAsyncContextManager[object]:
        return nullcontext()


class StepMoment(NamedTuple):
    """A moment of an execution at which a step may fail."""

    step: str
    when: When
    phase: str
    attempt: int


@dataclasses.dataclass
class StepFault:
    """A step that fails: where, when, and how often."""

    step: str
    when: When
    problem: Callable[[], Problem]
    phase: str = "do"
    times: int | None = None
    """None: for ever."""
    attempts: int | None = None
    """Only in attempts up to this one."""
    fired: int = 0

    def spring(self, moment: StepMoment) -> None:
        if not self.is_at(moment) or (self.times is not None and self.fired >= self.times):
            return
        self.fired += 1
        raise self.problem()

    def is_at(self, moment: StepMoment) -> bool:
        """Whether it fires there; it does not if it fired often enough."""
        return (moment.step, moment.when, moment.phase) == (self.step, self.when, self.phase) and (
            self.attempts is None or moment.attempt <= self.attempts
        )


class PointRecorder(StepFault):
    """Fails nothing: it records the points that the execution passes."""

    def __init__(self) -> None:
        super().__init__("", "before", lambda: Problem("an onlooker fails nothing"))
        self.passed: set[StepMoment] = set()

    @override
    def spring(self, moment: StepMoment) -> None:
        self.passed.add(moment)


@dataclasses.dataclass
class FaultTrigger:
    """What happens at the n-th point."""

    at: int = -1
    springs: TriggerAction = "nothing"
    seen: list[tuple[str, bool]] = dataclasses.field(default_factory=list)
    """Each point passed, and whether a cancel may interrupt there."""
    triggered_at: str | None = None
    cancel: Callable[[], None] = lambda: None
    hint: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    asleep: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    awake: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)

    async def point(self, name: str, interruptible: bool = False) -> None:
        """Pass a point. Raises Killed when the trap is to kill here."""
        self.seen.append((name, interruptible))
        if len(self.seen) - 1 != self.at:
            return
        self.triggered_at = name
        if self.springs == "kill":
            raise Killed
        if self.springs == "cancel":
            self.cancel()
        if self.springs == "interrupt" and interruptible:
            self.cancel()
            self.hint.set()
            await asyncio.Event().wait()  # as a call to a service that does not answer
        if self.springs == "sleep":
            self.asleep.set()
            await self.awake.wait()


class SavingTrigger(FaultTrigger):
    """Interrupts nothing: at some of the points it saves the world."""

    def __init__(self, points: Collection[int], save: Callable[[str], Any]) -> None:
        super().__init__()
        self._points, self._save = points, save
        self.saved: dict[int, Any] = {}

    @override
    async def point(self, name: str, interruptible: bool = False) -> None:
        at = len(self.seen)
        await super().point(name, interruptible)
        if at in self._points:
            self.saved[at] = self._save(name)


def instrumented(
    saga: Saga[Any, Any], door: FaultTrigger, faults: Sequence[StepFault] = (), repeat: bool = False
) -> Saga[Any, Any]:
    """The same saga, with points, faults, and (`repeat`) every do and undo done twice."""
    deaf = saga.forward_only
    steps: list[Step[Any, Any, Any]] = []
    for each in saga.steps:
        deaf = deaf or each.point_of_no_return
        steps.append(_instrumented_step(each, door, faults, repeat, interruptible=not deaf))
    return saga.but(*steps)


def _instrumented_step(
    step: Step[Any, Any, Any], door: FaultTrigger, faults: Sequence[StepFault], repeat: bool, interruptible: bool
) -> Step[Any, Any, Any]:
    def around(act: Callable[[Run[Any, Any]], Awaitable[T]], twice: bool) -> Callable[[Run[Any, Any]], Awaitable[T]]:
        async def acts(run: Run[Any, Any]) -> T:
            may_stop = interruptible and run.phase == "do"
            await door.point(f"entering {run.phase} of {step.name}, attempt {run.attempt}", may_stop)
            for fault in faults:
                fault.spring(StepMoment(step.name, "before", run.phase, run.attempt))
            answer = await act(run)
            if twice:
                answer = await act(dataclasses.replace(run, unsure=True))
            for fault in faults:
                fault.spring(StepMoment(step.name, "after", run.phase, run.attempt))
            await door.point(f"leaving {run.phase} of {step.name}, attempt {run.attempt}", may_stop)
            return answer

        return acts

    undo = step.undo_with
    return step.but(
        do=around(step.do, repeat and not step.region),  # a region step is one transaction: it cannot happen twice
        undo=None if undo is None else around(undo, repeat),
    )


def is_commit(point: str) -> bool:
    """A point of `StagedLog`, and not one of a step."""
    return point.startswith(("before commit ", "after commit "))


class InstrumentedLog:
    """A journal with a point before and after each commit."""

    def __init__(self, log: Log, door: FaultTrigger) -> None:
        self.log = log
        self.door = door
        self.commits = 0
        self.status: Status = "running"

    @property
    def epoch(self) -> int:
        return self.log.epoch

    @property
    def journal(self) -> Sequence[Line]:
        return self.log.journal

    @property
    def cancel(self) -> str | None:
        return self.log.cancel

    async def cancel_reason(self) -> str | None:
        return await self.log.cancel_reason()

    async def append(
        self,
        lines: Sequence[Line],
        work: Callable[[Any], T],
        *,
        then: Callable[[T], Sequence[Line]] | None = None,
        status: Status = "running",
    ) -> Appended[T]:
        await self.door.point(f"before commit {self.commits + 1}")
        appended = await self.log.append(lines, work, then=then, status=status)
        if not appended.refused:
            self.commits += 1
            self.status = status
        await self.door.point(f"after commit {self.commits}, before its reply")
        return appended
