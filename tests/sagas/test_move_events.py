"""When the events of a move begin and end, also if another executor goes on with it; and when its destination is shown."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.helpers.live_migrations import execute_named

from moorage.bus.verbs import Verb
from moorage.model.action import ActionEvent
from moorage.model.migration import MigrationStatus
from moorage.model.server import TaskState
from moorage.operations.registry import SAGAS
from moorage.operations.resize.prepare_resize import EVENTS
from moorage.operations.steps import servers as records
from moorage.saga import Killed, MemoryJournal, execute, first_lines
from moorage.store.cell import actions, migrations
from moorage_testing.fault_points import ManualClock
from moorage_testing.region_fixture import CELLS, SERVER, SmallRegion
from moorage_testing.region_moved import MOVE, crossing_cells, recorded, resizing
from moorage_testing.saga_proof import PROVED_OPERATION


@pytest.fixture
async def small() -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open()
    yield region
    await region.close()


async def events_of(small: SmallRegion) -> dict[str, ActionEvent]:
    cell = (await records.find(small.context, SERVER)).cell
    assert cell is not None
    action = await small.cells[cell].read(lambda tx: actions.get(tx, SERVER, "req-resize"))
    assert action is not None
    return {each.name: each for each in action.events}


async def test_an_executor_that_goes_on_keeps_the_times_that_were_shown(small: SmallRegion, monkeypatch: Any) -> None:
    asked, saga = await resizing(small), SAGAS["resize/1"]
    paper, change = MemoryJournal(first_lines(saga), small.transact), small.hosts.change_guest

    async def dies(to: Any, command: Any, server: Any, verb: Verb, *rest: Any) -> Any:
        if verb is Verb.SEND_GUEST:
            raise Killed
        return await change(to, command, server, verb, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(small.hosts, "change_guest", dies)
        with pytest.raises(Killed):
            await execute(saga, PROVED_OPERATION, asked, small.context, paper, clock=ManualClock())
    before = await events_of(small)
    assert [each.result for each in before.values()] == ["Success", "Success", None]
    await execute(saga, PROVED_OPERATION, asked, small.context, paper.adopted(), clock=ManualClock())
    after = await events_of(small)
    assert tuple(after) == EVENTS
    assert {each.result for each in after.values()} == {"Success"}
    assert after[EVENTS[0]].started_at == before[EVENTS[0]].started_at
    for each in EVENTS[1:2]:
        assert (after[each].started_at, after[each].finished_at) == (before[each].started_at, before[each].finished_at)


@pytest.mark.parametrize("saga", ["resize/1", "resize/2"])
async def test_every_event_of_a_resize_takes_its_time(small: SmallRegion, saga: str) -> None:
    await execute_named(small, saga, await (crossing_cells(small) if saga == "resize/2" else resizing(small)))
    for each in (await events_of(small)).values():
        assert each.finished_at is not None
        assert each.started_at < each.finished_at, each


async def test_the_destination_is_shown_before_its_bindings_are_made(small: SmallRegion, monkeypatch: Any) -> None:
    """And once: what is shown does not depend on whether ports can have second bindings."""
    asked, bind, shown = await resizing(small), small.network.bind_inactive, []

    async def bound(*rest: Any, **more: Any) -> Any:
        move = await small.cells[CELLS[0]].read(lambda tx: migrations.get(tx, MOVE))
        assert move is not None
        shown.append((move.status, move.dest_host, (await recorded(small)).task_state))
        return await bind(*rest, **more)

    monkeypatch.setattr(small.network, "bind_inactive", bound)
    await execute_named(small, "resize/1", asked)
    assert shown == [(MigrationStatus.MIGRATING, (await recorded(small)).host, TaskState.RESIZE_MIGRATING)]
