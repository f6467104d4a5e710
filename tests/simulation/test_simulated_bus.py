"""The simulated bus has the ordering of a real connection: messages of one direction arrive in order."""

import asyncio
import random
from collections.abc import Iterator

import pytest

from moorage_testing.simulation.bus import Hub
from moorage_testing.simulation.loop import SimulatedProcess, VirtualLoop
from moorage_testing.simulation.trace import Trace

ASLEEP_S = 20.0


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    made = VirtualLoop()
    yield made
    made.close()


def test_messages_to_a_suspended_machine_keep_their_order(loop: VirtualLoop) -> None:
    hub = Hub(loop, random.Random(1), Trace(loop))
    messages: list[bytes] = []

    async def on_message(_: str, payload: bytes) -> None:
        messages.append(payload)

    async def course() -> None:
        sleeper = SimulatedProcess("sleeper")
        hub.subscribe(sleeper, "news", on_message)
        hub.weather.late_s = 1.0
        loop.freeze(sleeper)
        await asyncio.sleep(ASLEEP_S - 0.01)
        hub.send(None, "news", b"while it slept")
        await asyncio.sleep(0.01)
        hub.weather.late_s = 0.0
        loop.thaw(sleeper, suspended_s=ASLEEP_S)
        hub.send(None, "news", b"when it was awake")
        await asyncio.sleep(2 * ASLEEP_S)

    loop.run(course())
    assert messages == [b"while it slept", b"when it was awake"]
