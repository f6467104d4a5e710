"""The scenarios in which a proof executes a saga, and which cases of two scenarios are equal.

Executions are deterministic: what happens follows from the faults that fire and from what is done to the executor.  So a case (a
kind of interruption, at a point) of two scenarios is the same when the faults of both would fire at the same moments that its
executors passed.  A cancel before the step that fails, for instance, undoes the saga before that step, as it does where nothing
fails; without this comparison it would be tried once for each later step.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from moorage.model.errors import Problem
from moorage_testing.fault_points import PointRecorder, StepFault, StepMoment


@dataclass(frozen=True)
class Scenario:
    """One course of an execution: which faults it has, and whether it succeeds."""

    name: str
    faults: Callable[[], Sequence[StepFault]]
    whole: bool
    succeeds: bool | None = None
    """The same, when the next executor ends it; None: either (the fault may lie before what is durable already)."""

    def fires(self, passed: set[StepMoment]) -> "Fired":
        """Where, of these, and what: its faults fire as often as they are met."""
        return {moment: fault.problem for fault in self.faults() for moment in passed if fault.is_at(moment)}


Fired: TypeAlias = dict[StepMoment, Callable[[], Problem]]


@dataclass(frozen=True)
class Case:
    """One way of breaking an execution."""

    way: str
    at: int
    """The how manyth point."""
    scenario: Scenario
    well: bool | None
    """Whether it must end well; None: either."""


class Tried:
    """The cases that were tried."""

    def __init__(self) -> None:
        self._cases: dict[tuple[str, int], list[tuple[Case, set[StepMoment], Fired]]] = {}

    def add(self, case: Case, recorder: PointRecorder) -> None:
        """Its executors passed the points that the recorder saw."""
        passed = recorder.passed
        self._cases.setdefault((case.way, case.at), []).append((case, passed, case.scenario.fires(passed)))

    def same(self, case: Case) -> Case | None:
        """An equal case of another scenario, with the same or a stricter expectation."""
        for each, passed, fired in self._cases.get((case.way, case.at), ()):
            if case.well in {None, each.well} and case.scenario.fires(passed) == fired:
                return each
        return None
