"""The state of a saga, replayed from its journal: results, what may have been left behind, and how the attempts ended.

Every line passes through `ReplayedState.add`, whether it is read back or written.  So a process that adopts a saga has the
state of the process before it, with one exception: a step that an intent covers and that has no result may have been begun
(`assume_begun`), while the process that wrote the intent knows.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Raw

from moorage.saga.definition import Saga
from moorage.saga.journal import Begun, Cause, Ended, Failed, Intent, Line, StepResult, Undone, Unwinding, Waiting


class ReplayedState:
    """The state of one execution."""

    def __init__(self, saga: Saga[Any, Any], lines: Sequence[Line]) -> None:
        self.saga = saga
        self.attempt = 0
        self.over = False
        """The current attempt failed."""
        self.results: dict[tuple[str, int], Raw] = {}
        self.covered: dict[str, int] = {}
        self.open: dict[str, int] = {each.name: 0 for each in saga.steps if each.of_request}
        """Steps that may have left something, each with the attempt in which it was last begun."""
        self.causes: list[Cause] = []
        self.causes_before_sleep = 0
        """So many of them are older than the last sleep: what was exhausted then may not be now."""
        self.turn: Unwinding | None = None
        self.ended: Ended | None = None
        for line in lines:
            self.add(line)

    def add(self, line: Line) -> None:
        match line:
            case Intent():
                self._advance(line.attempt)
                self.covered.update({name: self.attempt_of(name) for name in line.steps})
            case StepResult():
                self._advance(line.attempt)
                self.results[line.step, line.attempt] = line.value
                self.open[line.step] = line.attempt
            case Failed():
                self.causes.append(line.cause)
                self.over, self.open, self.covered = True, _open(line.open), {}
            case Unwinding():
                self.turn, self.open, self.covered, self.attempt = line, _open(line.open), {}, line.attempt
            case Undone():
                self.open.pop(line.step, None)
            case Ended():
                self.ended = line
            case Waiting() if bytes(line.asleep) != b"null":
                self.causes_before_sleep = len(self.causes)
            case _:
                pass  # Waiting and Stalled are for people

    def _advance(self, attempt: int) -> None:
        if attempt > self.attempt:
            self.attempt, self.over = attempt, False

    def assume_begun(self) -> set[str]:
        """For an adopter: what an intent covers and that has no result may have been begun; the names of those steps."""
        unsure = {name for name, attempt in self.covered.items() if (name, attempt) not in self.results}
        self.open.update({name: self.covered[name] for name in unsure})
        return unsure

    def attempt_of(self, step: str) -> int:
        return self.attempt if self.saga.in_group(step) else 0

    def is_done(self, step: str) -> bool:
        return (step, self.attempt_of(step)) in self.results

    def is_covered(self, step: str) -> bool:
        return self.covered.get(step) == self.attempt_of(step)

    def next_attempt(self) -> None:
        self.attempt, self.over = self.attempt + 1, False

    def held_attempt(self) -> int:
        """Return the last attempt that had a host."""
        if self.saga.group is None:
            return 0
        first = self.saga.group.steps[0].name
        return max((attempt for name, attempt in self.results if name == first), default=0)

    @property
    def recent_causes(self) -> tuple[Cause, ...]:
        """How the attempts since the last sleep ended."""
        return tuple(self.causes[self.causes_before_sleep :])

    def excused(self) -> set[int]:
        """Return the attempts whose failure no host caused."""
        return {cause.attempt for cause in self.causes if cause.without}

    def tried(self, *, blamed: bool = False) -> tuple[str, ...]:
        """The hosts of the attempts that ended, in order; `blamed`: without those of excused attempts."""
        if self.saga.group is None:
            return ()
        first, host = self.saga.group.steps[0], self.saga.group.host
        ended = [attempt for attempt in range(1, self.attempt + 1) if attempt < self.attempt or self.over]
        if blamed:
            ended = [attempt for attempt in ended if attempt not in self.excused()]
        values = [self.results[first.name, attempt] for attempt in ended if (first.name, attempt) in self.results]
        return tuple(host(first.decode(value)) for value in values)

    def left_open(self) -> tuple[Begun, ...]:
        """Return the steps that may have left something, newest first."""
        return tuple(
            Begun(each.name, self.open[each.name]) for each in reversed(self.saga.steps) if each.name in self.open
        )


def line_of(saga: Saga[Any, Any], at: int, phase: str, lap: int) -> int:
    """The number of a step in an attempt (`lap`): each attempt counts all steps forward, then all steps back."""
    steps = len(saga.steps) + 1
    return 2 * lap * steps + at + 1 if phase == "do" else (2 * lap + 1) * steps + (steps - at - 1)


def last_line(state: ReplayedState) -> int:
    """The highest line with which an executor can have written anywhere, as far as this journal knows.

    Effects begin only after the intent that covers them is committed; those of a region step are before its commit.
    """
    saga, lines = state.saga, [0]
    known = [*state.results, *state.covered.items()]
    for name, attempt in known:
        if (at := saga.at.get(name)) is not None:
            lap = attempt if at in saga.group_at else state.attempt if at >= saga.group_at.stop else 0
            following = at + 1 < len(saga.steps) and saga.steps[at + 1].region
            again = following and at + 1 == saga.group_at.start  # a claim may be the first step of the next attempt
            lines.append(line_of(saga, at + following, "do", lap + again))
    if state.over or state.turn is not None:
        lines.append(line_of(saga, 0, "undo", state.attempt))
        lines.append(line_of(saga, saga.group_at.start, "do", state.attempt + 1))
    return max(lines)


def _open(begun: Sequence[Begun]) -> dict[str, int]:
    return {each.step: each.attempt for each in begun}
