"""The fence of a server's row in its cell: a write that hung, and lands late, changes nothing (docs/decisions/0009)."""

import msgspec
import pytest

from moorage.model.errors import Stale
from moorage.model.ids import FlavorId, OperationId, ServerId
from moorage.model.server import FlavorCopy, Server, VmState
from moorage.sql.engine import Database
from moorage.store.cell import servers
from moorage.store.cell.servers import Fence
from moorage.store.cell.tables import cell_metadata

SERVER = Server(
    id=ServerId("00000000-0000-4000-8000-000000000001"),
    project="p1",
    user="u1",
    name="web",
    hostname="web",
    created_at=1_000_000,
    flavor=FlavorCopy(FlavorId("1"), "m1.tiny", 1, 512, 1),
)
DO, ANNOUNCE, UNDO, NEXT_DO = 20, 23, 28, 38


def by(line: int, *, epoch: int = 1, seq: int = 1) -> Fence:
    return Fence(OperationId("boot"), seq, epoch, line)


@pytest.fixture(autouse=True)
async def tables(database: Database) -> None:
    await database.create(cell_metadata)


async def row_of(database: Database) -> Server | None:
    return await database.read(lambda tx: servers.get(tx, SERVER.id))


async def test_a_record_write_that_arrives_after_its_undo_is_refused(database: Database) -> None:
    """Same operation, same epoch: the cell hung, the boot was cancelled, and the undo was first."""
    await database.write(lambda tx: servers.remove(tx, SERVER.id, by(UNDO)))
    with pytest.raises(Stale):
        await database.write(lambda tx: servers.record(tx, SERVER, by(DO)))
    assert await row_of(database) is None


async def test_the_next_attempt_records_where_an_earlier_record_was_removed(database: Database) -> None:
    await database.write(lambda tx: servers.record(tx, SERVER, by(DO)))
    await database.write(lambda tx: servers.remove(tx, SERVER.id, by(UNDO)))
    await database.write(lambda tx: servers.record(tx, SERVER, by(NEXT_DO)))
    assert await row_of(database) is not None


async def test_a_removal_that_arrives_after_the_next_record_is_ignored(database: Database) -> None:
    await database.write(lambda tx: servers.record(tx, SERVER, by(NEXT_DO)))
    await database.write(lambda tx: servers.remove(tx, SERVER.id, by(UNDO)))
    assert await row_of(database) is not None


async def test_a_record_write_that_arrives_after_active_was_shown_is_refused(database: Database) -> None:
    """Its first try hung, its second was done, and the boot went on."""
    written = await database.write(lambda tx: servers.record(tx, SERVER, by(DO)))
    again = await database.write(lambda tx: servers.record(tx, SERVER, by(DO)))
    assert again == written
    active = msgspec.structs.replace(again, vm_state=VmState.ACTIVE)
    await database.write(lambda tx: servers.write(tx, active, by(ANNOUNCE)))
    with pytest.raises(Stale):
        await database.write(lambda tx: servers.record(tx, SERVER, by(DO)))
    found = await row_of(database)
    assert found is not None
    assert found.vm_state is VmState.ACTIVE


async def test_an_adopter_may_repeat_earlier_steps(database: Database) -> None:
    """It asks whether the server was announced, whose line is behind that of the record it writes then."""
    await database.write(lambda tx: servers.record(tx, SERVER, by(DO)))
    await database.write(lambda tx: servers.take_over(tx, SERVER.id, by(ANNOUNCE, epoch=2)))
    with pytest.raises(Stale):
        await database.write(lambda tx: servers.record(tx, SERVER, by(NEXT_DO)))
    await database.write(lambda tx: servers.record(tx, SERVER, by(DO, epoch=2)))
    await database.write(lambda tx: servers.remove(tx, SERVER.id, by(UNDO, epoch=2)))
    with pytest.raises(Stale):
        await database.write(lambda tx: servers.record(tx, SERVER, by(DO, epoch=2)))


async def test_a_lower_rank_never_lowers_a_fence(database: Database) -> None:
    await database.write(lambda tx: servers.remove(tx, SERVER.id, by(DO, epoch=2)))
    await database.write(lambda tx: servers.remove(tx, SERVER.id, by(UNDO, epoch=1)))
    with pytest.raises(Stale):
        await database.write(lambda tx: servers.record(tx, SERVER, by(NEXT_DO, epoch=1)))
    await database.write(lambda tx: servers.record(tx, SERVER, by(DO, epoch=2)))
