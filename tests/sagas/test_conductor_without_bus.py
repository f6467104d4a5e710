"""A conductor that does not reach the bus leaves its work to one that does; if none does, all keep theirs and wait."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.helpers.conductor_leases import FIRST, ME, OTHER, carry_saga, row, write

from moorage.bus.memory import MemoryBus, TransportFaults
from moorage.conductor import bus_reach, worker
from moorage.conductor.dispatcher import BusDispatcher
from moorage.conductor.options import ConductorOptions
from moorage.conductor.worker import Conductor
from moorage.model.clock import SystemClock
from moorage.model.ids import ConductorId
from moorage.model.operation import OperationStatus
from moorage.saga import Saga
from moorage.store.region import conductors
from moorage_testing.region_fixture import SmallRegion, a_server
from moorage_testing.waiting import until

OPTIONS = ConductorOptions(lease_s=12.0, beat_s=0.3, look_every_s=0.1)


class Pair:
    """Two conductors of one region; each reaches the bus by a way of its own."""

    def __init__(self, small: SmallRegion, gate: asyncio.Event) -> None:
        self.small, self.gate = small, gate
        self.ways = {name: TransportFaults() for name in (ME, OTHER)}
        self.conductors = {
            name: Conductor(name, small.context, MemoryBus(way), SystemClock(), OPTIONS)
            for name, way in self.ways.items()
        }

    async def living(self) -> dict[ConductorId, bool]:
        """Living conductor → whether it says that it reaches the bus."""
        return {each.id: each.reaches_bus for each in await self.small.region.read(conductors.living)}


@pytest.fixture
def saga(monkeypatch: pytest.MonkeyPatch) -> tuple[Saga, asyncio.Event, list[bool]]:  # type: ignore[type-arg]
    monkeypatch.setattr(bus_reach, "BUS_GRACE_S", 0.2)
    monkeypatch.setattr(bus_reach, "OTHERS_NOTICE_S", 0.2)
    gate, seen = asyncio.Event(), list[bool]()
    saga = carry_saga(gate, seen)
    monkeypatch.setitem(worker.SAGAS, saga.name, saga)
    return saga, gate, seen


@pytest.fixture
async def pair(tmp_path: Path, saga: tuple[Saga, asyncio.Event, list[bool]]) -> AsyncIterator[Pair]:  # type: ignore[type-arg]
    small = await SmallRegion.open(tmp_path)
    await small.fresh(a_server(), FIRST)
    pair = Pair(small, saga[1])
    for each in pair.conductors.values():
        await each.start()
    yield pair
    for each in pair.conductors.values():
        await each.stop()
    await small.close()


async def test_a_conductor_without_the_bus_leaves_its_work_to_another(
    pair: Pair,
    saga: tuple[Saga, asyncio.Event, list[bool]],  # type: ignore[type-arg]
) -> None:
    toy, gate, seen = saga
    mine, other = pair.conductors[ME], pair.conductors[OTHER]
    await write(pair.small, toy, ME, FIRST)
    await until(lambda: seen == [False])
    assert mine.leads, "it has lived longest"
    pair.ways[ME].cut = True
    await until(lambda: seen == [False, True])
    assert (await row(pair.small)).owner == OTHER
    assert not mine.alive
    assert not mine.leads
    await until(lambda: other.leads)
    remote = BusDispatcher(pair.small.region, MemoryBus())
    assert {await remote.choose("boot/1") for _ in range(4)} == {OTHER}
    gate.set()
    await until(lambda: other.executing == 0)
    assert (await row(pair.small)).status is OperationStatus.DONE
    pair.ways[ME].cut = False
    await until(lambda: mine.alive)
    assert mine.id != ME, "a lease that was ended is not renewed: another is taken"
    assert await pair.living() == {mine.id: True, OTHER: True}


async def test_conductors_keep_their_work_while_none_reaches_the_bus(
    pair: Pair,
    saga: tuple[Saga, asyncio.Event, list[bool]],  # type: ignore[type-arg]
) -> None:
    toy, _, seen = saga
    await write(pair.small, toy, ME, FIRST)
    await until(lambda: seen == [False])
    for way in pair.ways.values():
        way.cut = True
    known = [each.peers for each in pair.conductors.values()]
    await until(lambda: not any(peer.reaches_bus for peers in known for peer in peers.living))
    assert await pair.living() == {ME: False, OTHER: False}
    before = {name: each.peers.living[0].alive_until for name, each in pair.conductors.items()}
    await until(lambda: all(each.peers.living[0].alive_until > before[name] for name, each in pair.conductors.items()))
    assert pair.conductors[ME].leads, "somebody leads all the same"
    assert seen == [False]
    assert (await row(pair.small)).owner == ME
    remote = BusDispatcher(pair.small.region, MemoryBus())
    assert {await remote.choose("boot/1") for _ in range(4)} == {ME, OTHER}
    pair.ways[OTHER].cut = False
    await until(lambda: seen == [False, True])
    assert (await row(pair.small)).owner == OTHER, "the one that reaches it first takes over"
