"""A cell's conductor tells hosts which guests are theirs while operations and moves are under way."""

import pytest
import sqlalchemy as sa
from tests.helpers.cell_conductor import BOOT, ON, CellUnderTest, at, known, said_of

from moorage.bus.host_messages import (
    ReportWanted,
    ServersOfHost,
    ServerTurn,
)
from moorage.model.fencing_token import LAST_ATTEMPT, UNDO, FencingToken
from moorage.model.guest import PowerState
from moorage.model.ids import ServerId
from moorage.model.migration import MigrationStatus, MigrationType
from moorage.model.server import VmState
from moorage.sql import Tx
from moorage.store.cell import migrations as cell_migrations
from moorage.store.cell import server_queries
from moorage.store.cell import servers as cell_servers
from moorage.store.region import servers as region_servers
from moorage.store.region.placement.tables import consumers
from moorage_testing.fake_server_service import a_migration
from moorage_testing.region_fixture import SERVER

__all__ = ["at"]


# ---------------------------------------------------------------------------------------------- operations under way


async def test_an_attempt_on_the_next_host_ends_the_guest_of_the_earlier_host(at: CellUnderTest) -> None:
    """The boot is not over: what it began on the host that fell silent is refused there, and its guest goes."""
    await at.held()
    claimed = sa.update(consumers).values(operation=BOOT, attempt=2)
    await at.small.region.write(lambda tx: tx.run(claimed))
    elsewhere = next(name for name in ("host1", "host3") if name != at.host)
    told = {each.server: each for each in await at.conductor.servers_of(elsewhere, (SERVER,))}
    assert told[SERVER] == ServerTurn(SERVER, FencingToken(1, 1, UNDO), here=False)
    here = {each.server: each for each in await at.conductor.servers_of(at.host, (SERVER,))}
    assert here[SERVER].here
    assert here[SERVER].over == 0, "the boot may still go on elsewhere"


async def test_a_host_learns_that_a_server_is_elsewhere(at: CellUnderTest) -> None:
    await known(at)
    where = await at.small.region.read(lambda tx: region_servers.find(tx, SERVER))
    assert where is not None
    elsewhere = next(name for name in ("host1", "host3") if name != at.host)
    (told,) = await at.conductor.servers_of(elsewhere, (SERVER,))
    assert (told.here, told.gone) == (False, False)
    assert told.turn == FencingToken(where.op_seq, LAST_ATTEMPT, UNDO)
    (told,) = await at.conductor.servers_of(at.host, (SERVER,))
    assert (told.here, told.over) == (True, where.op_seq), "it is built, and stays there"


# ---------------------------------------------------------------------------------------------- moves


async def move(at: CellUnderTest, status: MigrationStatus, *, there: bool) -> str:
    """The server is moved from its host; `there`: its record is on the other host already, which is answered."""
    elsewhere = next(name for name in ("host1", "host3") if name != at.host)
    migration = a_migration(1, MigrationType.RESIZE, status, server=SERVER, source_host=at.host, dest_host=elsewhere)
    table = cell_servers.servers

    def work(tx: Tx) -> None:
        cell_migrations.put(tx, migration)
        if there:
            tx.run(table.update().values(host=elsewhere))

    await at.small.cells[at.cell].write(work)
    return elsewhere


async def test_a_guest_is_kept_on_the_source_host_until_the_move_ends(at: CellUnderTest) -> None:
    await known(at)
    elsewhere = await move(at, MigrationStatus.FINISHED, there=True)
    for host in (at.host, elsewhere):
        said = await said_of(at, host)
        assert said is not None
        assert said.here, host
    await move(at, MigrationStatus.CONFIRMED, there=True)
    gone = await said_of(at, at.host)
    assert gone is not None
    assert (gone.here, gone.gone) == (False, False)
    await at.small.region.write(lambda tx: region_servers.mark_deleted(tx, SERVER, 1))
    await move(at, MigrationStatus.FINISHED, there=True)
    deleted = await said_of(at, at.host)
    assert deleted is not None
    assert deleted.gone, "a delete takes both"


async def test_a_moved_guest_that_was_off_is_not_started_after_its_host_was_off(at: CellUnderTest) -> None:
    """A move may wait for days in a queue; its guest is what its record says."""
    await known(at)
    await move(at, MigrationStatus.MIGRATING, there=False)
    running = await said_of(at, at.host)
    paused = cell_servers.servers.update().values(vm_state=VmState.PAUSED.value)
    await at.small.cells[at.cell].write(lambda tx: tx.run(paused))
    still = await said_of(at, at.host)
    assert running is not None
    assert still is not None
    assert [(each.here, each.running) for each in (running, still)] == [(True, True), (True, False)]


async def test_a_claim_on_another_host_does_not_remove_the_guest_of_a_moving_server(at: CellUnderTest) -> None:
    """The move has claimed its destination, and its guest is switched off in a moment; nothing calls it over."""
    await at.held()
    claimed = sa.update(consumers).values(operation=BOOT, attempt=1)
    await at.small.region.write(lambda tx: tx.run(claimed))
    elsewhere = await move(at, MigrationStatus.MIGRATING, there=False)
    other = at.small.engine.host_named(elsewhere)
    await at.small.region.write(lambda tx: tx.run(sa.update(consumers).values(host=other)))
    said = await said_of(at, at.host)
    assert said is not None
    assert said.here
    assert await said_of(at, elsewhere) is None, "the guest that is made there is nobody's business but the operation's"


async def test_the_second_guest_of_a_server_that_was_moved_is_expected(at: CellUnderTest) -> None:
    """Digests of both hosts agree with the records, so no report is asked for because of it."""
    await known(at)
    elsewhere = await move(at, MigrationStatus.FINISHED, there=True)
    off = {SERVER: PowerState.SHUTDOWN}
    states = await at.small.cells[at.cell].read(lambda tx: server_queries.power_states(tx, (at.host, elsewhere)))
    assert states == {at.host: off, elsewhere: {SERVER: PowerState.RUNNING}}
    await at.say(at.beat(1, off, changed=off))
    await at.compare()
    assert at.heard(ReportWanted) == []
    await at.say(at.report(off))
    assert at.heard(ServersOfHost) == []


@pytest.mark.parametrize("status", [MigrationStatus.PREPARING, MigrationStatus.RUNNING])
async def test_a_place_prepared_for_a_live_migration_is_expected(at: CellUnderTest, status: MigrationStatus) -> None:
    """Its networks may take minutes to be plugged, its memory may be sent for hours; a digest that differs otherwise is asked about all the same."""
    await known(at)
    coming, live = ServerId("coming"), MigrationType.LIVE_MIGRATION
    row = a_migration(1, live, status, server=coming, source_host="far", dest_host=at.host)
    await at.small.cells[at.cell].write(lambda tx: cell_migrations.put(tx, row))
    place = {coming: PowerState.PAUSED}
    await at.say(at.beat(1, {**ON, **place}, changed=place))
    await at.compare()
    assert at.heard(ReportWanted) == []
    on = {coming: PowerState.RUNNING}
    await at.say(at.beat(2, {**ON, **on}, changed=on))
    await at.compare()
    assert at.heard(ReportWanted)
