"""What a host gets about a server that is evacuated from it, and what ends when it returns without the guest."""

from functools import partial

import pytest
import sqlalchemy as sa
from tests.helpers.cell_conductor import BOOT, ON, CellUnderTest, at, known, said_of

from moorage.bus.host_messages import ReportWanted, ServersOfHost
from moorage.model.fencing_token import UNDO, FencingToken
from moorage.model.migration import Migration, MigrationStatus, MigrationType
from moorage.operations.records import hosts as words
from moorage.sql import Tx
from moorage.store.cell import hosts as cell_hosts
from moorage.store.cell import migrations as cell_migrations
from moorage.store.cell import servers as cell_servers
from moorage.store.region.placement import claim_statements
from moorage.store.region.placement.tables import consumers
from moorage_testing.fake_server_service import a_migration
from moorage_testing.region_fixture import SERVER

__all__ = ["at"]


async def evacuation(at: CellUnderTest, status: MigrationStatus, *, there: bool) -> str:
    """The server leaves its host; `there`: its record is on the other one already, and its claim is the move's."""
    elsewhere = next(name for name in ("host1", "host3") if name != at.host)
    kind = MigrationType.EVACUATION
    migration = a_migration(1, kind, status, server=SERVER, source_host=at.host, dest_host=elsewhere)
    table = cell_servers.servers

    def work(tx: Tx) -> None:
        cell_migrations.put(tx, migration)
        if there:
            tx.run(table.update().values(host=elsewhere))

    await at.small.cells[at.cell].write(work)
    return migration.uuid


async def recorded(at: CellUnderTest, uuid: str) -> Migration:
    found = await at.small.cells[at.cell].read(partial(cell_migrations.get, uuid=uuid))
    assert found is not None
    return found


@pytest.mark.parametrize("status", [MigrationStatus.ACCEPTED, MigrationStatus.PRE_MIGRATING, MigrationStatus.MIGRATING])
async def test_the_old_guest_is_kept_off_until_the_server_starts_elsewhere(
    at: CellUnderTest, status: MigrationStatus
) -> None:
    """A claim elsewhere takes nothing; from `migrating` on the old guest goes, and one that the move switched off stays so."""
    await at.held()
    await at.small.region.write(lambda tx: tx.run(sa.update(consumers).values(operation=BOOT, attempt=1)))
    await evacuation(at, status, there=False)
    said = await said_of(at, at.host)
    assert said is not None
    if status is MigrationStatus.MIGRATING:
        assert (said.here, said.gone, said.turn) == (False, False, FencingToken(0, 1 << 20, UNDO))
    else:
        assert (said.here, said.running) == (True, False)


async def test_a_returned_host_destroys_the_guest_and_then_its_claim_is_released(at: CellUnderTest) -> None:
    await known(at)
    uuid = await evacuation(at, MigrationStatus.DONE, there=True)
    await at.small.region.write(lambda tx: tx.run(sa.update(consumers).values(uuid=uuid)))
    allocations = sa.text("UPDATE allocations SET consumer = :uuid")
    await at.small.region.write(lambda tx: tx.run(allocations.bindparams(uuid=uuid)))
    held = partial(claim_statements.held, consumer=uuid)
    at.heard(ReportWanted)
    await at.say(at.report(ON))
    (told,) = at.heard(ServersOfHost)
    assert [(each.server, each.here) for each in told.servers] == [(SERVER, False)]
    assert (await recorded(at, uuid)).status is MigrationStatus.DONE
    assert await at.small.region.read(held), "what the leftover guest uses is nobody else's"
    await at.say(at.report({}))
    assert (await recorded(at, uuid)).status is MigrationStatus.COMPLETED
    assert not await at.small.region.read(held)
    await at.say(at.report({}))
    assert (await recorded(at, uuid)).status is MigrationStatus.COMPLETED


async def test_removing_a_host_ends_evacuations_from_it(at: CellUnderTest) -> None:
    await known(at)
    uuid = await evacuation(at, MigrationStatus.DONE, there=True)
    await at.small.region.write(lambda tx: tx.run(sa.update(consumers).values(uuid=uuid)))
    allocations = sa.text("UPDATE allocations SET consumer = :uuid")
    await at.small.region.write(lambda tx: tx.run(allocations.bindparams(uuid=uuid)))
    cell = at.small.cells[at.cell]
    host = await cell.read(lambda tx: cell_hosts.named(tx, at.host))
    assert host is not None
    await words.delete(at.small.region, dict(at.small.cells), cell, host, 1)
    assert (await recorded(at, uuid)).status is MigrationStatus.COMPLETED
    assert not await at.small.region.read(partial(claim_statements.held, consumer=uuid))
