"""Takes in cells that did not answer when this process started, as soon as they answer, without a restart.

One task for each absent cell opens the database, checks that it is the right one (RULES §22), upgrades its tables to this release,
adds it to the watch, and then lets it serve.  Until then the cell is out, like a cell that fails later: lists show what the region
knows of its servers, and its hosts get no new servers.  A database that answers and is refused stays out, and the log says why.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from moorage.main.databases import Databases, OpenCell
from moorage.main.store_consistency import migrate_cell
from moorage.main.store_watch import StoreWatch
from moorage.model.clock import Clock
from moorage.model.errors import Problem, Unavailable
from moorage.model.ids import CellId
from moorage.model.retry import Backoff, SeldomLog
from moorage.operations.cell_databases import CellDatabase
from moorage.sql import label

PAUSE_FIRST_S = 1.0
PAUSE_MOST_S = 10.0
"""As long as the circuit breaker's pause for a cell that fails later."""
LOG_EVERY_S = 60.0

logger = logging.getLogger(__name__)


class CellIntake:
    """Takes in the absent cells of one process."""

    def __init__(self, databases: Databases, stores: StoreWatch, clock: Clock) -> None:
        self._databases, self._stores, self._clock = databases, stores, clock
        self._serve: Callable[[CellId], Awaitable[None]] | None = None
        self._begun: set[CellId] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._seldom = SeldomLog(logger, clock.monotonic, every_s=LOG_EVERY_S)

    def start(self) -> None:
        """Begin to try the cells that are absent."""
        for cell, opened in self._databases.absent.items():
            self._tasks.append(asyncio.create_task(self._taking_in(cell, opened), name=f"cell-intake-{cell}"))

    async def stop(self) -> None:
        """Stop trying. Attempts that are under way are cancelled; each of their steps may be done again."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def serve(self, begin: Callable[[CellId], Awaitable[None]]) -> None:
        """Make this process a conductor of its cells: `begin` is called once for each, now or in the background when the cell answers.

        Raises every error of `begin` but Unavailable.
        """
        self._serve = begin
        for cell, database in self._databases.cells.items():
            if isinstance(database, CellDatabase) and database.absent:
                continue
            try:
                await self._begin(cell)
            except Unavailable as out:
                logger.error("cell %s is out, and has no conductor here until it answers: %s", cell, out)
                self._tasks.append(asyncio.create_task(self._beginning(cell), name=f"cell-begin-{cell}"))

    async def _begin(self, cell: CellId) -> None:
        if self._serve is None or cell in self._begun:
            return
        self._begun.add(cell)
        try:
            await self._serve(cell)
        except BaseException:
            self._begun.discard(cell)
            raise

    async def _taking_in(self, cell: CellId, opened: OpenCell) -> None:
        guarded = self._databases.cells[cell]
        assert isinstance(guarded, CellDatabase)
        pauses = Backoff(PAUSE_FIRST_S, PAUSE_MOST_S)
        while (absent := guarded.absent) is not None:
            absent.again_s = pauses.next_s()
            await self._clock.sleep(absent.again_s)
            try:
                await self._take_in(cell, guarded, opened)
            except Exception as failure:  # noqa: BLE001  whatever it is: if this task ended, the cell would stay out for ever
                why = failure.public if isinstance(failure, Problem) else repr(failure)
                absent.tries, absent.barred = absent.tries + 1, why
                self._seldom.warning(cell, "cell %s is still out: %r", cell, failure)
        logger.warning("cell %s answers, and is taken in", cell)
        await self._beginning(cell)

    async def _take_in(self, cell: CellId, guarded: CellDatabase, opened: OpenCell) -> None:
        database = await opened()
        try:
            with label("stores"):
                await migrate_cell(self._databases.region, cell, database)
                await self._stores.watch(cell, database)
        except BaseException:
            await database.close()
            raise
        guarded.take_in(database)

    async def _beginning(self, cell: CellId) -> None:
        pauses = Backoff(PAUSE_FIRST_S, PAUSE_MOST_S)
        while True:
            try:
                return await self._begin(cell)
            except Exception as failure:  # noqa: BLE001  as above
                self._seldom.warning(cell, "cell %s has no conductor here yet: %r", cell, failure)
            await self._clock.sleep(pauses.next_s())
