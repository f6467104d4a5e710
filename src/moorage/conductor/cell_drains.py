"""Drains of cells, by a round of the leading conductor (N7).

A drain of a cell is a row. Each round begins drains of its hosts, as many as may run at once, whose servers may go to
any cell; they are executed like other drains (`drains.py`). The records of offloaded servers are moved by operations of
their own. The progress follows from those drains, from the region's row of each server and from the operations that
hold them. So a process that dies loses nothing, and the next leader continues.

The cell is disabled first: no server comes into it, and servers that leave get no host of it.
"""

import logging
import uuid
from collections.abc import Mapping

import msgspec

from moorage.model.cell_drain import RECORDS_AT_ONCE, CellDrain, HostPart, RecordRow
from moorage.model.clock import Clock
from moorage.model.drain import Drain, DrainProgress, DrainRequest, DrainStatus
from moorage.model.errors import Conflict, NotFound, Problem, Unavailable
from moorage.model.ids import ServerId
from moorage.model.server import Server
from moorage.operations.context import SagaContext
from moorage.operations.drains import cell_drain_moves
from moorage.operations.records import cells as cell_writes
from moorage.sql import Tx
from moorage.store.region import cell_drains, drains, operations
from moorage.store.region import servers as region_servers
from moorage.store.region.counts import counts_by_cell
from moorage.store.region.placement import cells

NAME = "cell_drains"
ATTEMPTS_MAX = 3
AGAIN_AFTER_US = 5_000_000
"""The pause after a failed move; doubled after each further failure."""
BUSY = "another action on it is under way"
US = 1_000_000
GOING = (DrainProgress.WAITING, DrainProgress.MOVING, DrainProgress.CONFIRMING)

logger = logging.getLogger(__name__)
changed = msgspec.structs.replace


class CellDrainsDone(msgspec.Struct, frozen=True):
    looked_at: int = 0
    ended: int = 0


class CellDrains:
    def __init__(self, context: SagaContext, clock: Clock) -> None:
        self._context, self._clock = context, clock

    async def run(self) -> CellDrainsDone:
        """One round: every cell that is being drained; a drain waits while its cell's database does not answer."""
        open_drains = await self._context.region.read(cell_drains.open_ones)
        ended = 0
        for each in open_drains:
            if each.cell not in self._context.cells.ids:
                logger.warning("the drain %s waits: cell %s is not in the configuration", each.id, each.cell)
                continue
            try:
                now = await self._turn(each)
            except Unavailable as out:
                logger.info("the drain %s of cell %s waits: %s", each.id, each.cell, out)
                continue
            ended += now.ended_at is not None
        return CellDrainsDone(len(open_drains), ended)

    @property
    def _now_us(self) -> int:
        return int(self._clock.now() * US)

    async def _turn(self, drain: CellDrain) -> CellDrain:
        if drain.status is DrainStatus.WAITING and not drain.cancel:
            await self._disable(drain)
            begun = drain.began_at or self._now_us
            drain_now = changed(drain, status=DrainStatus.RUNNING, began_at=begun)
        else:
            drain_now = drain
        hosts = await self._hosts(drain_now)
        records, gone = await self._records(drain_now)
        going = changed(drain_now, hosts=hosts, records=records, records_gone=drain.records_gone + gone, why="")
        now = await self._ended(going)
        if now != drain and not await self._context.region.write(lambda tx: cell_drains.write(tx, now)):
            logger.info("the drain %s was written by another process; the next round reads it again", drain.id)
        if now.ended_at is not None:
            logger.info("the drain %s of cell %s: %s %s", now.id, now.cell, now.status.value, now.why)
        return now

    async def _disable(self, drain: CellDrain) -> None:
        """Keep the cell's own reason, if it has one already."""
        region, now = self._context.region, self._now_us
        status = (await region.read(cells.every)).get(drain.cell)
        if status is None or not status.disabled:
            await cell_writes.set_disabled(
                region, drain.cell, now, disabled=True, reason=f"drain {drain.id}", by=drain.asked_by, configured=True
            )

    # -------------------------------------------------------------------------------------------------- its hosts

    async def _hosts(self, drain: CellDrain) -> tuple[HostPart, ...]:
        known = {each.host: each for each in drain.hosts}
        names = await cell_drain_moves.hosts_of(self._context, drain.cell)
        parts = [known.get(name, HostPart(name)) for name in (*known, *(each for each in names if each not in known))]
        looked = [await self._with_progress(drain, each, has_servers=each.host in names) for each in parts]
        under_way = sum(each.progress is DrainProgress.MOVING for each in looked)
        host_parts: list[HostPart] = []
        for part in looked:
            if part.progress is DrainProgress.WAITING and not drain.cancel and under_way < drain.asked.hosts:
                part = await self._opened(drain, part)
                under_way += part.progress is DrainProgress.MOVING
            host_parts.append(part)
        return tuple(host_parts)

    async def _with_progress(self, drain: CellDrain, part: HostPart, *, has_servers: bool) -> HostPart:
        """The progress of the host's drain."""
        if part.progress not in GOING:
            return part
        if not has_servers:
            return changed(part, progress=DrainProgress.DONE, why="the host was deleted")
        id = _id_of(drain, part.host)
        its = await self._context.region.read(lambda tx: drains.get(tx, id))
        if its is None:
            return changed(part, drain="", progress=DrainProgress.WAITING)
        if drain.cancel and its.ended_at is None and not its.cancel:
            await self._context.region.write(lambda tx: drains.cancel(tx, id))
        now = changed(part, drain=id, servers=its.counts(), why=its.why)
        if its.ended_at is None:
            return changed(now, progress=DrainProgress.MOVING)
        return changed(now, progress=DrainProgress.DONE if its.status is DrainStatus.DONE else DrainProgress.LEFT)

    async def _opened(self, drain: CellDrain, part: HostPart) -> HostPart:
        """The drain itself finds the host's servers. If another drain of the host exists, or too many drains run, this
        waits.
        """
        request = drain.asked
        new = Drain(
            id=_id_of(drain, part.host),
            host=part.host,
            cell=drain.cell,
            asked_at=self._now_us,
            asked_by=drain.asked_by,
            project=drain.project,
            asked=DrainRequest(
                concurrency=request.concurrency,
                confirm=request.confirm,
                partial=True,
                live=request.live and cell_drain_moves.live(self._context, drain.cell),
                across=True,
            ),
            status=DrainStatus.WAITING,
        )
        refused = await self._context.region.write(lambda tx: drains.ask(tx, new))
        if refused is not None:
            return changed(part, why=refused.public)
        return changed(part, drain=new.id, progress=DrainProgress.MOVING, why="")

    # ----------------------------------------------------------------------------------------------------- records

    async def _records(self, drain: CellDrain) -> tuple[tuple[RecordRow, ...], int]:
        """Offloaded servers that are still here, and how many of the known ones have left."""
        stay = sum(each.progress is DrainProgress.LEFT for each in drain.records)
        records = await cell_drain_moves.offloaded(self._context, drain.cell, stay + RECORDS_AT_ONCE)
        servers = {each.id: each for each in records}
        known = {each.server for each in drain.records}
        rows: list[RecordRow] = []
        gone = 0
        for row in (*drain.records, *(RecordRow(each.id, each.name) for each in records if each.id not in known)):
            looked = await self._refreshed(drain, row, servers)
            if looked is None:
                continue
            if looked.progress is DrainProgress.DONE:
                gone += 1
                continue
            rows.append(looked)
        return tuple(rows if drain.cancel else await self._begin(drain, rows, servers)), gone

    async def _refreshed(
        self, drain: CellDrain, row: RecordRow, servers: Mapping[ServerId, Server]
    ) -> RecordRow | None:
        """None: it needs no move any more, because it is being deleted or on a host."""
        if row.progress is DrainProgress.LEFT and row.server in servers:
            return row
        where = await self._context.region.read(lambda tx: region_servers.find(tx, row.server))
        if where is None or where.deleted:
            return None
        if where.operation is not None:
            ours = row.progress is DrainProgress.MOVING or await self._ours(drain, row.server)
            return changed(row, progress=DrainProgress.MOVING, why="") if ours else changed(row, why=BUSY)
        if where.cell != drain.cell:
            return changed(row, progress=DrainProgress.DONE)
        if row.server not in servers:
            return None
        if row.progress is DrainProgress.MOVING:
            return self._again(row, "its record came back")
        return changed(row, progress=DrainProgress.WAITING, why="" if row.why == BUSY else row.why)

    async def _ours(self, drain: CellDrain, server: ServerId) -> bool:
        """Whether this drain began the operation that holds it."""

        def work(tx: Tx) -> bool:
            where = region_servers.find(tx, server)
            holder = None if where is None or where.operation is None else operations.get(tx, where.operation)
            return holder is not None and holder.request_id == _request(drain)

        return await self._context.region.read(work)

    async def _begin(
        self, drain: CellDrain, rows: list[RecordRow], servers: Mapping[ServerId, Server]
    ) -> list[RecordRow]:
        under_way = sum(each.progress is DrainProgress.MOVING for each in rows)
        changed_rows: list[RecordRow] = []
        for row in rows:
            server = servers.get(row.server)
            ready = row.progress is DrainProgress.WAITING and row.again_at <= self._now_us and row.why != BUSY
            if server is None or not ready or under_way >= drain.asked.concurrency:
                changed_rows.append(row)
                continue
            moved = await self._move(drain, row, server)
            under_way += moved.progress is DrainProgress.MOVING
            changed_rows.append(moved)
        return changed_rows

    async def _move(self, drain: CellDrain, row: RecordRow, server: Server) -> RecordRow:
        tried = changed(row, attempts=row.attempts + 1)
        by = (drain.asked_by, drain.project, _request(drain))
        try:
            now = await cell_drain_moves.leave(self._context, tried, server, *by)
        except NotFound:
            return row  # it is being deleted; the next round sees that it is gone
        except Unavailable as later:
            return changed(row, again_at=self._now_us + AGAIN_AFTER_US, why=later.public)
        except Conflict as refused:
            if await self._held(row.server):
                return changed(row, why=BUSY)
            return self._again(tried, refused.public)
        except Problem as refused:
            return self._again(tried, refused.public)
        return changed(now, progress=DrainProgress.MOVING, why="")

    async def _held(self, server: ServerId) -> bool:
        where = await self._context.region.read(lambda tx: region_servers.find(tx, server))
        return where is not None and where.operation is not None

    def _again(self, row: RecordRow, why: str) -> RecordRow:
        if row.attempts >= ATTEMPTS_MAX:
            return changed(row, progress=DrainProgress.LEFT, why=why)
        return changed(
            row, progress=DrainProgress.WAITING, again_at=self._now_us + AGAIN_AFTER_US * row.attempts, why=why
        )

    # ----------------------------------------------------------------------------------------------------- the end

    async def _ended(self, drain: CellDrain) -> CellDrain:
        """The drain with its end, when nothing is left to do."""
        far = {each.progress for each in drain.hosts} | {each.progress for each in drain.records}
        if DrainProgress.MOVING in far or (DrainProgress.WAITING in far and not drain.cancel):
            return drain
        counts = await self._context.region.read(counts_by_cell)
        left = counts[drain.cell].servers if drain.cell in counts else 0
        why = f"{left} servers stay" if left else ""
        emptied = DrainStatus.INCOMPLETE if left else DrainStatus.DONE
        return changed(drain, status=DrainStatus.CANCELLED if drain.cancel else emptied, ended_at=self._now_us, why=why)


def _id_of(drain: CellDrain, host: str) -> str:
    """The id of one host's drain: always the same, so that it is requested once, whichever conductor leads."""
    return str(uuid.uuid5(uuid.UUID(drain.id), host))


def _request(drain: CellDrain) -> str:
    """The request id that marks the record moves of this drain."""
    return f"req-{drain.id}"


__all__ = ["NAME", "CellDrains", "CellDrainsDone"]
