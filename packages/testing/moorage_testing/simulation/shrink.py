"""From a plan that fails to the shortest one that can be found: events are left out as long as it still fails the same way."""

import re
import time

import msgspec

from moorage_testing.simulation.plan import Event, SimulationPlan
from moorage_testing.simulation.run import SimulationOutcome, simulate

RUNS_MAX = 200
CPU_MAX_S = 240.0
_NAMES = re.compile(r"[0-9a-f]{8}-[0-9a-f-]+|[0-9a-f]{2}(:[0-9a-f]{2})+|\d+")


def kind_of(violation: str) -> str:
    """What is wrong, without names and numbers."""
    return _NAMES.sub("#", violation)[:60]


def shrunk(failed: SimulationOutcome, *, runs_max: int = RUNS_MAX, cpu_max_s: float = CPU_MAX_S) -> SimulationOutcome:
    """Delta debugging over the list of events, then the end of the plan brought forward; the shortest outcome that still fails."""
    search = _Search(failed, runs_max, time.process_time() + cpu_max_s)
    parts = 2
    while len(search.best.plan.events) > 1 and search.goes_on:
        events = search.best.plan.events
        size = max(1, len(events) // parts)
        for start in range(0, len(events), size):
            if search.fails(search.best.plan.but((*events[:start], *events[start + size :]))):
                parts = max(2, parts - 1)
                break
        else:
            if size == 1:
                break
            parts = min(len(events), parts * 2)
    search.shorten()
    return search.best


class _Search:
    def __init__(self, failed: SimulationOutcome, runs_max: int, until_s: float) -> None:
        self.best = failed
        self._kind = kind_of(failed.violations[0])
        self._left = runs_max
        self._until_s = until_s
        self._tried: set[tuple[Event, ...] | str] = set()

    @property
    def goes_on(self) -> bool:
        return self._left > 0 and time.process_time() < self._until_s

    def fails(self, plan: SimulationPlan) -> bool:
        """Whether it still fails in the same way; if so it is the best."""
        key = repr((plan.events, plan.span_s))
        if not self.goes_on or key in self._tried:
            return False
        self._tried.add(key)
        self._left -= 1
        outcome = simulate(plan)
        if any(kind_of(each) == self._kind for each in outcome.violations):
            self.best = outcome
            return True
        return False

    def shorten(self) -> None:
        """No longer than the last event, if that will do."""
        plan = self.best.plan
        if plan.events:
            last = plan.events[-1]
            ends_s = last.at_s + float(last.args.get("for_s", 0.0)) + 1.0
            if ends_s < plan.span_s:
                self.fails(msgspec.structs.replace(plan, span_s=round(ends_s, 3)))
