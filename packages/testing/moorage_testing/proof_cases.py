"""The ways in which a proof lets a saga go, and which cases of two of them are one and the same.

Tellings are determined: what happens follows from the faults that fire and from what is done to the executor.  So a case (a way of
breaking, at a point) of two plots is one case under two names when the faults of both would fire at the same of all the spots that
its executors came by.  A cancel that lands before the step that fails, for instance, takes the saga back before it gets there, as
it does where nothing fails; it would be tried once for each step behind it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from moorage.model.errors import Problem
from moorage_testing.fault_points import Onlooker, Spot, StepFault


@dataclass(frozen=True)
class Plot:
    """A way a telling may go: which faults it meets, and whether it comes to its good end."""

    name: str
    faults: Callable[[], Sequence[StepFault]]
    whole: bool
    told_on: bool | None = None
    """The same, when the next executor ends it; None: either (the fault may lie before what is durable already)."""

    def fires(self, passed: set[Spot]) -> "Fired":
        """Where, of these, and what: its faults fire as often as they are met."""
        return {spot: fault.problem for fault in self.faults() for spot in passed if fault.is_at(spot)}


Fired: TypeAlias = dict[Spot, Callable[[], Problem]]


@dataclass(frozen=True)
class Case:
    """One way of breaking a telling."""

    way: str
    at: int
    """The how manyth point."""
    plot: Plot
    well: bool | None
    """Whether it must end well; None: either."""


class Tried:
    """The cases that were tried."""

    def __init__(self) -> None:
        self._cases: dict[tuple[str, int], list[tuple[Case, set[Spot], Fired]]] = {}

    def add(self, case: Case, onlooker: Onlooker) -> None:
        """Its executors came by what the onlooker saw."""
        passed = onlooker.passed
        self._cases.setdefault((case.way, case.at), []).append((case, passed, case.plot.fires(passed)))

    def same(self, case: Case) -> Case | None:
        """One of another plot that was the same, and of which no less was asked."""
        for each, passed, fired in self._cases.get((case.way, case.at), ()):
            if case.well in {None, each.well} and case.plot.fires(passed) == fired:
                return each
        return None
