"""One conductor is cut off from a real broker, or hears nothing of it, and the other one is not: its operation goes on there."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.chaos.test_conductor_far_database import Wire
from tests.helpers.bus_broker import needs_program
from tests.helpers.conductor_leases import FIRST, ME, OTHER, carry_saga, row, write

from moorage.bus.nats import connect
from moorage.conductor import worker
from moorage.conductor.bus_reach import OTHERS_NOTICE_S
from moorage.conductor.options import ConductorOptions
from moorage.conductor.worker import Conductor
from moorage.main.local_cluster.nats import NatsServer
from moorage.model.clock import SystemClock
from moorage.store.region.conductors import BEAT_S
from moorage_testing.region_fixture import SmallRegion, a_server
from moorage_testing.waiting import until

pytestmark = [pytest.mark.slow, needs_program]


@pytest.fixture(scope="module")
def broker() -> Iterator[NatsServer]:
    with NatsServer() as running:
        yield running


@pytest.mark.parametrize("how", ["cut", "swallow"])
async def test_a_conductor_that_a_broker_does_not_answer_leaves_its_work(
    how: str, broker: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, seen = asyncio.Event(), list[bool]()
    saga = carry_saga(gate, seen)
    monkeypatch.setitem(worker.SAGAS, saga.name, saga)
    small = await SmallRegion.open(tmp_path)
    await small.fresh(a_server(), FIRST)
    wire = Wire(int(broker.url.rpartition(":")[2]), 0.0)
    far = await connect([f"nats://127.0.0.1:{await wire.open()}"], name="far")
    near = await connect([broker.url], name="near")
    mine, other = (
        Conductor(name, small.context, bus, SystemClock(), ConductorOptions())
        for name, bus in ((ME, far), (OTHER, near))
    )
    try:
        await mine.start()
        await other.start()
        await write(small, saga, ME, FIRST)
        await until(lambda: seen == [False])
        getattr(wire, how)()
        began = time.monotonic()
        await until(lambda: seen == [False, True])
        took_s = time.monotonic() - began
        assert (await row(small)).owner == OTHER
        assert took_s > OTHERS_NOTICE_S - BEAT_S, "an outage of all looks the same at first"
        assert not mine.alive
        wire.mend()
        await until(lambda: mine.alive)
        assert mine.id != ME
    finally:
        gate.set()
        for each in (mine, other):
            await each.stop()
        for bus in (far, near):
            await bus.close()
        await wire.close()
        await small.close()
