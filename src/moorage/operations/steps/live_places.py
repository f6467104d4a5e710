"""How many guests one host sends at a time, as Nova's `max_concurrent_live_migrations`: the others are `queued`, and go in the order in
which they were asked for.

The line is nothing but the moves' records in the cell: a place at the source is held by whose record says that it prepares or is sent.
It could stand in the memory of an agent, where Nova has it, or of a conductor, whose bulkheads count in that one process only; both lose
it when they are killed, and then nobody knows who is next.  A record cannot be lost, says to people what the limit is about, and is
ended by whoever adopts the operation.  One whose operation is over all the same holds nobody up.
"""

import asyncio
from collections.abc import Collection, Sequence
from typing import Any

from moorage.model.errors import HostFailed
from moorage.model.migration import Migration, MigrationStatus
from moorage.operations.rooms import Rooms
from moorage.operations.steps import moving
from moorage.operations.steps import servers as records
from moorage.operations.steps.doing import now_us
from moorage.operations.steps.live import Way
from moorage.operations.steps.moving import MoveRun
from moorage.sql import Tx
from moorage.sql.dialect import alone
from moorage.store.cell import migrations
from moorage.store.region import operations as region_operations
from moorage.store.region import servers as region_servers

QUEUED_MAX_S = 7 * 24 * 3600.0
"""How long a live migration waits for its turn."""
LOOK_NEXT_S, LOOK_MOST_S = 0.25, 5.0
"""How often the first one in line looks, and the last one."""
LIVE_SAGA = "live_migrate/"


async def taken(run: MoveRun, way: Way, **changes: Any) -> None:
    """The move's record says these changes, and that the host prepares; until it is this one's turn, that it is queued.

    Raises HostFailed: it has waited for too long.
    """
    over, looks = frozenset[str](), 0
    cell, host, most = (
        run.rooms.cells[way.source.cell],
        way.source.host,
        run.rooms.settings.max_concurrent_live_migrations,
    )
    in_the_way = await _asked(run, way, over, changes)
    while in_the_way:
        await asyncio.sleep(min(LOOK_NEXT_S * len(in_the_way), LOOK_MOST_S))
        over |= await _over(run.rooms, in_the_way[looks % len(in_the_way)])
        looks += 1
        line = await cell.read(lambda tx: migrations.sending_from(tx, host))
        if any(each.uuid == way.move and now_us() - each.created_at > QUEUED_MAX_S * 1e6 for each in line):
            problem = HostFailed("The live migration waited too long for its turn.", code="live_migration_timed_out")
            problem.final = True
            raise problem
        in_the_way = _before(line, way.move, over, most) or await _asked(run, way, over, changes)


async def _asked(run: MoveRun, way: Way, over: frozenset[str], changes: dict[str, Any]) -> Sequence[Migration]:
    """Take a place, or stand in line: who is in the way; nobody: it has a place."""
    most, found = run.rooms.settings.max_concurrent_live_migrations, list[Migration]()

    def also(tx: Tx) -> None:
        alone(tx, f"live migrations from {way.source.host}")
        found[:] = _before(migrations.sending_from(tx, way.source.host), way.move, over, most)
        moving.with_status(tx, way.move, MigrationStatus.QUEUED if found else MigrationStatus.PREPARING, **changes)

    by, same = records.fence(run), lambda server: server
    await records.change(run.rooms, way.source.cell, run.asked.server.id, by, same, also)
    return tuple(found)


def _before(line: Sequence[Migration], move: str, over: Collection[str], most: int) -> list[Migration]:
    """Who is in this one's way: those that were asked for earlier and wait too, or else those that have the places. Nobody: it may go."""
    mine = next((each for each in line if each.uuid == move), None)
    if most <= 0 or (mine is not None and mine.status is not MigrationStatus.QUEUED):
        return []  # it has its place already: it was told before, or tries another host
    others = [each for each in line if each.uuid != move and each.uuid not in over]
    waiting = [each for each in others if each.status is MigrationStatus.QUEUED]
    earlier = [each for each in waiting if mine is None or each.number < mine.number]
    holding = [each for each in others if each.status is not MigrationStatus.QUEUED]
    return earlier or (holding if len(holding) >= most else [])


async def _over(rooms: Rooms, other: Migration) -> frozenset[str]:
    """That move, if no operation tells it any more: then its record says what is not so, and it is nobody's turn."""

    def is_told(tx: Tx) -> bool:
        where = region_servers.find(tx, other.server)
        found = None if where is None or where.operation is None else region_operations.get(tx, where.operation)
        return found is not None and found.saga.startswith(LIVE_SAGA)

    return frozenset() if await rooms.region.read(is_told) else frozenset({other.uuid})
