"""The clock of the executor, and the limits of its retries."""

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol


class SagaClock(Protocol):
    """The clock; it is passed as an argument, so that proofs control the time."""

    def monotonic(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...

    def timeout(self, seconds: float) -> AbstractAsyncContextManager[object]:
        """Raises TimeoutError when the block takes longer."""
        ...


class WallClock:
    """The machine's clock."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def timeout(self, seconds: float) -> AbstractAsyncContextManager[object]:
        return asyncio.timeout(seconds)


@dataclass(frozen=True)
class RetryLimits:
    """Limits of retries.  The patience of a do is that of its step."""

    undo_patience_s: float = 3600.0
    undo_try_s: float = 120.0
    try_least_s: float = 1.0
    pause_first_s: float = 0.1
    pause_most_s: float = 15.0
    requested_pause_most_s: float = 60.0
    """The longest pause that a service's Retry-After can cause."""
    waiting_shown_after_s: float = 5.0
    waiting_shown_most: int = 10
    """Limit of changes of what a step waits for that are written to the journal."""
    excused_most_s: float = 24 * 3600.0
    """Limit of an outage of what all operations need (the message bus) that does not count as patience."""


class CancelHint(Protocol):
    """An asyncio.Event, or like one: set when the row's `cancel` column may have been written."""

    async def wait(self) -> Any: ...

    def clear(self) -> None: ...


WALL = WallClock()
LIMITS = RetryLimits()
