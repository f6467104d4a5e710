"""The rounds of the night shift: every reconciler on its own timer, each run kept so that people can see it."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from moorage.model.clock import Clock
from moorage.model.errors import Problem
from moorage.sql import label

logger = logging.getLogger(__name__)

RUNS_KEPT = 20


class RoundDone(msgspec.Struct, frozen=True):
    """One run of one reconciler."""

    reconciler: str
    began_at: float
    took_s: float
    did: Any = None
    problem: str | None = None


class Rounds:
    """Runs reconcilers: `(name, seconds between, run)`; `nudge` brings the next run forward."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []
        self._nudges: dict[str, asyncio.Event] = {}
        self.runs: dict[str, deque[RoundDone]] = {}

    def add(self, name: str, every_s: float, run: Callable[[], Awaitable[object]]) -> None:
        self._nudges[name] = asyncio.Event()
        self.runs[name] = deque(maxlen=RUNS_KEPT)
        self._tasks.append(asyncio.create_task(self._keep(name, every_s, run), name=f"reconciler-{name}"))

    def nudge(self, name: str) -> None:
        self._nudges[name].set()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _keep(self, name: str, every_s: float, run: Callable[[], Awaitable[object]]) -> None:
        while True:
            await self.once(name, run)
            self._nudges[name].clear()
            waiting = asyncio.create_task(self._nudges[name].wait())
            sleeping = asyncio.ensure_future(self._clock.sleep(every_s))
            try:
                await asyncio.wait({waiting, sleeping}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                waiting.cancel()
                sleeping.cancel()

    async def once(self, name: str, run: Callable[[], Awaitable[object]]) -> RoundDone:
        """One run; a problem is kept and said, and the next run tries again."""
        began, at = self._clock.monotonic(), self._clock.now()
        did: object = None
        problem: str | None = None
        try:
            with label(f"reconciler:{name}"):
                did = await run()
        except Problem as refused:
            problem = f"{refused} {refused.private}".strip()
            logger.warning("reconciler %s: %s", name, problem)
        except Exception as failure:
            problem = repr(failure)
            logger.exception("reconciler %s failed", name)
        done = RoundDone(name, at, self._clock.monotonic() - began, did, problem)
        self.runs.setdefault(name, deque(maxlen=RUNS_KEPT)).append(done)
        return done
