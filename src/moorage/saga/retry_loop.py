"""The retry loop of one step: a do or an undo is called again until it succeeds, its patience is over, or the saga is cancelled."""

import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from moorage.model.errors import Doubtful, HostFailed, HostUnanswered, Problem, Unavailable, UnknownOutcome
from moorage.model.tracing import Span, SpanType, span
from moorage.saga.cancellation import CancelListener, Interrupted, Sleep
from moorage.saga.journal import CommitUnknown, Fenced, Status, Waiting, as_problem
from moorage.saga.journal_writer import JournalWriter
from moorage.saga.retry import RetryLimits, SagaClock
from moorage.saga.state import ReplayedState
from moorage.saga.step import Phase, Step

T = TypeVar("T")
logger = logging.getLogger("moorage.saga")


class RetryLoop:
    """The retry loop of one execution; it also writes to the journal what a step waits for."""

    def __init__(
        self,
        state: ReplayedState,
        journal_writer: JournalWriter,
        cancellation: CancelListener,
        clock: SagaClock,
        limits: RetryLimits,
        operation: str,
    ) -> None:
        self.state, self.journal_writer, self.cancellation = state, journal_writer, cancellation
        self.clock, self.limits, self.operation = clock, limits, operation
        self.random = random.Random(operation)

    async def execute(
        self,
        step: Step[Any, Any, Any],
        phase: Phase,
        patience_s: float,
        once: Callable[[bool], Awaitable[T]],
        *,
        past: bool,
    ) -> T:
        """Call `once(unsure)` until it succeeds, within the patience.  Raises the last problem.

        `past`: the point of no return lies behind, so every problem is tried again.
        """
        with span(
            SpanType.STEP, step.name, phase=phase, saga=self.state.saga.name, attempt=self.state.attempt
        ) as doing:
            return await self._tries(step, phase, patience_s, once, doing, past)

    async def _tries(
        self,
        step: Step[Any, Any, Any],
        phase: Phase,
        patience_s: float,
        once: Callable[[bool], Awaitable[T]],
        doing: Span,
        past: bool,
    ) -> T:
        """An outage that stops every operation alike (`Unavailable.excused`) does not use up the patience."""
        since, tries, unsure, excused_s = self.clock.monotonic(), 0, False, 0.0
        shown: list[str] = []
        while True:
            tried_at = self.clock.monotonic()
            left_s = patience_s + excused_s - (tried_at - since)
            limit_s = left_s if phase == "do" else min(left_s, self.limits.undo_try_s)
            try:
                return await self._once(step, phase, limit_s, once, unsure)
            except Problem as failure:
                problem = failure
            tries += 1
            doing.annotate(tries=tries, problem=problem.public)
            pause_s = self._pause_s(tries, problem)
            waited_s = self.clock.monotonic() - since
            if isinstance(problem, Unavailable) and problem.excused:
                lost_s = self.clock.monotonic() - tried_at + pause_s
                excused_s = min(excused_s + lost_s, self.limits.excused_most_s)
            worth_it = past or phase == "undo" or self._is_waited_for(problem, step)
            worth_it = worth_it and not isinstance(problem, Doubtful)  # nothing else comes of it until the stores agree
            committed = phase == "do" and self.state.is_done(step.name)
            if not worth_it or committed or waited_s + pause_s > patience_s + excused_s:
                raise problem
            unsure = unsure or isinstance(problem, UnknownOutcome)
            logger.info(
                "%s: %s of %s will be tried again: %s", self.operation, phase, step.name, problem.named or problem
            )
            news = problem.public not in shown and len(shown) < self.limits.waiting_shown_most
            if news and waited_s + pause_s > self.limits.waiting_shown_after_s:
                shown.append(problem.public)
                status: Status = "running" if self.state.turn is None else "cleaning"
                await self.journal_writer.append(
                    [Waiting(step.name, self.state.attempt_of(step.name), problem.public, problem.named)],
                    status=status,
                )
            if phase == "do":
                self.cancellation.check(step.name)  # a hint that came during a commit interrupted nothing
                if isinstance(problem, HostUnanswered) and not past:
                    await self.cancellation.check_delete(step.name)
            await self.listen(self.clock.sleep(pause_s))

    def _is_waited_for(self, problem: Problem, step: Step[Any, Any, Any]) -> bool:
        """Whether a do is tried again after this. A silent host is waited for only where there may be no way back:
        before that another host, or the undo, is nearer. Where an earlier executor may have been further, a host that
        fails says nothing of the point of no return.
        """
        no_way_back = step.point_of_no_return or self.cancellation.ignored
        if isinstance(problem, HostFailed) and self.cancellation.ignored and not step.point_of_no_return:
            return True
        return isinstance(problem, Unavailable) and (no_way_back or not isinstance(problem, HostUnanswered))

    async def _once(
        self,
        step: Step[Any, Any, Any],
        phase: Phase,
        limit_s: float,
        once: Callable[[bool], Awaitable[T]],
        unsure: bool,
    ) -> T:
        try:
            async with self.clock.timeout(max(limit_s, self.limits.try_least_s)):
                answer = await once(unsure)
        except (Fenced, CommitUnknown, Interrupted, Sleep):
            raise
        except Exception as failure:
            if self.journal_writer.broken is not None:
                raise self.journal_writer.broken from failure
            if isinstance(failure, TimeoutError):
                raise UnknownOutcome(f"{step.name} ({phase}) did not end within its time") from failure
            raise as_problem(step.name, failure) from failure
        if self.journal_writer.broken is not None:
            raise self.journal_writer.broken
        return answer

    def _pause_s(self, tries: int, problem: Problem) -> float:
        """Longer each time, at least what a service asked for, and random, so that callers do not return together."""
        longest = min(self.limits.pause_first_s * 2.0 ** min(tries - 1, 30), self.limits.pause_most_s)
        pause_s = longest * (0.5 + 0.5 * self.random.random())
        if isinstance(problem, Unavailable) and problem.retry_after_s:
            requested_s = min(problem.retry_after_s, self.limits.requested_pause_most_s)
            pause_s = max(pause_s, requested_s * (1.0 + 0.2 * self.random.random()))
        return pause_s

    def listen(self, waiting: Awaitable[T]) -> Awaitable[T]:
        """Await what a cancel hint may interrupt: nothing while steps are undone."""
        return self.cancellation.listen(waiting) if self.state.turn is None and not self.state.over else waiting
