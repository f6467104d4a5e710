"""Proving a saga by breaking it (RULES §15): every step fails, before and after its work; every do and undo runs twice;
the executor dies, is cancelled, or is overtaken by another at every point; then the whole world is compared.

    proof = await prove(BOOT, asked, new_world)

A proof has parts (`PARTS`), which need nothing of one another, so that a suite can spread them over its workers:
`await prove(BOOT, asked, new_world, part)`.  Together they are the whole of it.

`new_world` makes a fresh world each time, with what the saga may touch (`context`) and what it holds (`held()`).  A world
may also have `transact` (the region's transactions; see `Paper`), `on_commit` (the notifications of each
commit) and `async settle()` (what is under way arrives, then one round of the reconcilers).  What `held()` counts must be
empty again when the saga is undone, and complete when it was executed: an ERROR row is not held, a port is.  Each fault must
fire, or the proof fails.

A `new_world` with `save()` and `restore(saved)` spares a proof what comes before a death: of one execution is kept what is
durable at each point, and each next executor begins with that.
"""

import asyncio
import inspect
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, Generic, TypeAlias, TypeVar, cast

from msgspec import Struct

from moorage.model.errors import Problem
from moorage.model.ids import OperationId
from moorage.saga import Saga, Step
from moorage_testing.case_run import CaseRun, CaseWorld, ProofOutcome, SavedRun
from moorage_testing.fault_points import (
    FaultTrigger,
    SavingTrigger,
    StepFault,
    TriggerAction,
    When,
    is_commit,
)
from moorage_testing.planted_problems import hiccup, lost_reply, outage, refusal, without
from moorage_testing.proof_cases import Case, Scenario, Tried
from moorage_testing.proof_parts import PARTS, ProofPart

InputT = TypeVar("InputT", bound=Struct)
ContextT = TypeVar("ContextT")

PROVED_OPERATION = OperationId("proved-operation")
WAIT_S_MAX = 10.0
KILLED, KILLED_THEN_CANCELLED = "killed", "killed, then cancelled"
WHEN: tuple[When, ...] = ("before", "after")


NewWorld: TypeAlias = Callable[[], CaseWorld[ContextT] | Awaitable[CaseWorld[ContextT]]]


class ProofFailed(AssertionError):
    """The saga is broken, and this is how to see it."""


@dataclass
class Proof:
    """How much was tried."""

    saga: str
    cases: Counter[str] = field(default_factory=Counter)
    spared: int = 0
    """Cases that are another one under a second name."""
    commits: int = 0
    """Of one successful execution, with the commit that began it."""

    @property
    def total(self) -> int:
        return sum(self.cases.values())


async def prove(
    saga: Saga[InputT, ContextT],
    asked: InputT,
    new_world: NewWorld[ContextT],
    *parts: ProofPart,
    operation: OperationId = PROVED_OPERATION,
) -> Proof:
    """Break the saga in every way, or in those of the parts that are named.

    Raises ProofFailed when a case leaves something behind or loses something, and when a part had nothing to try.
    """
    prover = _Prover(saga, asked, new_world, operation)
    await prover.measure()
    for part in parts or PARTS:
        before = prover.proof.total
        await prover.try_part(part)
        if prover.proof.total == before:
            raise ProofFailed(f"{saga.name}: nothing was tried of {part.name}")
    return prover.proof


_Point: TypeAlias = tuple[Scenario, int, bool]
"""The scenario, the number of the point, and whether a cancel may interrupt there."""


class _Prover(Generic[InputT, ContextT]):
    def __init__(
        self, saga: Saga[InputT, ContextT], asked: InputT, new_world: NewWorld[ContextT], operation: OperationId
    ) -> None:
        self.saga, self.asked, self.new_world, self.operation = saga, asked, new_world, operation
        self.proof = Proof(saga.name)
        self.empty: Any = None
        self.whole: Any = None
        self.tried = Tried()
        no_return = [at for at, each in enumerate(saga.steps) if each.point_of_no_return]
        self.no_return_at = -1 if saga.forward_only else no_return[0] if no_return else len(saga.steps)

    # --------------------------------------------------------------------------------------------------- the cases

    async def measure(self) -> None:
        """One execution without a fault; it shows what complete and empty mean."""
        act = await self.act()
        self.empty = await act.held()
        outcome = await act.execute()
        if outcome != ProofOutcome():
            raise ProofFailed(f"{self.saga.name}: executed without a fault, it ended in {outcome}")
        self.whole = await act.held()
        assert act.log is not None
        self.proof.commits = 1 + act.log.commits
        self.proof.cases["plain"] += 1

    async def try_part(self, part: ProofPart) -> None:
        match part.way:
            case "failing":
                await self.failing()
            case "repeating":
                await self.repeating()
            case "dying at commits":
                await self.dying(await self._points(part, at_commits=True))
            case "dying":
                await self.dying(await self._points(part, at_commits=False))
            case "cancelling":
                await self.cancelling(await self._points(part))
            case "overtaken":
                await self.overtaken(await self._points(part))

    async def failing(self) -> None:
        """Each step fails: permanently, once, and because a service is down."""
        for at, step in enumerate(self.saga.steps):
            await self._fails_at(at, step, "before", committed=False)
            await self._fails_at(at, step, "after", committed=step.region)

    async def _fails_at(self, at: int, step: Step[Any, Any, Any], when: When, committed: bool) -> None:
        """`committed`: the step's work and result are in the region already, so an outage after it is no matter."""
        await self._fails(StepFault(step.name, when, lost_reply, times=1), whole=True)
        if at < self.no_return_at:
            await self._fails(StepFault(step.name, when, refusal), whole=False)
            await self._fails(StepFault(step.name, when, outage), whole=committed)
        elif at == self.no_return_at and when == "before":
            await self._fails(StepFault(step.name, when, refusal), whole=False)
        if self._elsewhere(at):
            await self._fails(StepFault(step.name, when, self._moving, attempts=1), whole=True)
            await self._fails(StepFault(step.name, when, outage, attempts=1), whole=step.host_local or committed)
        if at > self.no_return_at:
            await self._fails(StepFault(step.name, when, refusal, times=2), whole=True)
        if at >= self.no_return_at and not committed:
            await self._sticks(StepFault(step.name, when, outage))

    async def repeating(self) -> None:
        """Every do and undo twice, and every undo failing once."""
        never_undone = {
            each.name for each in self.saga.steps[: max(self.no_return_at, 0)] if each.undo_with is not None
        }
        for scenario in self.scenarios():
            await self._run_scenario(scenario, "repeated", repeat=True)
            for step in self.saga.steps if not scenario.whole else ():
                for when in WHEN if step.undo_with is not None else ():
                    flaw = StepFault(step.name, when, hiccup, phase="undo", times=1)
                    await self._run_scenario(scenario, f"undo of {step.name} failing once {when} its work", flaw=flaw)
                    never_undone -= {step.name} if flaw.fired else set()
        if never_undone:
            raise ProofFailed(f"{self.saga.name}: {', '.join(sorted(never_undone))} was never undone")

    async def dying(self, points: Sequence[_Point]) -> None:
        """The executor dies at every point; the next one brings the saga to the same end."""
        for scenario, of_scenario in groupby(points, key=itemgetter(0)):
            cases: list[Case] = []
            for _, at, _ in of_scenario:
                for way, well in ((KILLED, scenario.succeeds), (KILLED_THEN_CANCELLED, None)):
                    if self._is_new(case := Case(way, at, scenario, well)):
                        cases.append(case)
            saved = await self._saved(scenario, {case.at for case in cases})
            for case in cases:
                act, where = await self._died(case, saved)
                if cancelled := case.way == KILLED_THEN_CANCELLED:
                    act.cancel()
                act.adopt()
                outcome = await act.execute()
                label = f"{scenario.name}, killed {where}, {'cancelled, ' if cancelled else ''}executed by the next"
                await self._judge(act, outcome, label, case.well)
                self._was_tried(case, act)

    async def _saved(self, scenario: Scenario, points: set[int]) -> dict[int, SavedRun]:
        """What is durable at each of these points of one execution; empty where the world cannot be saved."""
        save = getattr(self.new_world, "save", None)
        if save is None or not points:
            return {}
        act = await self.act(scenario.faults())
        trigger = SavingTrigger(points, lambda point: act.saved(save(), point))
        await act.execute(trigger)
        return trigger.saved

    async def _died(self, case: Case, saved: dict[int, SavedRun]) -> tuple[CaseRun[ContextT], str | None]:
        """A case whose executor has died: its world is as it was then, or it is killed there."""
        scenario = case.scenario
        if saved:
            then = saved[case.at]
            world = cast("Any", self.new_world).restore(then.world)
            act = CaseRun[ContextT](self.saga, self.operation, self.asked, world, scenario.faults(), repeat=False)
            act.go_on_from(then)
            return act, then.point
        act, trigger = await self.act(scenario.faults()), FaultTrigger(case.at, "kill")
        died = await act.execute(trigger)
        if not died.killed:
            raise ProofFailed(f"{scenario.name}: meant to die at point {case.at}, but it ended in {died}")
        return act, trigger.triggered_at

    async def cancelling(self, points: Sequence[_Point]) -> None:
        """A cancel lands at every point: found at the next commit, or at once in a do that waits for ever."""
        actions: tuple[TriggerAction, ...] = ("cancel", "interrupt")
        for scenario, at, may_stop in points:
            for way in actions if may_stop else actions[:1]:
                case = Case(way, at, scenario, None)
                if not self._is_new(case):
                    continue
                act, trigger = await self.act(scenario.faults()), FaultTrigger(at, way)
                outcome = await asyncio.wait_for(act.execute(trigger), WAIT_S_MAX)
                label = f"{scenario.name}, {way} {trigger.triggered_at}"
                if trigger.triggered_at is None:
                    raise ProofFailed(f"{label}: point {at} was not reached")
                if way == "interrupt" and outcome.unwound is None:
                    raise ProofFailed(f"{label}: a waiting step was to be interrupted, and was not")
                await self._judge(act, outcome, label, None)
                self._was_tried(case, act)

    async def overtaken(self, points: Sequence[_Point]) -> None:
        """At every point an executor is suspended, another adopts and ends the saga, the first resumes: it changes nothing."""
        for scenario, at, _ in points:
            for cancelled in (False, True):
                well = None if cancelled else scenario.succeeds
                case = Case("overtaken, cancelled" if cancelled else "overtaken", at, scenario, well)
                if self._is_new(case):
                    await self._overtakes(case, cancelled)

    # ------------------------------------------------------------------------------------------------ how they are tried

    async def act(self, faults: Sequence[StepFault] = (), repeat: bool = False) -> CaseRun[ContextT]:
        made = self.new_world()
        world: Any = await made if inspect.isawaitable(made) else made
        return CaseRun(self.saga, self.operation, self.asked, world, faults, repeat)

    def _is_new(self, case: Case) -> bool:
        if self.tried.same(case) is not None:
            self.proof.spared += 1
            return False
        return True

    def _was_tried(self, case: Case, act: CaseRun[ContextT]) -> None:
        self.proof.cases[case.way] += 1
        self.tried.add(case, act.recorder)

    def _elsewhere(self, at: int) -> bool:
        return at in self.saga.group_at and at != self.saga.group_at.start

    @property
    def _moving(self) -> Callable[[], Problem]:
        """What another attempt is made after: a refusal, or where there is one attempt, one that says what to go without."""
        return without if self.saga.group is not None and self.saga.group.max_attempts == 1 else refusal

    def scenarios(self) -> Iterator[Scenario]:
        """Forward; the second attempt; and the undo from every step at which the saga can still unwind."""
        yield Scenario("executed", tuple, whole=True, succeeds=True)
        for at, step in enumerate(self.saga.steps):
            if self._elsewhere(at):
                once = _fault(step.name, "after", attempts=1, problem=self._moving)
                yield Scenario(f"{step.name} failing once", once, whole=True, succeeds=True)
            if at < self.no_return_at:
                succeeds = None if step.region else False
                yield Scenario(f"{step.name} failing", _fault(step.name, "after"), whole=False, succeeds=succeeds)
            elif at == self.no_return_at:
                yield Scenario(f"{step.name} failing", _fault(step.name, "before"), whole=False, succeeds=False)

    async def _points(self, part: ProofPart, at_commits: bool | None = None) -> list[_Point]:
        """Every point of every scenario, at commits or elsewhere or both; of them the part's share."""
        points: list[_Point] = []
        for scenario in self.scenarios():
            if not re.fullmatch(part.scenarios, scenario.name):
                continue
            trigger, act = FaultTrigger(), await self.act(scenario.faults())
            await self._judge(act, await act.execute(trigger), scenario.name, scenario.whole)
            points += [
                (scenario, at, may_stop)
                for at, (name, may_stop) in enumerate(trigger.seen)
                if (at_commits is None or is_commit(name) is at_commits) and re.fullmatch(part.points, name)
            ]
        every = sorted({at for _, at, _ in points})
        mine = set(
            every[part.share :: part.of]
        )  # the same points in all scenarios, so that equal cases of two scenarios are detected
        return [each for each in points if each[1] in mine]

    async def _fails(self, fault: StepFault, whole: bool) -> None:
        act = await self.act([fault])
        outcome = await act.execute()
        label = f"{fault.step} failing {fault.when} its work ({fault.problem.__name__})"
        self._fired(fault, label)
        await self._judge(act, outcome, label, whole)
        if not whole and (outcome.unwound is None or outcome.unwound.at != fault.step):
            raise ProofFailed(f"{label}: the journal says that {outcome.unwound and outcome.unwound.at} failed")
        self.proof.cases["failing"] += 1

    async def _sticks(self, fault: StepFault) -> None:
        """Past the point of no return an outage ends in a saga that is stuck, and goes on when it is over."""
        act = await self.act([fault])
        outcome = await act.execute()
        label = f"{fault.step}, past the point of no return, failing {fault.when} its work"
        self._fired(fault, label)
        if outcome.stuck is None:
            raise ProofFailed(f"{label}: should be stuck, and ended in {outcome}")
        act.adopt()
        await self._judge(act, await act.execute(faults=False), label, whole=True)
        self.proof.cases["stuck"] += 1

    async def _run_scenario(
        self, scenario: Scenario, how: str, repeat: bool = False, flaw: StepFault | None = None
    ) -> None:
        faults = list(scenario.faults())
        act = await self.act([*faults, *([flaw] if flaw else [])], repeat)
        outcome = await act.execute()
        for fault in faults:
            self._fired(fault, scenario.name)
        await self._judge(act, outcome, f"{scenario.name}, {how}", scenario.whole)
        self.proof.cases["repeated" if flaw is None else "undo failing"] += 1

    async def _overtakes(self, case: Case, cancelled: bool) -> None:
        scenario, at = case.scenario, case.at
        act, trigger = await self.act(scenario.faults()), FaultTrigger(at, "sleep")
        old = asyncio.create_task(act.execute(trigger))
        asleep = asyncio.create_task(trigger.asleep.wait())
        await asyncio.wait({old, asleep}, timeout=WAIT_S_MAX, return_when=asyncio.FIRST_COMPLETED)
        if not trigger.asleep.is_set():
            raise ProofFailed(f"{scenario.name}: meant to fall asleep at point {at}, and did not")
        if cancelled:
            act.cancel()
        was_over = act.lease.row.status in {"done", "unwound"}
        act.adopt()
        label = f"{scenario.name}, asleep {trigger.triggered_at}, {'cancelled, ' if cancelled else ''}overtaken"
        before = await self._judge(act, await act.execute(), label, case.well)
        trigger.awake.set()
        outcome = await asyncio.wait_for(old, WAIT_S_MAX)
        if not outcome.fenced and not was_over:
            raise ProofFailed(f"{label}, woken: it should be fenced, and ended in {outcome}")
        if (after := await act.held()) != before:
            raise ProofFailed(f"{label}, woken: the world was {before}, and is {after}")
        self._was_tried(case, act)

    def _fired(self, fault: StepFault, label: str) -> None:
        if not fault.fired:
            raise ProofFailed(f"{label}: the fault never fired")

    async def _judge(self, act: CaseRun[ContextT], outcome: ProofOutcome, label: str, whole: bool | None) -> object:
        """Complete, or empty; `None`: whichever the row of the saga says. Returns what is held."""
        if outcome.killed or outcome.fenced or outcome.stuck:
            raise ProofFailed(f"{label}: it neither ended nor unwound: {outcome}")
        succeeded = outcome.unwound is None
        if whole is not None and succeeded != whole:
            raise ProofFailed(f"{label}: should {'end well' if whole else 'be taken back'}, and ended in {outcome}")
        status = act.lease.row.status
        if status != ("done" if succeeded else "unwound"):
            raise ProofFailed(f"{label}: its row says {status}")
        held, meant = await act.held(), self.whole if succeeded else self.empty
        if held != meant:
            raise ProofFailed(f"{label}: holds {held}, and should hold {meant}")
        return held


def _fault(
    step: str, when: When, attempts: int | None = None, problem: Callable[[], Problem] = refusal
) -> Callable[[], Sequence[StepFault]]:
    return lambda: (StepFault(step, when, problem, attempts=attempts),)
