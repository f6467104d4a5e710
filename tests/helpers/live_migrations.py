"""Live migrations in a small region, and what their tests read of them."""

from typing import Any

from moorage.model.guest import PowerState
from moorage.model.migration import MigrationStatus
from moorage.model.server import Server, VmState
from moorage.operations.live_migrate.live_migrate_input import LiveMigrate
from moorage.operations.registry import SAGAS
from moorage.saga import MemoryJournal, execute, first_lines
from moorage.store.cell import migrations
from moorage_testing.fault_points import ManualClock
from moorage_testing.region_fixture import CELLS, SERVER, SmallRegion
from moorage_testing.region_moved import MOVE, recorded
from moorage_testing.saga_proof import PROVED_OPERATION

SOURCE = "host1"
AT_SOURCE = {(SOURCE, SERVER): PowerState.RUNNING}


async def execute_move(small: SmallRegion, asked: Any) -> None:
    await execute_named(small, "live_migrate/1" if isinstance(asked, LiveMigrate) else "resize/1", asked)


async def execute_named(small: SmallRegion, name: str, asked: Any) -> None:
    saga = SAGAS[name]
    await execute(
        saga,
        PROVED_OPERATION,
        asked,
        small.context,
        MemoryJournal(first_lines(saga), small.transact),
        clock=ManualClock(),
    )


async def status(small: SmallRegion) -> MigrationStatus:
    found = await small.cells[CELLS[0]].read(lambda tx: migrations.get(tx, MOVE))
    assert found is not None
    return found.status


async def assert_moved(small: SmallRegion) -> Server:
    server = await recorded(small)
    assert (server.host != SOURCE, server.vm_state, server.task_state) == (True, VmState.ACTIVE, None)
    assert small.hosts.guests == {(server.host, SERVER): PowerState.RUNNING}
    assert await status(small) is MigrationStatus.COMPLETED
    return server
