"""The reconciler that purges records of deleted servers and ends abandoned moves."""

import time

import sqlalchemy as sa
from tests.helpers.reconciled_region import small

from moorage.conductor.reconcilers.purge import DELETED_SERVERS_KEPT_US, Tidied, Tidy
from moorage.model.ids import OperationId, ServerId
from moorage.model.migration import Migration, MigrationStatus, MigrationType
from moorage.operations.delete.delete import Delete
from moorage.operations.registry import SAGAS
from moorage.saga import MemoryJournal, execute, first_lines
from moorage.sql import Tx
from moorage.store.cell import migrations
from moorage.store.cell import servers as cell_servers
from moorage.store.region import server_lists
from moorage.store.region import servers as region_servers
from moorage_testing.region_fixture import PROJECT, SERVER, SmallRegion, a_server

__all__ = ["small"]


# ---------------------------------------------------------------------------------------------------------- tidy


async def test_purge_already_fine(small: SmallRegion) -> None:
    before = await small.held()
    assert await Tidy(small.context).run() == Tidied()
    assert await small.held() == before


async def test_servers_deleted_long_ago_are_purged(small: SmallRegion) -> None:
    long_ago = time.time_ns() // 1000 - DELETED_SERVERS_KEPT_US - 1
    old = sa.update(cell_servers.servers).values(deleted_at=long_ago)
    for database in small.cells.values():
        await database.write(lambda tx: tx.run(old))
    assert await Tidy(small.context).run() == Tidied(servers=1)
    assert await Tidy(small.context).run() == Tidied()


async def test_abandoned_moves_of_deleted_servers_are_ended(small: SmallRegion) -> None:
    """Their operation was lost when a database was put back; what was evacuated waits for its host."""
    kinds = {
        "lost": (MigrationType.LIVE_MIGRATION, MigrationStatus.RUNNING),
        "evacuated": (MigrationType.EVACUATION, MigrationStatus.DONE),
    }

    def moves(tx: Tx) -> None:
        for uuid, (kind, status) in kinds.items():
            flavor = a_server().flavor
            move = Migration(uuid, SERVER, kind, status, "u", PROJECT, 1, 1, "host1", old_flavor=flavor)
            migrations.put(tx, move)

    def statuses(tx: Tx) -> list[MigrationStatus]:
        return [found.status for each in kinds if (found := migrations.get(tx, each)) is not None]

    (cell,) = [
        each for each in small.cells.values() if await each.read(lambda tx: cell_servers.get(tx, SERVER)) is not None
    ]
    await cell.write(moves)
    await Tidy(small.context).run()
    assert await cell.read(statuses) == [MigrationStatus.RUNNING, MigrationStatus.DONE], "the server is there"
    day_ago = time.time_ns() // 1000 - 24 * 3600 * 1_000_000
    await cell.write(lambda tx: tx.run(sa.update(cell_servers.servers).values(deleted_at=day_ago)))
    await Tidy(small.context).run()
    assert await cell.read(statuses) == [MigrationStatus.ERROR, MigrationStatus.DONE]


async def test_the_region_purges_deleted_servers_too(small: SmallRegion) -> None:
    def unheard(tx: Tx) -> list[ServerId]:
        return [each.id for each in server_lists.in_cells(tx, [*small.cells], None, 10)]

    assert await small.region.read(unheard) == [SERVER], "while its cell is out"
    operation, delete = OperationId("delete"), SAGAS["delete/4"]
    await small.hand_to(operation)
    asked = Delete(a_server(), seq=2)
    await execute(delete, operation, asked, small.context, MemoryJournal(first_lines(delete), small.transact))
    assert await small.region.read(unheard) == []
    assert await small.region.read(lambda tx: server_lists.partial(tx, SERVER)) is None
    await Tidy(small.context).run()
    assert await small.region.read(lambda tx: region_servers.find(tx, SERVER)) is not None, "not so soon"
    fence = cell_servers.Fence(OperationId("boot"), 1, 1, 1)
    for database in small.cells.values():
        await database.write(lambda tx: cell_servers.take_over(tx, SERVER, fence))
    long_ago = time.time_ns() // 1000 - DELETED_SERVERS_KEPT_US - 1
    old = sa.update(region_servers.servers).values(deleted_at=long_ago)
    await small.region.write(lambda tx: tx.run(old))
    await Tidy(small.context).run()
    assert await small.region.read(lambda tx: region_servers.find(tx, SERVER)) is None
    for database in small.cells.values():
        assert await database.read(lambda tx: tx.rows(sa.select(cell_servers.fences.c.server))) == []
