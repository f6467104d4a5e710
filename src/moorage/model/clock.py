"""Time, passed in.  Rooms ask a `Clock` and never the `time` module, so that a test can own the hours."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since 1970, UTC: for what is written down or sent to another machine."""
        ...

    def monotonic(self) -> float:
        """Seconds since some moment, never going back: for waits and deadlines inside one process.

        The time in which the machine was suspended counts: who was frozen sees it in the difference of two readings.
        """
        ...

    async def sleep(self, seconds: float) -> None: ...


_MONOTONIC = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""CLOCK_MONOTONIC stands still while the machine is suspended; where CLOCK_BOOTTIME is missing there is nothing better."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.clock_gettime(_MONOTONIC)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
