"""Removes hidden records of servers in other cells that are no longer needed.

A move across cells leaves a record in the old cell as long as the move may be reverted; the confirm, revert or delete
tries once to remove it. What is left then (the cell's database did not answer, or an operation undid a copy that it
could not reach) is removed here, with the region's row that hides it.

Needed are the records of cells to which a server may go back: the cell from which, by its shown record, it was moved,
and those that an open migration of it names. The record is removed with the fence of the last operation, so the next
operation is not refused; and the row is ended only if no operation has begun since. When a server's cell does not
answer, has lost its record, or has an older one than it must, nothing is known, and nothing is removed (RULES §22,
§26).
"""

import logging
from collections.abc import Sequence
from functools import partial

import msgspec

from moorage.conductor.bulk_precheck import precheck
from moorage.model.clock import Clock, SystemClock
from moorage.model.errors import Problem
from moorage.model.ids import CellId, OperationId, ServerId
from moorage.operations.context import SagaContext
from moorage.operations.steps import moving
from moorage.sql import Tx
from moorage.store.cell import migrations, record_transfer
from moorage.store.cell import servers as cell_servers
from moorage.store.cell.servers import EPOCHS_PER_OPERATION, Fence
from moorage.store.doubts import doubt_about
from moorage.store.region import hidden_records
from moorage.store.region import servers as region_servers
from moorage.store.region.servers import Whereabouts

NAME = "hidden_records"
PAGE_ROWS = 500
LOOKED_AT_MAX = 100_000
LAST_LINE = 2**31 - 1

logger = logging.getLogger(__name__)


class HiddenRecordsDone(msgspec.Struct, frozen=True):
    looked_at: int = 0
    """Rows of the region."""
    removed: tuple[str, ...] = ()
    """Servers, each once for each record that was removed."""
    waiting: int = 0
    """Servers and records whose cell did not answer."""


class HiddenRecords:
    def __init__(self, context: SagaContext, clock: Clock | None = None) -> None:
        self._context, self._clock = context, clock or SystemClock()

    async def run(self) -> HiddenRecordsDone:
        """Run one round. The rows are read first: an operation that holds a server by then has not finished with them."""
        rows = await self._rows()
        checked = await precheck(self._context, dict.fromkeys(server for server, _ in rows), _may_go_back)
        removed, waiting = list[str](), len(checked.waiting)
        for server in checked.suspects:
            try:
                gone, left = await self._clean(server)
            except Problem as out:  # the cell of its shown record does not answer
                logger.info("hidden records of server %s wait: %s", server, out)
                gone, left = 0, 1
            removed += [server] * gone
            waiting += left
        return HiddenRecordsDone(len(rows), tuple(removed), waiting)

    async def _rows(self) -> list[tuple[ServerId, CellId]]:
        rows: list[tuple[ServerId, CellId]] = []
        after = ("", "")
        while len(rows) < LOOKED_AT_MAX:
            page = await self._context.region.read(partial(hidden_records.open_ones, after=after, limit=PAGE_ROWS))
            rows += [(each.server, each.cell) for each in page]
            if len(page) < PAGE_ROWS:
                break
            after = (page[-1].server, page[-1].cell)
        return rows

    async def _clean(self, server: ServerId) -> tuple[int, int]:
        """(how many of its records are gone, for how many the cell did not answer). Raises Unavailable."""

        def read(tx: Tx) -> tuple[Whereabouts | None, frozenset[CellId]]:
            hidden = hidden_records.open_of(tx, [server]).get(server, frozenset())
            return region_servers.find(tx, server), hidden

        where, hidden = await self._context.region.read(read)
        if where is None or where.operation is not None or where.cell is None:
            return 0, 0
        needed = await self._needed(where)
        if needed is None:
            return 0, 0
        gone = left = 0
        for cell in sorted(hidden - needed - {where.cell}):
            try:
                gone += await self._remove(where, cell)
            except Problem as out:
                logger.info("the hidden record of server %s in %s waits: %s", server, cell, out)
                left += 1
        return gone, left

    async def _needed(self, where: Whereabouts) -> frozenset[CellId] | None:
        """The cells whose record of it is needed; None: unknown. Raises Unavailable."""
        if where.deleted:
            return frozenset()
        assert where.cell is not None
        server, shown_in = where.id, where.cell

        def read(tx: Tx) -> frozenset[CellId] | None:
            shown = cell_servers.get(tx, server)
            if shown is None or doubt_about(shown, where) is not None:
                return None
            if shown.deleted:
                return frozenset()
            left = {moving.cell_left(shown), *(each.source_cell for each in migrations.open_of(tx, server))}
            return frozenset(cell for cell in left if cell is not None)

        return await self._context.cells[shown_in].read(read)

    async def _remove(self, where: Whereabouts, cell: CellId) -> bool:
        """Returns False when an operation has begun on it since, or when the host from which it was evacuated has not
        returned. Raises Problem when the cell does not answer, or a later operation has written the record.
        """
        server, now_us = where.id, int(self._clock.now() * 1_000_000)
        last = Fence(OperationId(NAME), where.op_seq, EPOCHS_PER_OPERATION - 1, LAST_LINE)
        gone = await self._context.cells[cell].write(
            lambda tx: record_transfer.remove_unless_waited_for(tx, server, cell, last)
        )
        if not gone:
            return False

        def end(tx: Tx) -> bool:
            held = region_servers.find_and_hold(tx, server)
            if held is None or held.operation is not None or held.op_seq != where.op_seq:
                return False
            hidden_records.end_row(tx, server, cell, now_us)
            return True

        ended = await self._context.region.write(end)
        if ended:
            logger.info("the hidden record of server %s in %s is removed", server, cell)
        return ended


def _may_go_back(tx: Tx, servers: Sequence[ServerId]) -> list[ServerId]:
    """Those of these servers that have an open move: most of them need nothing until the move is confirmed or reverted."""
    return [each.server for each in migrations.open_among(tx, servers) if each.source_cell is not None]
