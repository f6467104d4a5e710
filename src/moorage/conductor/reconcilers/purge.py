"""Removes old rows: old operations, servers deleted long ago, conductors that died long ago, events for which no
operation waited.

A round removes everything that is due, in transactions with a bounded number of rows, so it keeps pace with the growth;
only a round that takes longer than `ROUND_MOST_S` leaves the rest to the next one.
"""

import logging
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec

from moorage.model.clock import Clock, SystemClock
from moorage.model.errors import Unavailable
from moorage.model.ids import CellId
from moorage.operations.context import SagaContext
from moorage.sql import Tx
from moorage.store.cell import actions, migrations
from moorage.store.cell import servers as cell_servers
from moorage.store.region import conductor_health, conductors, hidden_records, inbox, operations, processes
from moorage.store.region import servers as region_servers

NAME = "tidy"
HOUR_US = 3600 * 1_000_000
DAY_US = 24 * 3600 * 1_000_000
EVENTS_KEPT_US = HOUR_US
HIDDEN_KEPT_US = HOUR_US
"""Far longer than any list takes: from a row that ended, a list learns what was shown while it read."""
OPERATIONS_KEPT_US = 30 * DAY_US
DELETED_SERVERS_KEPT_US = 90 * DAY_US
MOVES_OF_DELETED_KEPT_US = HOUR_US
"""An operation that moves a server which is being deleted has ended long before."""
ROWS_AT_ONCE = 1_000
ROUND_MOST_S = 300.0
ACTIONS_EVERY_ROUNDS = 24
"""After how many rounds the actions of existing servers are counted: it reads an index of all of them."""


logger = logging.getLogger(__name__)


class Tidied(msgspec.Struct, frozen=True):
    operations: int = 0
    servers: int = 0
    waiting: tuple[str, ...] = ()
    """Cells that did not answer; the region's rows of servers deleted long ago stay until all cells have answered."""
    events: int = 0
    actions: int = 0


class Tidy:
    def __init__(self, context: SagaContext, clock: Clock | None = None) -> None:
        self._context = context
        self._clock = clock or SystemClock()
        self._rounds = 0
        self._until = 0.0

    async def run(self) -> Tidied:
        """Run one round: remove all that is due, or as much as `ROUND_MOST_S` allows."""
        now = int(self._clock.now() * 1_000_000)
        self._until = self._clock.monotonic() + ROUND_MOST_S
        region = self._context.region
        await region.write(_conductors)
        events = await self._all(lambda: region.write(partial(_events, before_us=now - EVENTS_KEPT_US)))
        await self._all(
            lambda: region.write(lambda tx: hidden_records.forget_ended(tx, now - HIDDEN_KEPT_US, ROWS_AT_ONCE))
        )
        old = now - OPERATIONS_KEPT_US
        forgotten = await self._all(lambda: region.write(lambda tx: operations.forget_old(tx, old, ROWS_AT_ONCE)))
        deleted_us = now - DELETED_SERVERS_KEPT_US
        servers, shortened = 0, 0
        out: list[str] = []
        for cell in self._context.cells.ids:
            try:
                await self._all(partial(self._moves, cell, now))
                servers += await self._all(partial(self._in_cell, cell, deleted_us))
                if self._rounds % ACTIONS_EVERY_ROUNDS == 0:
                    shortened += await self._context.cells[cell].write(actions.shorten)
                    await self._context.cells[cell].write(migrations.shorten)
            except Unavailable as problem:
                logger.info("old rows of cell %s wait: %s", cell, problem)
                out.append(cell)
        if not out:
            await self._all(partial(self._gone_for_ever, deleted_us))
        self._rounds += 1
        return Tidied(forgotten, servers, tuple(out), events, shortened)

    async def _all(self, once: Callable[[], Awaitable[int]]) -> int:
        """Repeat while there is a full batch, and time."""
        went = 0
        while True:
            batch = await once()
            went += batch
            if batch < ROWS_AT_ONCE or self._clock.monotonic() >= self._until:
                return went

    async def _moves(self, cell: CellId, now_us: int) -> int:
        def work(tx: Tx) -> int:
            return len(cell_servers.end_moves_of_deleted(tx, now_us - MOVES_OF_DELETED_KEPT_US, now_us, ROWS_AT_ONCE))

        return await self._context.cells[cell].write(work)

    async def _in_cell(self, cell: CellId, before_us: int) -> int:
        def work(tx: Tx) -> int:
            gone = cell_servers.forget_deleted(tx, before_us, ROWS_AT_ONCE)
            if gone:
                actions.forget(tx, gone)
                migrations.forget(tx, gone)
            return len(gone)

        return await self._context.cells[cell].write(work)

    async def _gone_for_ever(self, before_us: int) -> int:
        """Remove servers from the region, after their fences are gone from every cell; not while a cell may have a
        hidden record of them.
        """
        context = self._context
        ids = await context.region.read(lambda tx: region_servers.long_deleted(tx, before_us, ROWS_AT_ONCE))
        if not ids:
            return 0
        try:
            for cell in context.cells.ids:
                await context.cells[cell].write(lambda tx: cell_servers.forget_fences(tx, ids))
        except Unavailable as problem:
            logger.info("the fences of deleted servers wait: %s", problem)
            return 0
        await context.region.write(lambda tx: region_servers.forget(tx, ids))
        return len(ids)


def _conductors(tx: Tx) -> None:
    conductors.forget(tx)
    conductor_health.forget(tx)
    processes.forget(tx)


def _events(tx: Tx, before_us: int) -> int:
    return inbox.forget_old(tx, before_us, ROWS_AT_ONCE)
