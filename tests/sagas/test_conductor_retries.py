"""What a conductor does with operations that were stuck, or that it could not execute: after a pause, as adopted, and only its own."""

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from moorage.bus.memory import MemoryBus
from moorage.conductor import worker
from moorage.conductor.bulkheads import Places
from moorage.conductor.options import ConductorOptions
from moorage.conductor.worker import STUCK_AGAIN_S, Conductor
from moorage.model.ids import ConductorId, OperationId
from moorage.model.operation import Operation, OperationStatus
from moorage.operations.accept import accepted
from moorage.operations.context import SagaContext
from moorage.saga import Run, Saga, step
from moorage.sql import Tx, current_label
from moorage.store.region import operation_owners, operations
from moorage_testing.region_fixture import SmallRegion, a_server
from moorage_testing.waiting import until

ME, OTHER = ConductorId("me"), ConductorId("other")
FIRST = OperationId("first")
LONG_S = 1_000_000.0
LATE_S = 1.2 * STUCK_AGAIN_S


class Ask(msgspec.Struct, frozen=True):
    name: str = "x"


class Executions:
    """How often it was told, and whether each time as one that may have been begun."""

    def __init__(self) -> None:
        self.unsure: list[bool] = []
        self.bad = True


class Clock:
    def __init__(self) -> None:
        self.time = 100.0

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody sleeps here")


def a_saga(told: Executions) -> Saga[Ask, SagaContext]:
    @step(point_of_no_return=True, no_undo="it goes forward")
    async def carry(run: Run[Ask, SagaContext]) -> None:
        told.unsure.append(run.unsure)

    def ended(tx: object, run: Run[Ask, SagaContext], status: str) -> None:
        if told.bad:
            raise ValueError("as nobody foresaw")

    return Saga("toy/1", Ask, carry, ended=ended)


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open(tmp_path)
    await region.fresh(a_server(), FIRST)
    yield region
    await region.close()


async def a_conductor(small: SmallRegion, clock: Clock) -> Conductor:
    """With a lease, and nobody looking by the clock."""
    conductor = Conductor(ME, small.context, MemoryBus(), clock, ConductorOptions(lease_s=LONG_S))
    await conductor.lease.take()
    return conductor


async def write(
    small: SmallRegion, saga: Saga[Ask, SagaContext], ids: Sequence[OperationId], owner: ConductorId
) -> None:
    new = [accepted(saga, each, a_server(), Ask(), owner=owner, user="u", seq=1, request_id="req-1") for each in ids]
    await small.region.write(lambda tx: operations.accept(tx, new))


async def row(small: SmallRegion, operation: OperationId = FIRST) -> Operation:
    found = await small.region.read(lambda tx: operations.get(tx, operation))
    assert found is not None
    return found


async def quiet(conductor: Conductor) -> None:
    await until(lambda: conductor.executing == 0)


async def test_an_operation_that_failed_to_execute_waits_and_is_executed_as_adopted(
    small: SmallRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, clock = Executions(), Clock()
    saga = a_saga(told)
    monkeypatch.setitem(worker.SAGAS, saga.name, saga)
    await write(small, saga, [FIRST], ME)
    conductor = await a_conductor(small, clock)
    for _ in range(3):
        await conductor.poll()
        await quiet(conductor)
    assert told.unsure == [False], "not again and again, as if nothing had been begun"
    told.bad, clock.time = False, clock.time + LATE_S
    await conductor.poll()
    await quiet(conductor)
    assert told.unsure == [False, True]
    assert (await row(small)).status is OperationStatus.DONE


async def test_a_stuck_operation_adopted_by_another_conductor_is_left_to_it(
    small: SmallRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, clock = Executions(), Clock()
    saga = a_saga(told)
    monkeypatch.setitem(worker.SAGAS, saga.name, saga)
    await write(small, saga, [FIRST], ME)
    conductor = await a_conductor(small, clock)
    await conductor.poll()
    await quiet(conductor)
    await small.region.write(lambda tx: operation_owners.adopt(tx, OTHER, [FIRST], {saga.name}, everything=True))
    clock.time += LATE_S
    await conductor.poll()
    await quiet(conductor)
    kept = await row(small)
    assert (kept.owner, kept.epoch, len(told.unsure)) == (OTHER, 2, 1)


async def test_an_operation_of_another_release_is_left_to_its_conductors(
    small: SmallRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RULES §19: in the middle of an upgrade the dead may have told sagas that this conductor has never heard of."""
    told = Executions()
    told.bad = False
    saga = a_saga(told)
    await write(small, saga, [FIRST], OTHER)
    conductor = await a_conductor(small, Clock())
    assert await conductor.adopt() == 0
    assert (await row(small)).owner == OTHER
    monkeypatch.setitem(worker.SAGAS, saga.name, saga)
    assert await conductor.adopt() == 1, "though nobody remembers its owner"
    await conductor.poll()
    await quiet(conductor)
    assert (await row(small)).status is OperationStatus.DONE


async def test_a_stuck_operation_waits_for_a_free_place(small: SmallRegion, monkeypatch: pytest.MonkeyPatch) -> None:
    told, clock = Executions(), Clock()
    told.bad = False
    saga = a_saga(told)
    monkeypatch.setitem(worker.SAGAS, saga.name, saga)
    await write(small, saga, [FIRST], OTHER)
    stuck = operations.operations.update().values(status=OperationStatus.STUCK.value)
    await small.region.write(lambda tx: tx.run(stuck))
    conductor = await a_conductor(small, clock)
    conductor.bulkheads.places = Places(0, 0, 0)
    assert await conductor.adopt() == 1
    await conductor.poll()
    assert told.unsure == []
    conductor.bulkheads.places = Places(1, 1, 1)
    clock.time += LATE_S
    await conductor.poll()
    await quiet(conductor)
    assert told.unsure == [True]
    assert (await row(small)).status is OperationStatus.DONE


async def test_an_operation_found_by_a_poll_before_its_hand_over_is_executed_once(
    small: SmallRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice at once, it would be two operations to the places, one of which is never given back."""
    told = Executions()
    told.bad = False
    saga = a_saga(told)
    monkeypatch.setitem(worker.SAGAS, saga.name, saga)
    new = accepted(saga, FIRST, a_server(), Ask(), owner=ME, user="u", seq=1, request_id="req-1")
    await small.region.write(lambda tx: operations.accept(tx, [new]))
    conductor, read = await a_conductor(small, Clock()), small.region.read

    async def meanwhile(work: Callable[[Tx], Any]) -> Any:
        found = await read(work)
        if current_label() == "fetch":
            conductor.hand_over(new)
        return found

    monkeypatch.setattr(small.region, "read", meanwhile)
    await conductor.poll()
    await quiet(conductor)
    assert told.unsure == [False]
    assert FIRST not in conductor.bulkheads
    assert not conductor.bulkheads._counts
