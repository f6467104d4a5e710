"""What a move holds on the old host is released when the record of the move says that it ended, and not before.

Meanwhile it is nobody else's, the server's neither.
"""

import types
from collections.abc import AsyncIterator
from functools import partial

import pytest
import sqlalchemy as sa

from moorage.conductor.reconcilers.orphan_allocations import OrphanAllocations
from moorage.conductor.reconcilers.port_drift import PortDrift
from moorage.model.ids import ConductorId, OperationId
from moorage.model.migration import MigrationStatus, MigrationType
from moorage.model.resources import IPV4_ADDRESS
from moorage.model.server import Server
from moorage.model.verdict import Claimed
from moorage.model.world import Ask
from moorage.operations.accept import accepted
from moorage.operations.interfaces import port_sync
from moorage.operations.interfaces.port_sync import SyncOutcome
from moorage.operations.registry import SAGAS
from moorage.operations.steps import servers as records
from moorage.saga import MemoryJournal, execute, first_lines
from moorage.sql import Tx
from moorage.store.cell import migrations as cell_migrations
from moorage.store.cell import servers as cell_servers
from moorage.store.region import operations as region_operations
from moorage.store.region import servers as region_servers
from moorage.store.region.placement import claim_statements
from moorage.store.region.placement.claim_statements import Owner
from moorage.store.servers import replace_server
from moorage_testing.fake_server_service import a_migration
from moorage_testing.region_fixture import PROJECT, SERVER, SmallRegion, a_boot, a_server
from moorage_testing.region_moved import MOVE, recorded, resizing
from moorage_testing.region_network import SEGMENTS
from moorage_testing.saga_proof import PROVED_OPERATION

BOOT = OperationId("boot")


@pytest.fixture
async def small() -> AsyncIterator[SmallRegion]:
    """A region with one ACTIVE server that nobody holds."""
    region = await SmallRegion.open()
    await region.fresh(a_server(), BOOT)
    boot = SAGAS["boot/1"]
    await execute(boot, BOOT, a_boot(BOOT), region.context, MemoryJournal(first_lines(boot), region.transact))
    yield region
    await region.close()


async def moved(small: SmallRegion, status: MigrationStatus | None) -> str:
    """The server holds a second host, and what it had on the first one is held by its move; how far that is, its cell knows."""
    server = (await records.find(small.context, SERVER)).server
    assert server is not None
    assert server.cell is not None
    migration = a_migration(1, MigrationType.RESIZE, status or MigrationStatus.FINISHED, server=SERVER)
    ask = Ask(resources={"VCPU": 1}, cells=(server.cell,), not_on=() if server.provider is None else (server.provider,))
    there = (await small.engine.rank_fresh(ask)).best[0]
    owner = Owner(SERVER, PROJECT, "u", operation="resize", attempt=1)
    answer = await small.region.write(lambda tx: small.engine.move(tx, owner, migration.uuid, there, ask))
    assert isinstance(answer, Claimed)
    if status is not None:
        await small.cells[server.cell].write(partial(cell_migrations.put, migration=migration))
    return migration.uuid


@pytest.mark.parametrize(
    ("status", "gone"),
    [
        (MigrationStatus.FINISHED, False),
        (MigrationStatus.RUNNING, False),
        (MigrationStatus.CONFIRMED, True),
        (MigrationStatus.ERROR, True),
        (None, False),
    ],
)
async def test_the_claim_of_a_move_is_released_when_its_record_says_that_it_ended(
    small: SmallRegion, status: MigrationStatus | None, gone: bool
) -> None:
    """One that no cell has a record of stays: that is not a word (RULES §22)."""
    uuid = await moved(small, status)
    held = partial(claim_statements.held, consumer=uuid)
    assert await small.region.read(held)
    done = await OrphanAllocations(small.context).run()
    assert done.released == ((uuid,) if gone else ())
    assert bool(await small.region.read(held)) is not gone
    assert (await small.held())["claims"] > 0, "the server's own claim stays"
    assert done.drifted == 0


@pytest.mark.parametrize(("deleted", "ended", "gone"), [(True, 1, True), (False, 1, False), (True, None, False)])
async def test_the_claim_of_an_unrecorded_move_is_released_when_its_server_is_deleted(
    small: SmallRegion, deleted: bool, ended: int | None, gone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cell that was put back to before the move knows nothing of it; that its server was deleted is a word that names it."""
    uuid = await moved(small, None)
    made = types.SimpleNamespace(server=SERVER, ended_at=ended)
    monkeypatch.setattr(region_operations, "get", lambda _, operation: made if operation == "resize" else None)
    if deleted:
        await small.region.write(lambda tx: region_servers.mark_deleted(tx, SERVER, 1))
        await small.region.write(lambda tx: region_servers.release(tx, SERVER, BOOT))
    done = await OrphanAllocations(small.context).run()
    assert (uuid in done.released) is gone
    assert bool(await small.region.read(partial(claim_statements.held, consumer=uuid))) is not gone
    assert done.drifted == 0


@pytest.mark.parametrize(
    ("status", "deleted", "gone"),
    [
        (MigrationStatus.MIGRATING, True, True),
        (MigrationStatus.MIGRATING, False, False),
        (MigrationStatus.DONE, True, False),
    ],
)
async def test_the_claim_of_an_open_move_is_released_when_its_server_is_deleted(
    small: SmallRegion, status: MigrationStatus, deleted: bool, gone: bool
) -> None:
    """By a cell that was put back to its midst; what a dead host may keep stays until that is back."""
    uuid = await moved(small, status)
    deleting = OperationId("deleting")
    if deleted:
        await small.hand_to(deleting)
        await small.region.write(lambda tx: region_servers.mark_deleted(tx, SERVER, 1))
        assert (await OrphanAllocations(small.context).run()).released == (), "its delete is under way"
        await small.region.write(lambda tx: region_servers.release(tx, SERVER, deleting))
    done = await OrphanAllocations(small.context).run()
    assert (uuid in done.released) is gone
    assert bool(await small.region.read(partial(claim_statements.held, consumer=uuid))) is not gone


async def test_the_claim_of_a_running_move_is_left_alone(small: SmallRegion) -> None:
    uuid = await moved(small, MigrationStatus.REVERTED)
    await small.hand_to(OperationId("somebody"))
    assert (await OrphanAllocations(small.context).run()).released == ()
    assert await small.region.read(partial(claim_statements.held, consumer=uuid))


async def moved_across(small: SmallRegion) -> Server:
    """The server waits to be confirmed on a host of another segment, and nobody holds it; its record as it was before."""
    asked, saga = await resizing(small, routed=True, across=True), SAGAS["resize/1"]
    before, conductor = await recorded(small), ConductorId("conductor")
    new = accepted(saga, PROVED_OPERATION, before, asked, owner=conductor, user="u", seq=2, request_id="req-1")
    await small.region.write(lambda tx: region_operations.accept(tx, [new]))
    await execute(saga, PROVED_OPERATION, asked, small.context, MemoryJournal(first_lines(saga), small.transact))
    return before


async def put_back(small: SmallRegion, before: Server) -> None:
    """The cell's database is of before the move."""
    now = await recorded(small)
    assert now.cell is not None

    def work(tx: Tx) -> None:
        assert replace_server(tx, cell_servers.servers, before, generation=now.generation)
        tx.run(sa.delete(cell_migrations.migrations))

    await small.cells[now.cell].write(work)


async def test_an_address_kept_for_a_revert_is_not_claimed_for_the_server_too(
    small: SmallRegion,
) -> None:
    """Each of the two that its port has is claimed once, whatever the record of a cell that was put back says."""
    own, other = SEGMENTS
    before = await moved_across(small)
    addresses = [each.address for each in (await recorded(small)).nics[-1].addresses]
    await put_back(small, before)
    assert [each.address for each in (await recorded(small)).nics[-1].addresses] != addresses

    async def each_has_its_own() -> None:
        rows = await small.region.read(lambda tx: claim_statements.held_of(tx, IPV4_ADDRESS))
        assert rows == {SERVER: {(other, IPV4_ADDRESS): 1}, MOVE: {(own, IPV4_ADDRESS): 1}}
        assert await small.region.read(claim_statements.drift) == []

    await each_has_its_own()
    done = await PortDrift(small.context).run()
    assert (done.mended, done.amiss, done.waiting) == ((SERVER,), (), ())
    await each_has_its_own()
    shown = (await recorded(small)).nics[-1]
    assert ([each.address for each in shown.addresses], shown.segment) == (addresses, other)
    assert (await PortDrift(small.context).run()).mended == ()
    assert await port_sync.reconcile(small.context, SERVER) is SyncOutcome.TRUE, (
        "as when the network service tells of it"
    )
    await each_has_its_own()
