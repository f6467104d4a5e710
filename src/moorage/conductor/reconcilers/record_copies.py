"""Copies the servers and hosts of cells into the region, for the case that a cell's database is lost for ever (N7).

Each round reads the generations of all records, page by page, and copies those that differ from the copy. A cell that
does not answer is skipped, and its copies stay: they may be all that is left of it. So does a copy that is newer than
its record. A copy is removed when the region
says that its server is deleted.
"""

import logging
from functools import partial

import msgspec

from moorage.model.clock import Clock, SystemClock
from moorage.model.errors import Problem
from moorage.model.host import Host
from moorage.model.ids import CellId, ServerId
from moorage.model.record_copy import ServerCopy
from moorage.operations.context import SagaContext
from moorage.sql import Tx
from moorage.store.cell import hosts as cell_hosts
from moorage.store.cell import migrations
from moorage.store.cell import servers as cell_servers
from moorage.store.doubts import seq_of
from moorage.store.region import numbers, record_copies
from moorage.store.region import servers as region_servers
from moorage.store.region.numbers import ServerNumbers

PAGE_ROWS = 500
COPIED_AT_ONCE = 100
FORGOTTEN_AT_ONCE = 1_000

logger = logging.getLogger(__name__)


class RecordCopiesDone(msgspec.Struct, frozen=True):
    copied: int = 0
    forgotten: int = 0
    waiting: tuple[CellId, ...] = ()
    """Cells that did not answer."""


class RecordCopies:
    def __init__(self, context: SagaContext, clock: Clock | None = None) -> None:
        self._context, self._clock = context, clock or SystemClock()

    async def run(self) -> RecordCopiesDone:
        """Run one round."""
        copied, waiting = 0, list[CellId]()
        for cell in self._context.cells.ids:
            try:
                await self._hosts(cell)
                copied += await self._servers(cell)
            except Problem as out:
                logger.info("copies of the records of cell %s wait: %s", cell, out)
                waiting.append(cell)
        forgotten = await self._context.region.write(partial(record_copies.forget_gone, most=FORGOTTEN_AT_ONCE))
        return RecordCopiesDone(copied, forgotten, tuple(waiting))

    async def _servers(self, cell: CellId) -> int:
        database, copied, after = self._context.cells[cell], 0, ServerId("")
        while page := await database.read(partial(cell_servers.generations, after=after, limit=PAGE_ROWS)):
            after = max(page)
            known = await self._context.region.read(partial(self._known, cell=cell, ids=list(page)))
            stale = [each for each in sorted(page) if each in known and known[each] != page[each]]
            for at in range(0, len(stale), COPIED_AT_ONCE):
                copied += await self._copy(cell, stale[at : at + COPIED_AT_ONCE])
        return copied

    @staticmethod
    def _known(tx: Tx, cell: CellId, ids: list[ServerId]) -> dict[ServerId, int]:
        """The generations of the copies, for those servers that the region has in that cell; 0: there is no copy."""
        have = record_copies.generations(tx, cell, ids)
        return {each: have.get(each, 0) for each, named in region_servers.cells_of(tx, ids).items() if named == cell}

    async def _copy(self, cell: CellId, ids: list[ServerId]) -> int:
        def read(tx: Tx) -> list[ServerCopy]:
            moves = migrations.open_among(tx, ids)
            return [
                ServerCopy(record, tuple(move for move in moves if move.server == each))
                for each in ids
                if (record := cell_servers.get(tx, each)) is not None
            ]

        copies = await self._context.cells[cell].read(read)
        now_us = int(self._clock.now() * 1_000_000)

        def put(tx: Tx) -> int:
            known = numbers.of(tx, ids)
            sound = [each for each in copies if not _is_older(each, known.get(each.server.id))]
            record_copies.put(tx, cell, sound, now_us)
            return len(sound)

        return await self._context.region.write(put)

    async def _hosts(self, cell: CellId) -> None:
        now = {each.host: _lasting(each) for each in await self._context.cells[cell].read(cell_hosts.listed)}
        kept = {each.host: each for each in await self._context.region.read(partial(record_copies.hosts_of, cell=cell))}
        changed = [each for name, each in now.items() if kept.get(name) != each]
        gone = sorted(kept.keys() - now.keys())
        for at in range(0, max(len(changed), len(gone)), COPIED_AT_ONCE):
            end = at + COPIED_AT_ONCE
            put = partial(record_copies.put_hosts, cell=cell, changed=changed[at:end], gone=gone[at:end])
            await self._context.region.write(put)


def _is_older(copy: ServerCopy, known: ServerNumbers | None) -> bool:
    """Whether the cell's record is from before an operation that has ended: the copy that is kept is the better one."""
    return known is not None and seq_of(copy.server) < known.recorded_seq


def _lasting(host: Host) -> Host:
    """The host without the fields that every heartbeat changes."""
    return msgspec.structs.replace(host, seen_at=0, updated_at=None)
