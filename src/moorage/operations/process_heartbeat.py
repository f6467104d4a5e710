"""Writes that this process runs, and its release: for `moorage status`, during upgrades (N14)."""

import asyncio
import logging
import socket

from moorage import __version__
from moorage.model.clock import Clock
from moorage.model.errors import Problem
from moorage.sql import Database, label
from moorage.store.region import processes
from moorage.store.region.processes import ProcessRecord

BEAT_EVERY_S = 10.0
COUNTS_FOR_S = 3 * BEAT_EVERY_S
LEAVE_S = 2.0

logger = logging.getLogger(__name__)


class Presence:
    """The heartbeat of one process that serves the API or executes operations."""

    def __init__(self, region: Database, clock: Clock, process: str, role: str) -> None:
        self._region = region
        self._clock = clock
        self.process = ProcessRecord(process, role, socket.gethostname(), __version__)
        self._life: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Write it once, then periodically."""
        await self._beat()
        self._life = asyncio.create_task(self._beat_forever(), name="presence")

    async def stop(self) -> None:
        """Write that the process ends. If the database does not answer, the row expires by itself."""
        if self._life is None:
            return
        self._life.cancel()
        await asyncio.gather(self._life, return_exceptions=True)
        try:
            async with asyncio.timeout(LEAVE_S):
                with label("presence"):
                    await self._region.write(lambda tx: processes.leave(tx, self.process.id))
        except (Problem, TimeoutError) as failure:
            logger.info("the end of this process could not be recorded: %r", failure)
        except Exception as failure:  # noqa: BLE001  whatever it is, the process ends
            logger.error("the end of this process could not be recorded: %r", failure)

    async def _beat_forever(self) -> None:
        while True:
            await self._clock.sleep(BEAT_EVERY_S)
            try:
                await self._beat()
            except Problem as problem:  # `moorage status` does not list this process meanwhile
                logger.info("the heartbeat of this process could not be recorded: %s %s", problem, problem.private)
            except Exception as failure:  # noqa: BLE001  the task must go on: without it a running process counts as ended
                logger.error("the heartbeat of this process could not be recorded: %r", failure)

    async def _beat(self) -> None:
        with label("presence"):
            await self._region.write(lambda tx: processes.report(tx, self.process, COUNTS_FOR_S))
