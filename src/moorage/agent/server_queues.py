"""Queues of jobs: one queue for each server, whose jobs run one after another; a bounded number of queues runs at once."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from moorage.model.ids import ServerId

Job: TypeAlias = Callable[[], Awaitable[None]]

MAX_WAITING = 2_000
"""Limit of waiting jobs of a host; further ones are refused, and their senders send them again."""


_log = logging.getLogger(__name__)


async def _do(job: Job) -> None:
    try:
        await job()
    except Exception:  # noqa: BLE001 - a boundary: one job that breaks must not close its server's lane
        _log.exception("a job failed; its caller sends it again")


class ServerQueues:
    def __init__(self, at_once: int) -> None:
        self._room = asyncio.Semaphore(at_once)
        self._lanes: dict[ServerId, deque[Job]] = {}
        self._moving: set[asyncio.Task[None]] = set()
        self._waiting = 0

    @property
    def waiting(self) -> int:
        """The number of jobs that have not begun."""
        return self._waiting

    @property
    def moving(self) -> int:
        """The number of servers with a job that runs or is about to run."""
        return len(self._lanes)

    def submit(self, server: ServerId, job: Job) -> bool:
        """Add a job after all earlier ones of this server.  False: too many jobs wait, and it was refused."""
        if self._waiting >= MAX_WAITING:
            return False
        self._waiting += 1
        lane = self._lanes.get(server)
        if lane is not None:
            lane.append(job)
            return True
        self._lanes[server] = deque([job])
        task = asyncio.get_running_loop().create_task(self._move(server))
        self._moving.add(task)
        task.add_done_callback(self._moving.discard)
        return True

    async def _move(self, server: ServerId) -> None:
        lane = self._lanes[server]
        try:
            while lane:
                async with self._room:
                    job = lane.popleft()
                    self._waiting -= 1
                    await _do(job)
        finally:
            self._waiting -= len(lane)
            del self._lanes[server]

    async def stop(self) -> None:
        """Stop, and leave everything as it is."""
        for task in self._moving:
            task.cancel()
        await asyncio.gather(*self._moving, return_exceptions=True)
