"""Which operations a conductor adopts and begins, and when it tries again."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from tests.helpers.conductor_leases import FIRST, ME, OTHER, Ask, SteppedClock, T, carry_saga, row, write

from moorage.bus.memory import MemoryBus
from moorage.conductor import worker
from moorage.conductor.dispatcher import BusDispatcher
from moorage.conductor.operation_runner import AGAIN_MOST_S
from moorage.conductor.options import ConductorOptions
from moorage.conductor.worker import Conductor
from moorage.model.errors import Unavailable, UnknownOutcome
from moorage.model.operation import OperationStatus
from moorage.operations.context import SagaContext
from moorage.saga import Saga
from moorage.sql import Database, Tx, current_label
from moorage.store.region import conductors
from moorage_testing.region_fixture import SmallRegion, a_server
from moorage_testing.waiting import until


class Held(Exception):
    pass


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open(tmp_path)
    await region.fresh(a_server(), FIRST)
    yield region
    await region.close()


async def test_operations_of_an_unknown_saga_are_adopted_once_a_conductor_knows_it(
    small: SmallRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, seen = asyncio.Event(), list[bool]()
    gate.set()
    saga = carry_saga(gate, seen)
    await small.region.write(lambda tx: conductors.take(tx, OTHER, (), "host", ["boot/1"]))
    await write(small, saga, OTHER, FIRST)
    gone = conductors.conductors.delete().where(conductors.conductors.c.id == OTHER)
    await small.region.write(lambda tx: tx.run(gone))  # tidied away long ago
    conductor = Conductor(ME, small.context, MemoryBus(), SteppedClock())
    await conductor.lease.take()
    assert await conductor.adopt() == 0
    monkeypatch.setitem(worker.SAGAS, saga.name, saga)
    assert await conductor.adopt() == 1
    await conductor.poll()
    await until(lambda: seen == [True])
    await until(lambda: conductor.executing == 0)


class Full:
    """The region, on a disk that is full: reads answer, and every commit fails when all was written."""

    def __init__(self, under: Database) -> None:
        self.under = under
        self.full = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.under, name)

    async def write(self, work: Callable[[Tx], T]) -> T:
        if not self.full or current_label() == "lease":
            return await self.under.write(work)

        def taken_back(tx: Tx) -> None:
            work(tx)
            raise Held

        try:
            await self.under.write(taken_back)
        except Held:
            raise UnknownOutcome("the disk is full") from None
        raise AssertionError


async def test_after_a_write_of_unknown_outcome_an_operation_waits_longer_each_time(
    small: SmallRegion, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gate, seen = asyncio.Event(), list[bool]()
    gate.set()
    saga = carry_saga(gate, seen)
    monkeypatch.setitem(worker.SAGAS, saga.name, saga)
    full, clock = Full(small.region), SteppedClock()
    context = dataclasses.replace(small.context, region=cast("Database", full))
    conductor = Conductor(ME, context, MemoryBus(), clock, ConductorOptions(lease_s=1e6))
    await conductor.lease.take()
    await write(small, saga, ME, FIRST)
    await conductor.poll()
    await until(lambda: len(clock.slept) >= 8)
    full.full = False
    await until(lambda: conductor.executing == 0)
    assert (await row(small)).status is OperationStatus.DONE
    assert len(seen) <= len(clock.slept) + 1, "a pause before each time"
    for number, pause_s in enumerate(clock.slept):
        whole_s = min(0.5 * 2**number, AGAIN_MOST_S)
        assert whole_s / 2 <= pause_s <= whole_s
    assert len([each for each in caplog.records if "read again after a pause" in each.getMessage()]) == 1


async def test_waiting_boots_delay_no_stop_or_delete(small: SmallRegion, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, seen = asyncio.Event(), list[bool]()
    boots = msgspec_renamed(carry_saga(gate, seen), "boot/99")
    opened, done = asyncio.Event(), list[bool]()
    opened.set()
    others = [msgspec_renamed(carry_saga(opened, done), name) for name in ("power/99", "delete/99")]
    for saga in (boots, *others):
        monkeypatch.setitem(worker.SAGAS, saga.name, saga)
    conductor = Conductor(ME, small.context, MemoryBus(), SteppedClock(), ConductorOptions(lease_s=1e6))
    await conductor.lease.take()
    await write(small, boots, ME, *(f"boot-{number}" for number in range(1_500)))
    await conductor.poll()
    await until(lambda: len(seen) == 250)  # what one project gets
    for saga in others:
        await write(small, saga, ME, saga.name)
    await conductor.poll()
    await until(lambda: len(done) == 2)
    assert conductor.bulkheads.waiting <= 5_000
    for task in list(conductor._tasks.values()):
        task.cancel()
    await until(lambda: conductor.executing == 0)


def msgspec_renamed(saga: Saga[Ask, SagaContext], name: str) -> Saga[Ask, SagaContext]:
    return Saga(name, Ask, *saga.steps)


async def test_a_saga_unknown_to_a_living_conductor_is_refused(small: SmallRegion) -> None:
    conductor = Conductor(ME, small.context, MemoryBus(), SteppedClock())
    await conductor.lease.take()
    await conductor.adopt()
    apart, local = BusDispatcher(small.region, MemoryBus()), BusDispatcher(small.region, MemoryBus(), conductor)
    assert await apart.choose("boot/1") == ME
    assert await local.choose("boot/1") == ME
    await small.region.write(lambda tx: conductors.take(tx, OTHER, (), "old-host", ["boot/0"]))
    await conductor.adopt()
    for dispatcher in (BusDispatcher(small.region, MemoryBus()), local):
        with pytest.raises(Unavailable) as refused:
            await dispatcher.choose("boot/1")
        assert "all conductors run this release" in refused.value.public
        assert "old-host" in refused.value.private
    await small.region.write(lambda tx: conductors.retire(tx, OTHER))
    await conductor.adopt()
    assert await local.choose("boot/1") == ME
    assert await BusDispatcher(small.region, MemoryBus()).choose("boot/1") == ME
