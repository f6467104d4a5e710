"""Servers whose guests start, or continue, in another cell: the records of both cells afterwards."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from moorage.bus.verbs import Verb
from moorage.model.errors import Invalid
from moorage.model.guest import PowerState
from moorage.model.ids import CellId, OperationId
from moorage.model.migration import Migration, MigrationStatus
from moorage.model.server import VmState
from moorage.operations.context import SagaSettings
from moorage.operations.live_migrate import accept_live_migrate
from moorage.operations.registry import SAGAS
from moorage.operations.resize.revert_resize import RevertResize
from moorage.saga import MemoryJournal, execute, first_lines
from moorage.store.cell import migrations, record_transfer
from moorage_testing.fault_points import ManualClock
from moorage_testing.region_cells import records_held
from moorage_testing.region_evacuated import evacuating_elsewhere
from moorage_testing.region_fixture import CELLS, SERVER, SmallRegion
from moorage_testing.region_moved import MOVE, live_migrating_elsewhere, recorded
from moorage_testing.saga_proof import PROVED_OPERATION

LEFT, THERE = CELLS
REVERTED = OperationId("reverted")


@pytest.fixture
async def small() -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open()
    yield region
    await region.close()


async def execute_saga(small: SmallRegion, name: str, asked: Any, by: OperationId = PROVED_OPERATION) -> None:
    journal = MemoryJournal(first_lines(SAGAS[name]), small.transact)
    await execute(SAGAS[name], by, asked, small.context, journal, clock=ManualClock())


async def held(small: SmallRegion) -> tuple[Any, ...]:
    found = await records_held(small.region, small.cells, SERVER)
    return found["shown in"], found["records"], found["hidden in"], found["amiss"]


async def move_in(small: SmallRegion, cell: CellId) -> Migration:
    found = await small.cells[cell].read(lambda tx: migrations.get(tx, MOVE))
    assert found is not None
    return found


async def test_an_evacuated_server_leaves_a_sealed_record_for_its_old_host(small: SmallRegion) -> None:
    await execute_saga(small, "evacuate/3", await evacuating_elsewhere(small))
    server = await recorded(small)
    assert (server.cell, server.vm_state, server.task_state) == (THERE, VmState.ACTIVE, None)
    assert small.hosts.guests == {(server.host, SERVER): PowerState.RUNNING}
    assert await held(small) == (THERE, [LEFT, THERE], [LEFT], [])
    assert await small.cells[LEFT].read(lambda tx: record_transfer.is_sealed(tx, SERVER))
    left, there = await move_in(small, LEFT), await move_in(small, THERE)
    assert (left.status, left.dest_cell) == (MigrationStatus.DONE, THERE)
    assert (there.status, there.source_cell, there.dest_cell) == (MigrationStatus.DONE, LEFT, THERE)


async def test_a_server_that_may_leave_its_cell_is_evacuated_within_it_first(small: SmallRegion) -> None:
    await execute_saga(small, "evacuate/3", await evacuating_elsewhere(small, may_stay=True))
    assert (await recorded(small)).cell == LEFT
    assert await held(small) == (LEFT, [LEFT], [], [])
    assert ((await move_in(small, LEFT)).status, (await move_in(small, LEFT)).dest_cell) == (MigrationStatus.DONE, None)


async def test_a_live_migrated_server_leaves_nothing_in_its_old_cell(small: SmallRegion) -> None:
    await execute_saga(small, "live_migrate/2", await live_migrating_elsewhere(small))
    server = await recorded(small)
    assert (server.cell, server.vm_state, server.moved) == (THERE, VmState.ACTIVE, None)
    assert small.hosts.guests == {(server.host, SERVER): PowerState.RUNNING}
    assert await held(small) == (THERE, [THERE], [], [])
    move = await move_in(small, THERE)
    assert (move.status, move.source_cell, move.dest_cell) == (MigrationStatus.COMPLETED, LEFT, THERE)


async def test_a_server_that_stays_in_its_cell_is_recorded_there(small: SmallRegion) -> None:
    await execute_saga(small, "live_migrate/2", await live_migrating_elsewhere(small, may_stay=True))
    assert (await recorded(small)).cell == LEFT
    assert await held(small) == (LEFT, [LEFT], [], [])
    assert (await move_in(small, LEFT)).status is MigrationStatus.COMPLETED


async def test_a_guest_lost_in_another_cell_is_reverted_from_the_old_one(
    small: SmallRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its new host has lost the guest, and the old host's disk is all there is: both records stay until somebody decides."""
    asked, tell_host = await live_migrating_elsewhere(small), small.hosts.change_guest

    async def executing(to: Any, command_context: Any, server: Any, verb: Verb, payload: Any = None) -> Any:
        answer = await tell_host(to, command_context, server, verb, payload)
        if verb is Verb.SEND_LIVE:
            small.hosts.guests.clear()
            small.hosts.waits.clear()
        return answer

    monkeypatch.setattr(small.hosts, "change_guest", executing)
    await execute_saga(small, "live_migrate/2", asked)
    server = await recorded(small)
    assert (server.cell, server.vm_state) == (THERE, VmState.ERROR)
    assert server.moved is not None
    assert (server.moved.cell, server.moved.host) == (LEFT, "host1")
    assert await held(small) == (THERE, [LEFT, THERE], [LEFT], [])
    await small.hand_to(REVERTED)
    await execute_saga(small, "revert_resize/2", RevertResize(server, 3, "req-revert", "user-1"), REVERTED)
    server = await recorded(small)
    assert (server.cell, server.host, server.vm_state, server.moved) == (LEFT, "host1", VmState.ACTIVE, None)
    assert small.hosts.guests == {("host1", SERVER): PowerState.RUNNING}
    assert await held(small) == (LEFT, [LEFT], [], [])


async def test_a_host_of_a_cell_that_is_not_linked_is_refused_with_that_reason() -> None:
    world = SimpleNamespace(slots_by_name={"h1": 0, "h2": 1}, cell=[0, 1], cell_names=[LEFT, THERE])
    context: Any = SimpleNamespace(
        cells=SimpleNamespace(ids=CELLS), placement=SimpleNamespace(world=lambda: world), settings=SagaSettings()
    )
    server: Any = SimpleNamespace(cell=LEFT)
    accept_live_migrate.check_host(context, server, "h1")
    with pytest.raises(Invalid, match="could not be found"):
        accept_live_migrate.check_host(context, server, "h2")
    with pytest.raises(Invalid, match="its cell is not linked with the server's"):
        accept_live_migrate.check_host(context, server, "h2", cross_cell=True)
    context.settings = SagaSettings(cell_links=frozenset({frozenset(CELLS)}))
    accept_live_migrate.check_host(context, server, "h2", cross_cell=True)
