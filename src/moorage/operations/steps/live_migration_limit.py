"""Limits how many guests one host sends at a time, like Nova's `max_concurrent_live_migrations`: further migrations are
`queued`, and start in the order of their requests. A migration that still looks for a host, or makes bindings there, is
not in the queue yet: one that is ready earlier goes first. When the source falls silent, all queued migrations from it
end.

The queue consists of the moves' records in the cell: a record with the status preparing or running holds a place at the
source. The queue could be in the memory of an agent, as in Nova, or of a conductor, whose bulkheads count in one
process only; both lose it when they are killed. A record is not lost, shows users why the move waits, and is ended by
whichever conductor adopts the operation. A record whose operation is over blocks no other move.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, TypeVar

import msgspec

from moorage.model.errors import HostFailed, NotFound, Unavailable
from moorage.model.ids import CellId
from moorage.model.migration import SENDING, Migration, MigrationStatus
from moorage.model.operation import Operation
from moorage.operations.context import SagaContext
from moorage.operations.steps import live_migration, moving
from moorage.operations.steps import servers as records
from moorage.operations.steps.hosts import HOST_SILENT
from moorage.operations.steps.live_positions import LiveMovePath
from moorage.operations.steps.moving import MoveRun
from moorage.operations.steps.server_action import ActionProgress, now_us
from moorage.sql import Tx
from moorage.sql.dialect import alone
from moorage.store.cell import migrations
from moorage.store.region import operations as region_operations
from moorage.store.region import servers as region_servers

logger = logging.getLogger(__name__)

AnswerT = TypeVar("AnswerT")


class _MoveInput(msgspec.Struct, frozen=True):
    migration: str


QUEUED_MAX_S = 7 * 24 * 3600.0
"""How long a live migration waits for its turn."""
OUTAGE_MAX_S = 300.0
"""How long it waits for a database meanwhile, as other steps do; the week is only for its turn."""
POLL_NEXT_S, POLL_MOST_S = 0.25, 5.0
"""How often the first one in the queue polls, and the last one."""
LIVE_SAGA = "live_migrate/"


def move_of(operation: Operation) -> str | None:
    """The live migration that an operation executes; None when it is another kind."""
    if not operation.saga.startswith(LIVE_SAGA):
        return None
    return msgspec.json.decode(operation.asked, type=_MoveInput).migration


async def freed(run: MoveRun, cell: CellId, move: str) -> None:
    """Release the place: the guest stays, so the next migration may start, however long the cleanup elsewhere takes."""
    try:
        await records.change(
            run.context, cell, run.input.server.id, records.fence(run), records.as_it_is, lambda tx: _stays(tx, move)
        )
    except NotFound:
        return  # the move's record goes with the server's


def _stays(tx: Tx, move: str) -> None:
    migration = migrations.get(tx, move)
    if migration is not None and migration.status in SENDING:
        migrations.put(tx, msgspec.structs.replace(migration, stays=True))


async def taken(run: MoveRun, way: LiveMovePath, progress: ActionProgress, **changes: Any) -> None:
    """Write these changes and the status preparing into the move's record, and the progress of its action; queued until its
    turn comes.

    Raises HostFailed when it has waited too long, when it was aborted, or when a database does not answer for too long.
    """
    over, polls = frozenset[str](), 0
    cell, host, most = (
        run.context.cells[way.source.cell],
        way.source.host,
        run.context.settings.max_concurrent_live_migrations,
    )
    in_the_way = await _outlasted(lambda: _enqueue(run, way, over, progress, changes))
    if not in_the_way:
        return

    async def poll() -> Sequence[Migration]:
        nonlocal over, polls
        if await live_migration.is_cancelled(run):  # a hint may be lost, and no commit here would notice the cancel
            raise _final("The live migration was aborted.", live_migration.ABORTED)
        if run.context.hosts.is_silent(host):
            raise _final("The host of the server fell silent before its turn came.", HOST_SILENT)
        over |= await _over(run.context, in_the_way[polls % len(in_the_way)])
        polls += 1
        line = await cell.read(lambda tx: migrations.sending_from(tx, host))
        if any(each.uuid == way.move and now_us() - each.created_at > QUEUED_MAX_S * 1e6 for each in line):
            raise _final("The live migration waited too long for its turn.", live_migration.TIMED_OUT)
        return _before(line, way.move, over, most) or await _enqueue(run, way, over, progress, changes)

    with run.context.aside(run.operation):
        while in_the_way:
            await asyncio.sleep(min(POLL_NEXT_S * len(in_the_way), POLL_MOST_S))
            in_the_way = await _outlasted(poll)


async def _outlasted(once: Callable[[], Awaitable[AnswerT]]) -> AnswerT:
    """Repeat until there is an answer. Raises HostFailed when a database does not answer for too long; errors that
    concern every operation are raised at once.
    """
    loop, pause_s = asyncio.get_running_loop(), POLL_NEXT_S
    until = loop.time() + OUTAGE_MAX_S
    while True:
        try:
            return await once()
        except Unavailable as out:
            if out.excused:
                raise
            if loop.time() + pause_s > until:
                raise _final(f"The live migration waited too long: {out.public}", live_migration.TIMED_OUT) from out
            logger.info("a live migration waits: %s", out)
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 2, POLL_MOST_S)


def _final(why: str, code: str) -> HostFailed:
    """An error that no other host would avoid."""
    problem = HostFailed(why, code=code)
    problem.final = True
    return problem


async def _enqueue(
    run: MoveRun, way: LiveMovePath, over: frozenset[str], progress: ActionProgress, changes: dict[str, Any]
) -> Sequence[Migration]:
    """Take a place, or join the queue. Returns the moves ahead of this one; empty when it has a place."""
    most = run.context.settings.max_concurrent_live_migrations

    def also(tx: Tx) -> Sequence[Migration]:
        alone(tx, f"live migrations from {way.source.host}")
        earlier = _before(migrations.sending_from(tx, way.source.host), way.move, over, most)
        status = MigrationStatus.QUEUED if earlier else MigrationStatus.PREPARING
        moving.with_status(tx, way.move, status, stays=False, **changes)
        if not earlier:
            progress.write(tx, run)
        return earlier

    _, in_the_way = await records.change_with(
        run.context, way.source.cell, run.input.server.id, records.fence(run), records.as_it_is, also
    )
    return in_the_way


def _before(line: Sequence[Migration], move: str, over: Collection[str], most: int) -> list[Migration]:
    """The moves ahead of this one: queued ones with earlier requests, or those that have the places. Empty: it may
    start.
    """
    mine = next((each for each in line if each.uuid == move), None)
    if most <= 0 or (mine is not None and mine.status is not MigrationStatus.QUEUED and not mine.stays):
        return []  # it has its place already, from an earlier execution
    others = [each for each in line if each.uuid != move and each.uuid not in over and not each.stays]
    waiting = [each for each in others if each.status is MigrationStatus.QUEUED]
    earlier = [each for each in waiting if mine is None or each.number < mine.number]
    holding = [each for each in others if each.status is not MigrationStatus.QUEUED]
    return earlier or (holding if len(holding) >= most else [])


async def _over(context: SagaContext, other: Migration) -> frozenset[str]:
    """That move, if no operation executes it any more: then its record is stale, and it blocks no other move."""

    def is_executed(tx: Tx) -> bool:
        where = region_servers.find(tx, other.server)
        operation = None if where is None or where.operation is None else region_operations.get(tx, where.operation)
        return operation is not None and move_of(operation) == other.uuid

    return frozenset() if await context.region.read(is_executed) else frozenset({other.uuid})
