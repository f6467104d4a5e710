"""Cancellation: a cancel takes effect at the next commit, or at once if a hint comes while a do is waiting."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from moorage.model.errors import HostUnanswered, Problem
from moorage.saga.journal import Log, Reason
from moorage.saga.journal_writer import JournalWriter
from moorage.saga.retry import CancelHint

T = TypeVar("T")
logger = logging.getLogger("moorage.saga")


DELETED = "deleted"
"""The cancel reason of a delete without restore."""


class Interrupted(Exception):
    """Raised in a waiting do when the saga is cancelled."""


class Unwind(Exception):
    """Raised when the saga must be unwound, because a step failed or a user cancelled it."""

    def __init__(self, step: str, problem: Problem, reason: Reason = "failed") -> None:
        super().__init__(step)
        self.step = step
        self.problem = problem
        self.reason: Reason = reason


class Sleep(Exception):
    """Raised by a do: the saga can go on only after an event, and sleeps until whoever sees it wakes the operation.

    A sleeping operation has no executor.  `fall_asleep(tx)` is called in the commit that writes the line: it stores for what the
    saga sleeps and that nobody owns the operation, unless it was cancelled.  What it raises fails the step.
    The step is done again when the saga was woken.  What earlier attempts hold that is not host-local is the step's to give back first.
    """

    def __init__(self, public: str, named: str, asleep: bytes, fall_asleep: Callable[[Any], object]) -> None:
        super().__init__(public)
        self.public = public
        self.named = named
        self.asleep = asleep
        self.fall_asleep = fall_asleep


class CancelListener:
    """`watch` cancels the executing task only while it is in `listen`; any other cancellation is not caught here."""

    def __init__(self, log: Log, journal_writer: JournalWriter) -> None:
        self.log = log
        self.journal_writer = journal_writer
        self.ignored = False
        """Whether the saga is past a point of no return, or may be."""
        self._listening = False
        self._interrupted = False

    def check(self, step: str) -> None:
        """Check for a cancel. Raises Unwind when the saga is cancelled and may still be unwound."""
        if self.journal_writer.cancel is not None and not self.ignored:
            raise Unwind(step, self.problem(), "cancel")

    async def check_delete(self, step: str) -> None:
        """Check for a delete though cancels are ignored: at a point of no return of unknown outcome, at a host that is
        silent and may stay so. What the host may have done goes with the guest. Raises Unwind with the code of the outcome.
        """
        try:
            cancel = self.journal_writer.cancel = await self.log.cancel_reason() or self.journal_writer.cancel
        except Problem as problem:
            logger.info("the cancel reason could not be read: %s", problem)
            return
        if cancel == DELETED:
            raise Unwind(step, Problem(f"cancelled: {cancel}", code=HostUnanswered.code), "cancel")

    def problem(self) -> Problem:
        """Return the cancel as the cause of the unwinding."""
        return Problem(f"cancelled: {self.journal_writer.cancel}", code="cancelled")

    async def watch(self, hint: CancelHint, executor: "asyncio.Task[Any] | None") -> None:
        """Wait for hints; a hint may be false, and the row decides whether there is a cancel.  A commit is never interrupted."""
        while self.journal_writer.cancel is None:
            await hint.wait()
            hint.clear()
            try:
                self.journal_writer.cancel = await self.log.cancel_reason()
            except Problem as problem:
                logger.info("the cancel reason could not be read: %s", problem)
        if self._listening and not self.journal_writer.writing and not self.ignored and executor is not None:
            self._interrupted = True
            executor.cancel()

    async def listen(self, waiting: Awaitable[T]) -> T:
        """Await something that a hint may interrupt. Raises Interrupted when it was interrupted."""
        executor = asyncio.current_task()
        assert executor is not None
        self._listening = True
        try:
            return await waiting
        except asyncio.CancelledError:
            if self._interrupted:
                self._interrupted = False
                if executor.uncancel() == 0:
                    raise Interrupted from None
            raise
        finally:
            self._listening = False
            if self._interrupted:  # the do caught the interruption itself and ended
                self._interrupted = False
                executor.uncancel()
