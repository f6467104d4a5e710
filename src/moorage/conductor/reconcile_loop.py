"""Runs every reconciler periodically, each on its own timer; each run is recorded so that operators can see it.

Most reconcilers compare what the whole region shares, so one conductor is enough: the leader (`Conductor.leads`), which
follows from the leases. When it dies, the next leader begins its rounds at once. While two conductors disagree about
the leader, a round runs twice, which does no harm. Rounds for this process's own memory run in every process
(`everywhere`).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec

from moorage.model.clock import Clock
from moorage.model.errors import Problem
from moorage.model.retry import jittered
from moorage.sql import label

logger = logging.getLogger(__name__)

RUNS_KEPT = 20
LEADING_ASKED_EVERY_S = 1.0


class RoundDone(msgspec.Struct, frozen=True):
    """One run of one reconciler."""

    reconciler: str
    began_at: float
    took_s: float
    did: Any = None
    problem: str | None = None


class ReconcileLoop:
    """Runs reconcilers: `(name, seconds between runs, run)`; `nudge` makes the next run earlier."""

    def __init__(self, clock: Clock, leads: Callable[[], bool] = lambda: True) -> None:
        """`leads`: whether this process runs the rounds of which one in the region is enough."""
        self._clock = clock
        self._leads = leads
        self._tasks: list[asyncio.Task[None]] = []
        self._nudges: dict[str, asyncio.Event] = {}
        self._election: asyncio.Task[None] | None = None
        self.runs: dict[str, deque[RoundDone]] = {}

    def add(
        self,
        name: str,
        every_s: float,
        run: Callable[[], Awaitable[object]],
        *,
        everywhere: bool = False,
        sooner: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        """`everywhere`: also when this process does not lead. `sooner`: waits for a reason to run before the interval
        is over.
        """
        self._nudges[name] = asyncio.Event()
        self.runs[name] = deque(maxlen=RUNS_KEPT)
        keeping = self._keep(name, every_s, run, everywhere, sooner)
        self._tasks.append(asyncio.create_task(keeping, name=f"reconciler-{name}"))

    def nudge(self, name: str) -> None:
        self._nudges[name].set()

    async def stop(self) -> None:
        tasks = [*self._tasks, *([self._election] if self._election is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(
        self,
        name: str,
        every_s: float,
        run: Callable[[], Awaitable[object]],
        everywhere: bool,
        sooner: Callable[[], Coroutine[Any, Any, None]] | None,
    ) -> None:
        while True:
            if not everywhere and not self._leads():
                await self._to_lead()
                continue
            await self.once(name, run)
            self._nudges[name].clear()
            reasons: list[asyncio.Future[Any]] = [
                asyncio.create_task(self._nudges[name].wait()),
                asyncio.ensure_future(self._clock.sleep(jittered(every_s))),
            ]
            if sooner is not None:
                reasons.append(asyncio.create_task(sooner()))
            try:
                await asyncio.wait(reasons, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in reasons:
                    each.cancel()

    async def _to_lead(self) -> None:
        """Wait until this process leads; one task asks for all rounds that wait for it."""
        if self._election is None or self._election.done():
            self._election = asyncio.create_task(self._await_leadership(), name="reconcilers-lead")
        await asyncio.shield(self._election)

    async def _await_leadership(self) -> None:
        while not self._leads():
            await self._clock.sleep(LEADING_ASKED_EVERY_S)

    async def once(self, name: str, run: Callable[[], Awaitable[object]]) -> RoundDone:
        """Run once; a problem is recorded and logged, and the next run tries again."""
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
