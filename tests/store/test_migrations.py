"""Records of moves: one row per move however often it is written, lists by key, and removal."""

from functools import partial

import msgspec
import pytest

from moorage.model.ids import ServerId, new_uuid
from moorage.model.migration import MigrationStatus, MigrationType
from moorage.sql import Database
from moorage.store.cell import migrations
from moorage.store.cell.migrations import MigrationQuery, place_of
from moorage.store.cell.tables import cell_metadata
from moorage_testing.fake_server_service import a_migration


@pytest.fixture
async def cell(database: Database) -> Database:
    await database.create(cell_metadata)
    return database


async def test_a_move_written_twice_is_one_row_with_one_number(cell: Database) -> None:
    begun = a_migration(1, MigrationType.RESIZE, MigrationStatus.PRE_MIGRATING)
    for _ in range(2):
        await cell.write(partial(migrations.put, migration=begun))
    first = await cell.read(lambda tx: migrations.get(tx, begun.uuid))
    assert first is not None
    assert first == msgspec.structs.replace(begun, number=first.number)
    assert await cell.read(lambda tx: migrations.open_of(tx, begun.server)) == [first]
    ended = msgspec.structs.replace(first, status=MigrationStatus.CONFIRMED, updated_at=first.updated_at + 1)
    await cell.write(partial(migrations.put, migration=ended))
    assert await cell.read(lambda tx: migrations.of_number(tx, begun.server, first.number)) == ended
    assert await cell.read(lambda tx: migrations.of_number(tx, ServerId(new_uuid()), first.number)) is None
    assert await cell.read(lambda tx: migrations.open_of(tx, begun.server)) == []


async def test_pages_list_every_move_once(cell: Database) -> None:
    at = a_migration().created_at
    for number in range(7):
        await cell.write(partial(migrations.put, migration=a_migration(number, created_at=at + number // 3)))
    whole = await cell.read(lambda tx: migrations.listed(tx, MigrationQuery(100)))
    assert whole == sorted(whole, key=place_of, reverse=True)
    seen = list(await cell.read(lambda tx: migrations.listed(tx, MigrationQuery(2))))
    while page := await cell.read(partial(migrations.listed, query=MigrationQuery(2, after=place_of(seen[-1])))):
        seen += page
    assert seen == whole


async def test_old_moves_are_removed(cell: Database) -> None:
    other = ServerId(new_uuid())
    for number in range(5):
        status = MigrationStatus.FINISHED if number == 0 else MigrationStatus.CONFIRMED
        await cell.write(partial(migrations.put, migration=a_migration(number, status=status)))
    await cell.write(partial(migrations.put, migration=a_migration(9, server=other)))
    assert await cell.write(lambda tx: migrations.shorten(tx, most=2)) == 2, "the open one stays, old as it is"
    left = await cell.read(lambda tx: migrations.listed(tx, MigrationQuery(100)))
    assert [each.uuid[-1] for each in left] == ["9", "4", "3", "0"]
    await cell.write(lambda tx: migrations.forget(tx, [other]))
    assert len(await cell.read(lambda tx: migrations.listed(tx, MigrationQuery(100)))) == 3
