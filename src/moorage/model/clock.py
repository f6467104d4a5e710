"""The clock.  It is passed as an argument: no other package uses the `time` module for decisions, so that tests control the time."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since 1970, UTC: for what is written down or sent to another machine."""
        ...

    def monotonic(self) -> float:
        """Seconds since some moment, never going back: for waits and deadlines inside one process.

        Time in which the machine was suspended counts: a process that was frozen sees this in the difference of two readings.
        """
        ...

    async def sleep(self, seconds: float) -> None: ...


_MONOTONIC = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""CLOCK_MONOTONIC stops while the machine is suspended; it is used only if there is no CLOCK_BOOTTIME."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.clock_gettime(_MONOTONIC)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
