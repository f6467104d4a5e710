"""Drains of hosts, by a round of the leading conductor (N13).

A drain is a row with a plan. Each round reads the servers of its host, records their progress, and begins the moves of
waiting ones, as many as may be under way at once. A server's progress follows from its record and from the operation
that holds it, so a process that dies loses nothing, and the next leader continues. If two conductors believe they lead,
one of them writes the row, and a server is moved once because its move holds it.
"""

import logging
from collections.abc import Mapping

import msgspec

from moorage.model.clock import Clock
from moorage.model.drain import Drain, DrainProgress, DrainServer, DrainStatus, MoveMethod
from moorage.model.errors import Conflict, NotFound, Problem, Unavailable
from moorage.model.ids import ServerId
from moorage.model.server import Server, VmState
from moorage.operations.context import SagaContext
from moorage.operations.drains import drain_moves
from moorage.operations.records import hosts as host_writes
from moorage.operations.resize import confirm_resize
from moorage.operations.steps import moving
from moorage.operations.steps import servers as records
from moorage.sql import Tx
from moorage.store.cell import hosts as cell_hosts
from moorage.store.cell import servers as cell_servers
from moorage.store.region import drains, operations
from moorage.store.region import servers as region_servers
from moorage.store.region.placement import provider_statements

NAME = "drains"
ATTEMPTS_MAX = 3
AGAIN_AFTER_US = 5_000_000
"""The pause after a failed move; doubled after each further failure."""
BUSY = "another action on it is under way"
CLAIMS_MAX, NAMED_MAX = 1_000, 10
"""How many claims at the host are read, and how many of other consumers are named."""
US = 1_000_000

logger = logging.getLogger(__name__)
changed = msgspec.structs.replace


class DrainsDone(msgspec.Struct, frozen=True):
    looked_at: int = 0
    begun: int = 0
    ended: int = 0


class Drains:
    def __init__(self, context: SagaContext, clock: Clock) -> None:
        self._context, self._clock = context, clock

    async def run(self) -> DrainsDone:
        """One round: every host that is being drained; a drain waits while its cell does not answer.

        All hosts whose drains begin are disabled before the first server moves, so that no drained host receives
        servers of another.
        """
        begun = ended = 0
        open_drains = await self._context.region.read(drains.open_ones)
        for each in [each for each in open_drains if await self._closed(each)]:
            try:
                now, moves = await self._turn(each)
            except Unavailable as out:
                logger.info("drain %s of host %s waits: %s", each.id, each.host, out)
                continue
            begun += moves
            ended += now.ended_at is not None
        return DrainsDone(len(open_drains), begun, ended)

    async def _closed(self, drain: Drain) -> bool:
        """Whether the host is closed to new servers. Returns False when that cannot be written to its cell now."""
        if drain.status is DrainStatus.WAITING and not drain.cancel:
            try:
                await self._disable(drain)
            except Unavailable as out:
                logger.info("drain %s of host %s waits: %s", drain.id, drain.host, out)
                return False
        return True

    @property
    def _now_us(self) -> int:
        return int(self._clock.now() * US)

    async def _turn(self, drain: Drain) -> tuple[Drain, int]:
        if drain.status is DrainStatus.WAITING and not drain.cancel:
            drain = changed(
                drain_moves.retried(drain), status=DrainStatus.RUNNING, began_at=drain.began_at or self._now_us
            )
        servers = await self._servers(drain)
        known = {each.server for each in drain.servers}
        came = [
            DrainServer(each.id, each.name, drain_moves.way_of(each, live=drain.asked.live))
            for id, each in servers.items()
            if id not in known
        ]
        came += await drain_moves.left_before(self._context, drain.cell, drain.host, {*servers, *known})
        rows = [await self._refreshed(drain, each, servers) for each in (*drain.servers, *came)]
        rows, begun = (rows, 0) if drain.cancel else await self._begin(drain, rows, servers)
        going = changed(drain, servers=tuple(rows), why="")
        now = _ended(going, self._now_us)
        if now.status is DrainStatus.DONE:
            comes, foreign = await self._claims(drain)
            if comes:
                now = changed(going, why="an operation has a claim there, and no record yet")
            elif foreign:
                now = changed(now, why=f"what others claimed there stays: {', '.join(foreign[:NAMED_MAX])}")
        if now != drain and not await self._context.region.write(lambda tx: drains.write(tx, now)):
            logger.info("drain %s was written by another process; the next round reads it again", drain.id)
        if now.ended_at is not None:
            logger.info("drain %s of host %s: %s %s", now.id, now.host, now.status.value, now.why)
        return now, begun

    async def _disable(self, drain: Drain) -> None:
        """Disable the host before anything else. It is written also when the cell has it as disabled: the region may
        not know that yet.
        """
        cell = self._context.cells[drain.cell]
        host = await cell.read(lambda tx: cell_hosts.named(tx, drain.host))
        if host is not None:
            reason = host.disabled_reason if host.disabled else f"drain {drain.id}"
            region = self._context.region
            await host_writes.set_disabled(region, cell, host, self._now_us, disabled=True, reason=reason)

    async def _claims(self, drain: Drain) -> tuple[bool, list[str]]:
        """Whether a server has a claim there, for example of a boot that claimed before the host was disabled and still
        arrives; and consumers that are not servers: only their owners can release their claims, so they are not waited
        for.
        """
        host = await self._context.cells[drain.cell].read(lambda tx: cell_hosts.named(tx, drain.host))
        if host is None:
            return False, []
        id = host.id

        def work(tx: Tx) -> tuple[bool, list[str]]:
            consumers = provider_statements.consumers_at(tx, provider_statements.tree_of(tx, id), CLAIMS_MAX)
            foreign = [each for each, by in consumers if by is None and region_servers.find(tx, each) is None]
            return len(foreign) < len(consumers), foreign

        return await self._context.region.read(work)

    async def _servers(self, drain: Drain) -> Mapping[ServerId, Server]:
        servers = await self._context.cells[drain.cell].read(lambda tx: cell_servers.on_host(tx, drain.host))
        return {each.id: each for each in servers}

    # ---------------------------------------------------------------------------------------------------- progress

    async def _refreshed(self, drain: Drain, row: DrainServer, servers: Mapping[ServerId, Server]) -> DrainServer:
        """Servers that only wait are known by the record that was just read; for the others, the region is read before
        the record.

        In a cancelled drain no server counts as only waiting: the round that was overtaken may have begun its move.
        """
        known = servers.get(row.server)
        if row.progress is DrainProgress.DONE and known is None:
            return row
        only_waits = row.progress is DrainProgress.LEFT or (row.progress is DrainProgress.WAITING and not drain.cancel)
        if known is not None and only_waits:
            return _waits(drain, row, known)
        held = await self._held(row.server)
        server = (await records.find(self._context, row.server)).server
        if server is None or server.deleted:
            return changed(row, progress=DrainProgress.DONE, why="it was deleted")
        if server.host == drain.host:
            return self._present_row(drain, row, server, held=held)
        leaves_something = server.moved is not None and server.moved.host == drain.host
        if leaves_something and server.vm_state is VmState.RESIZED:
            return await self._confirm(drain, row, server, held=held)
        if leaves_something and not held:
            why = drain_moves.UNDECIDED
            return changed(row, way=MoveMethod.NONE, progress=DrainProgress.LEFT, host=server.host or "", why=why)
        if held:  # what is left on the host goes with the end of its move
            return changed(row, progress=DrainProgress.MOVING, host=server.host or "", why="")
        return changed(row, progress=DrainProgress.DONE, host=server.host or "", why="")

    async def _held(self, server: ServerId) -> bool:
        where = await self._context.region.read(lambda tx: region_servers.find(tx, server))
        return where is not None and where.operation is not None

    async def _ours(self, drain: Drain, server: ServerId) -> bool:
        """Whether this drain began the operation that holds it."""

        def work(tx: Tx) -> bool:
            where = region_servers.find(tx, server)
            holder = None if where is None or where.operation is None else operations.get(tx, where.operation)
            return holder is not None and holder.request_id == _request(drain)

        return await self._context.region.read(work)

    def _present_row(self, drain: Drain, row: DrainServer, server: Server, *, held: bool) -> DrainServer:
        """It is still on the host: its move is under way, or has failed."""
        if held:
            return changed(row, progress=DrainProgress.MOVING, why="")
        if row.progress in (DrainProgress.MOVING, DrainProgress.CONFIRMING) and row.attempts:
            return self._again(row, server.fault.message if server.fault else "its move was taken back")
        return _waits(drain, changed(row, progress=DrainProgress.WAITING), server)

    def _again(self, row: DrainServer, why: str) -> DrainServer:
        if row.attempts >= ATTEMPTS_MAX:
            return changed(row, progress=DrainProgress.LEFT, why=why)
        return changed(
            row, progress=DrainProgress.WAITING, again_at=self._now_us + AGAIN_AFTER_US * row.attempts, why=why
        )

    async def _confirm(self, drain: Drain, row: DrainServer, server: Server, *, held: bool) -> DrainServer:
        """It is elsewhere; the host keeps its disk and its claim until the move is confirmed."""
        at = changed(row, progress=DrainProgress.CONFIRMING, host=server.host or "", why="")
        if held:
            return at
        if not await drain_moves.begun_as(self._context, server, _request(drain)):
            return changed(at, way=MoveMethod.NONE, progress=DrainProgress.LEFT, why=drain_moves.OWNERS_MOVE)
        if not drain.asked.confirm:
            return changed(at, why="it waits for its owner to confirm")
        if self._context.hosts.is_silent(str(server.host)):
            return changed(at, why="its new host is silent, and does not say that it has it")
        try:
            if await moving.is_lost(self._context, server):
                return changed(at, way=MoveMethod.NONE, progress=DrainProgress.LEFT, why=confirm_resize.LOST)
            await drain_moves.confirm_move(self._context, server, _request(drain))
        except Problem as problem:
            return changed(at, why=problem.public)
        return at

    # ------------------------------------------------------------------------------------------------------ moves

    async def _begin(
        self, drain: Drain, rows: list[DrainServer], servers: Mapping[ServerId, Server]
    ) -> tuple[list[DrainServer], int]:
        """Begin moves in the order of the plan."""
        under_way = sum(_on_its_way(each) for each in rows)
        now, begun, changed_rows = self._now_us, 0, list[DrainServer]()
        for row in rows:
            server = servers.get(row.server)
            ready = row.progress is DrainProgress.WAITING and row.again_at <= now and server is not None
            if not ready or server is None or under_way >= drain.asked.concurrency:
                changed_rows.append(row)
                continue
            if await self._held(row.server):
                if not await self._ours(
                    drain, row.server
                ):  # it may take long, and does not count against the limit meanwhile
                    changed_rows.append(changed(row, why=BUSY))
                    continue
                changed_rows.append(
                    changed(row, progress=DrainProgress.MOVING, why="")
                )  # begun before this process led
                under_way += 1
                continue
            moved = await self._move(drain, row, server)
            under_way += moved.progress is DrainProgress.MOVING
            begun += moved.progress is DrainProgress.MOVING
            changed_rows.append(moved)
        return changed_rows, begun

    async def _move(self, drain: Drain, row: DrainServer, server: Server) -> DrainServer:
        tried = changed(row, attempts=row.attempts + 1)
        try:
            await drain_moves.leave(
                self._context,
                server,
                drain_moves.MoveAway(drain.host, drain.asked_by, drain.project, drain.asked.live, drain.asked.across),
                request_id=_request(drain),
            )
        except NotFound:
            return row  # it is being deleted; the next round sees that it is gone
        except (Conflict, Unavailable) as later:
            if isinstance(later, Conflict) and not await self._held(row.server):
                return self._again(tried, later.public)
            # # nothing was tried: another operation works on it, or a database did not answer for a moment
            return changed(row, again_at=self._now_us + AGAIN_AFTER_US, why=later.public)
        except Problem as problem:
            return self._again(tried, problem.public)
        return changed(tried, progress=DrainProgress.MOVING, why="")


def _request(drain: Drain) -> str:
    """The request id that marks the moves of this drain."""
    return f"req-{drain.id}"


def _waits(drain: Drain, row: DrainServer, server: Server) -> DrainServer:
    """It waits for its turn; or it cannot be moved in its state, until its owner changes that."""
    way = drain_moves.way_of(server, live=drain.asked.live)
    if way is MoveMethod.NONE:
        return changed(row, way=way, progress=DrainProgress.LEFT, why=drain_moves.why_none(server))
    if row.progress is DrainProgress.LEFT and row.way is not MoveMethod.NONE:
        return row
    return changed(row, way=way, progress=DrainProgress.WAITING)


def _on_its_way(row: DrainServer) -> bool:
    """Whether it counts against the limit; a server that only waits for its owner does not."""
    return row.progress is DrainProgress.MOVING or (row.progress is DrainProgress.CONFIRMING and not row.why)


def _ended(drain: Drain, now: int) -> Drain:
    """The drain with its end, when nothing is left to do."""
    if any(_on_its_way(each) for each in drain.servers):
        return drain
    left = sum(each.progress is DrainProgress.LEFT for each in drain.servers)
    unfinished = sum(each.progress in (DrainProgress.WAITING, DrainProgress.CONFIRMING) for each in drain.servers)
    if drain.cancel:
        return changed(drain, status=DrainStatus.CANCELLED, ended_at=now, why=f"{left + unfinished} servers stay")
    if unfinished:
        return drain
    if left:
        return changed(drain, status=DrainStatus.INCOMPLETE, ended_at=now, why=f"{left} servers stay")
    return changed(drain, status=DrainStatus.DONE, ended_at=now, why="")


__all__ = ["NAME", "Drains", "DrainsDone"]
