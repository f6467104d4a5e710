"""Work that goes on after the answer.

A record with pending work says so itself (`work`, committed with the answer), so a killed process loses nothing: the
next one continues with all pending work (`begin_all`). Every job may run twice. A job ends by writing the record, and
only while its own work is still pending: a forced delete meanwhile wins.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from moorage.model.errors import Problem

log = logging.getLogger(__name__)

PAUSE_FIRST_S = 0.05
PAUSE_MAX_S = 5.0


class Later(Exception):
    """It cannot be done yet, which is no failure: it is tried again soon."""


Key: TypeAlias = tuple[str, str]
"""Kind of resource and id."""
Run: TypeAlias = Callable[[str, str], Awaitable[None]]


class Jobs:
    """At most one at a time for each record, and so many at once altogether."""

    def __init__(self, most: int) -> None:
        self._places = asyncio.Semaphore(most)
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._run: Run | None = None

    def start(self, run: Run) -> None:
        self._run = run

    async def stop(self) -> None:
        """What is not finished is gone on with at the next start."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def begin(self, noun: str, id: str) -> None:
        """Do what the record says, after what is being done to it already."""
        key = (noun, id)
        task = asyncio.create_task(self._live(key, self._tasks.get(key)), name=f"volume-{noun}-{id}")
        self._tasks[key] = task
        task.add_done_callback(lambda done: self._forget(key, done))

    def _forget(self, key: Key, task: asyncio.Task[None]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]

    async def _live(self, key: Key, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        assert self._run is not None  # nothing is begun before the start
        pause = PAUSE_FIRST_S
        while True:
            try:
                async with self._places:
                    await self._run(*key)
                return
            except Later:
                pause = PAUSE_FIRST_S
            except Problem as problem:  # the database or a service is out: the record still says what is to be done
                log.warning("work on %s %s is tried again: %s", *key, problem.public)
            except Exception:
                log.exception("work on %s %s failed, and is tried again", *key)
            await asyncio.sleep(pause)
            pause = min(pause * 2, PAUSE_MAX_S)
