"""The loop of the simulation: virtual time, and processes that are killed, frozen and thawed as a whole."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from moorage_testing.simulation.clock import MachineProcess, SimulatedMachine, VirtualClock
from moorage_testing.simulation.determinism import determined
from moorage_testing.simulation.loop import Livelock, SimulatedProcess, Starved, VirtualLoop


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    made = VirtualLoop()
    yield made
    made.close()


def test_hours_pass_in_no_time(loop: VirtualLoop) -> None:
    async def wait() -> float:
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(36_000.0)
        return asyncio.get_running_loop().time() - began

    began = time.monotonic()
    assert loop.run(wait()) == 36_000.0
    assert time.monotonic() - began < 60.0


def test_a_killed_process_does_nothing_more(loop: VirtualLoop) -> None:
    done: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(1.0)
            done.append("worked")
        finally:
            done.append("cleaned up")

    async def course() -> None:
        process = SimulatedProcess("victim")
        loop.begin(process, work())
        await asyncio.sleep(0.5)
        loop.kill(process)
        await asyncio.sleep(10.0)
        assert not done

    loop.run(course())


def test_a_frozen_process_continues_where_it_was(loop: VirtualLoop) -> None:
    seen: list[float] = []

    async def work() -> None:
        while True:
            await asyncio.sleep(1.0)
            seen.append(loop.now)

    async def course() -> None:
        process = SimulatedProcess("sleeper")
        loop.begin(process, work())
        await asyncio.sleep(2.5)
        loop.freeze(process)
        await asyncio.sleep(10.0)
        assert len(seen) == 2
        loop.thaw(process)
        await asyncio.sleep(0.1)
        assert len(seen) == 3

    loop.run(course())


def test_a_resumed_machine_fires_its_overdue_timers(loop: VirtualLoop) -> None:
    """The loop's time stood still; the clock that counts sleep did not."""
    seen: list[tuple[float, float, float]] = []

    async def work(clock: VirtualClock) -> None:
        while True:
            await clock.sleep(2.0)
            seen.append((loop.now, loop.time(), clock.monotonic()))

    async def course() -> None:
        machine = SimulatedMachine(loop, "laptop")
        process = MachineProcess("sleeper", machine)
        began = loop.now
        loop.begin(process, work(VirtualClock(machine)))
        await asyncio.sleep(1.0)
        loop.freeze(process)
        await asyncio.sleep(10.0)
        loop.thaw(process, suspended_s=10.0)
        await asyncio.sleep(1.5)
        assert seen == [(began + 12.0, began + 2.0, began + 12.0)]

    loop.run(course())


def test_a_livelock_ends(loop: VirtualLoop) -> None:
    def spin() -> None:
        loop.call_soon(spin)

    async def wait() -> None:
        spin()
        await asyncio.sleep(1.0)

    with pytest.raises(Livelock):
        loop.run(wait())


def test_a_wait_without_an_event_is_reported(loop: VirtualLoop) -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Starved):
        loop.run(wait())


def test_each_process_has_the_clock_of_its_machine(loop: VirtualLoop) -> None:
    here, there = SimulatedMachine(loop, "here"), SimulatedMachine(loop, "there")
    there.offset_s = 300.0
    found: dict[str, float] = {}

    async def look() -> None:
        found["there"] = time.time()

    async def course() -> None:
        await loop.begin(MachineProcess("p", there), look())
        found["here"] = time.time()

    before = time.time()
    with determined(loop, "a seed", here):
        loop.run(course())
    assert found["there"] - found["here"] == pytest.approx(300.0)
    assert abs(time.time() - before) < 60.0
