"""The conductor's lease: a lost lease is taken again under another id, and a lease that ended is not renewed."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from tests.helpers.conductor_leases import FIRST, ME, OTHER, Ask, SteppedClock, T, carry_saga, row, write

from moorage.bus.memory import MemoryBus
from moorage.clients.deadline import LEASE_MARGIN_S
from moorage.conductor import worker
from moorage.conductor.bulkheads import Places
from moorage.conductor.lease import ConductorLease, LeaseLost
from moorage.conductor.options import ConductorOptions
from moorage.conductor.reconcile_loop import ReconcileLoop
from moorage.conductor.worker import Conductor
from moorage.model.clock import SystemClock
from moorage.model.operation import OperationStatus
from moorage.operations.context import SagaContext
from moorage.saga import Run, Saga, step
from moorage.sql import Database, Tx
from moorage.store.region import conductors
from moorage_testing.region_fixture import SmallRegion, a_server
from moorage_testing.waiting import until


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


async def living(small: SmallRegion) -> set[str]:
    return {each.id for each in await small.region.read(conductors.living)}


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
    clock = SteppedClock()
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
    clock = SteppedClock()
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
    clock = SteppedClock()
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
    clock = SteppedClock()
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


async def test_one_living_conductor_leads_and_another_after_its_death(small: SmallRegion) -> None:
    conductors_of = [Conductor(name, small.context, MemoryBus(), SteppedClock()) for name in (ME, OTHER)]
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
