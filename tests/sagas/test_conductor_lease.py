"""The conductor's lease: lost, taken again under another id, never renewed by who does not believe itself alive."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
import pytest

from moorage.bus.memory import MemoryBus
from moorage.clients.deadline import LEASE_MARGIN_S
from moorage.conductor import worker
from moorage.conductor.bulkheads import Places
from moorage.conductor.dispatcher import BusDispatcher
from moorage.conductor.lease import ConductorLease, LeaseLost
from moorage.conductor.operation_runner import AGAIN_MOST_S
from moorage.conductor.options import ConductorOptions
from moorage.conductor.reconcile_loop import ReconcileLoop
from moorage.conductor.worker import Conductor
from moorage.model.clock import SystemClock
from moorage.model.errors import Unavailable, UnknownOutcome
from moorage.model.ids import ConductorId, OperationId
from moorage.model.operation import Operation, OperationStatus
from moorage.operations.accept import accepted
from moorage.operations.context import SagaContext
from moorage.saga import Run, Saga, step
from moorage.sql import Database, Tx, current_label
from moorage.store.region import conductors, operations
from moorage_testing.region_fixture import SmallRegion, a_server
from moorage_testing.waiting import until

T = TypeVar("T")
ME, OTHER = ConductorId("me"), ConductorId("other")
FIRST = OperationId("first")


class Ask(msgspec.Struct, frozen=True):
    name: str = "x"


class Held(Exception):
    pass


class Hands:
    """A clock in the test's hands; who sleeps is put off, and counted."""

    def __init__(self) -> None:
        self.time = 100.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


class Slow:
    """The region, whose commits take a while; they are done all the same, also when nobody waits for them any more."""

    def __init__(self, under: Database) -> None:
        self.under = under
        self.delay_s = 0.0
        self.back = asyncio.Event()
        """Set: a commit that waits waits no longer."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.under, name)

    async def write(self, work: Callable[[Tx], T]) -> T:
        done = asyncio.ensure_future(self.under.write(work))
        try:
            async with asyncio.timeout(self.delay_s):
                await self.back.wait()
        except TimeoutError:
            pass  # the time a commit takes here
        return await done


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open(tmp_path)
    await region.fresh(a_server(), FIRST)
    yield region
    await region.close()


def carry_saga(gate: asyncio.Event, seen: list[bool]) -> Saga[Ask, SagaContext]:
    @step(no_undo="nothing is done")
    async def carry(run: Run[Ask, SagaContext]) -> None:
        seen.append(run.unsure)
        await gate.wait()

    return Saga("toy/1", Ask, carry)


async def write(small: SmallRegion, saga: Saga[Ask, SagaContext], owner: ConductorId, *ids: str) -> None:
    new = [
        accepted(saga, OperationId(each), a_server(), Ask(), owner=owner, user="u", seq=1, request_id="r")
        for each in ids
    ]
    await small.region.write(lambda tx: operations.accept(tx, new))


async def row(small: SmallRegion, operation: OperationId = FIRST) -> Operation:
    found = await small.region.read(lambda tx: operations.get(tx, operation))
    assert found is not None
    return found


async def living(small: SmallRegion) -> set[str]:
    return {each[0] for each in await small.region.read(conductors.living)}


async def test_a_conductor_that_lost_its_lease_works_again_within_a_lease_and_a_beat(
    small: SmallRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, seen = asyncio.Event(), list[bool]()
    saga = carry_saga(gate, seen)
    monkeypatch.setitem(worker.SAGAS, saga.name, saga)
    slow = Slow(small.region)
    context = dataclasses.replace(small.context, region=cast("Database", slow))
    conductor = Conductor(
        ME, context, MemoryBus(), SystemClock(), ConductorOptions(lease_s=12.0, beat_s=1.2, look_every_s=0.1)
    )
    await conductor.start()
    try:
        await write(small, saga, ME, FIRST)
        await until(lambda: seen == [False])
        slow.delay_s = 100.0  # commits that hang, and are done
        await until(lambda: not conductor.alive)
        await until(lambda: conductor.executing == 0)
        slow.delay_s = 0.15  # a slow disk
        await until(lambda: conductor.alive, patience_s=13.2)
        assert conductor.id != ME, "a lost lease is not renewed: another is taken"
        assert ME not in await living(small)
        await until(lambda: seen == [False, True])
        now = await row(small)
        assert (now.owner, now.epoch) == (conductor.id, 2)
        gate.set()
        await until(lambda: conductor.executing == 0)
        assert (await row(small)).status is OperationStatus.DONE
    finally:
        await conductor.stop()


async def test_an_overloaded_conductor_recovers(small: SmallRegion, monkeypatch: pytest.MonkeyPatch) -> None:
    """All it has begun stands still until its lease is lost, as long as that is too much at once; it must end all the same."""
    carried, at_once, ended, most = 4, set[str](), set[str](), list[int]()

    @step(no_undo="nothing is done")
    async def heavy(run: Run[Ask, SagaContext]) -> None:
        at_once.add(run.operation)
        most.append(len(at_once))
        try:
            await asyncio.sleep(0.05)
            if len(at_once) > carried:
                conductor.lease.lose()  # what a machine that cannot follow does to it
                conductor._beat_now.set()
                await asyncio.Event().wait()
            ended.add(run.operation)
        finally:
            at_once.discard(run.operation)

    saga = Saga("toy/1", Ask, heavy)
    monkeypatch.setitem(worker.SAGAS, saga.name, saga)
    conductor = Conductor(
        ME,
        small.context,
        MemoryBus(),
        SystemClock(),
        ConductorOptions(lease_s=30.0, beat_s=0.3, look_every_s=0.1, places=Places(actions=64)),
    )
    await conductor.start()
    try:
        ids = [f"each-{number}" for number in range(24)]
        await write(small, saga, ME, *ids)
        await until(lambda: len(ended) == len(ids))
        assert max(most) > carried, "it was too much at first"
    finally:
        await conductor.stop()


async def test_a_conductor_past_its_lease_does_not_renew_it(small: SmallRegion) -> None:
    clock = Hands()
    lease = ConductorLease(ME, small.region, clock, ["boot/1"], lease_s=15.0)
    await lease.take()
    clock.time += 15.0 - LEASE_MARGIN_S
    with pytest.raises(LeaseLost):
        await lease.renew()
    assert not lease.alive
    await lease.take()
    assert lease.alive
    assert lease.id == "me-2"
    assert await living(small) == {"me-2"}, "the one before is ended by who takes the next"


async def test_a_late_renewal_does_not_revive_a_lease(small: SmallRegion) -> None:
    clock = Hands()
    slow = Slow(small.region)
    lease = ConductorLease(ME, cast("Database", slow), clock, ["boot/1"], lease_s=15.0)
    await lease.take()
    slow.delay_s = 100.0
    renewal = asyncio.create_task(lease.renew())
    await asyncio.sleep(0.05)
    clock.time += 20.0
    lease.lose()  # its operations are stopped
    slow.back.set()
    with pytest.raises(LeaseLost):
        await renewal
    assert not lease.alive


async def test_nothing_begins_after_a_gap_before_the_lease_is_renewed(small: SmallRegion) -> None:
    clock = Hands()
    lease = ConductorLease(ME, small.region, clock, ["boot/1"], lease_s=15.0)
    await lease.take()
    lease.tick()
    clock.time += 1.0
    assert not lease.tick()
    clock.time += 8.0  # frozen, for less than the lease
    assert not lease.alive
    assert lease.left_s() == 0.0
    assert lease.tick(), "it was noticed"
    assert not lease.alive, "and that alone helps nothing"
    waiting = asyncio.create_task(lease.held())
    await asyncio.sleep(0)
    assert not waiting.done()
    await lease.renew()
    assert lease.alive
    await waiting
    assert lease.id == ME


async def test_a_lease_that_ended_in_the_database_is_not_renewed(database: Database) -> None:
    await database.create(conductors.conductors.metadata)
    await database.write(lambda tx: conductors.take(tx, ME, (), "host", ["boot/1"]))
    assert await database.write(lambda tx: conductors.renew(tx, ME))
    await database.write(lambda tx: conductors.retire(tx, ME))
    assert not await database.write(lambda tx: conductors.renew(tx, ME))
    assert await database.read(conductors.living) == []
    await database.write(lambda tx: conductors.take(tx, OTHER, (ME,), "host", ["boot/1"]))
    assert [(each.id, each.lives) for each in await database.read(conductors.peers)] == [(ME, False), (OTHER, True)]


async def test_a_database_clock_that_steps_back_keeps_no_dead_conductor_alive(
    small: SmallRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, seen = asyncio.Event(), list[bool]()
    gate.set()
    saga = carry_saga(gate, seen)
    monkeypatch.setitem(worker.SAGAS, saga.name, saga)
    clock = Hands()
    conductor = Conductor(ME, small.context, MemoryBus(), clock, ConductorOptions(lease_s=15.0))
    await conductor.lease.take()
    await small.region.write(lambda tx: conductors.take(tx, OTHER, (), "host", ["boot/1"], 3_600.0))
    await write(small, saga, OTHER, FIRST)
    for _ in range(3):  # its row says it lives for an hour, and it renews
        assert await conductor.adopt() == 0
        await small.region.write(lambda tx: conductors.renew(tx, OTHER, 3_600.0 + clock.time))
        clock.time += 5.0
        await conductor.lease.renew()
    for _ in range(3):  # it died
        assert await conductor.adopt() == 0
        clock.time += 5.0
        await conductor.lease.renew()
    clock.time += 1.0
    assert await conductor.adopt() == 1
    assert await living(small) == {ME}


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
    conductor = Conductor(ME, small.context, MemoryBus(), Hands())
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
    full, clock = Full(small.region), Hands()
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
    conductor = Conductor(ME, small.context, MemoryBus(), Hands(), ConductorOptions(lease_s=1e6))
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
    conductor = Conductor(ME, small.context, MemoryBus(), Hands())
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


async def test_one_living_conductor_leads_and_another_after_its_death(small: SmallRegion) -> None:
    conductors_of = [Conductor(name, small.context, MemoryBus(), Hands()) for name in (ME, OTHER)]
    for each in conductors_of:
        await each.lease.take()
        await asyncio.sleep(0.005)
    for each in conductors_of:
        await each.adopt()
    assert [each.leads for each in conductors_of] == [True, False]
    await conductors_of[0].lease.give_back()
    for each in conductors_of:
        await each.adopt()
    assert [each.leads for each in conductors_of] == [False, True]


async def test_rounds_run_at_the_leader_and_at_the_next_leader_after_its_death() -> None:
    leading, ran = ["a"], list[str]()
    rounds = {name: ReconcileLoop(SystemClock(), leads=lambda name=name: name in leading) for name in ("a", "b")}  # type: ignore[misc]
    try:
        for name, each in rounds.items():

            async def run(name: str = name) -> None:
                ran.append(name)

            each.add("shared", 0.01, run)
            each.add("own", 0.01, run, everywhere=True)
        await until(lambda: len(rounds["a"].runs["shared"]) > 2)
        assert not rounds["b"].runs["shared"]
        assert rounds["b"].runs["own"]
        leading[:] = ["b"]
        await until(lambda: len(rounds["b"].runs["shared"]) > 2)
    finally:
        for each in rounds.values():
            await each.stop()
