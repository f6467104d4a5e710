"""The region's database is far away, and cut off for longer than the lease: the conductor works again soon after the database is reachable."""

import asyncio
import dataclasses
import itertools
import types
from collections.abc import Iterator
from typing import Any, cast
from urllib.parse import urlsplit

import pytest
import sqlalchemy as sa

from moorage.bus.memory import MemoryBus
from moorage.conductor.options import ConductorOptions
from moorage.conductor.worker import Conductor
from moorage.main.config import Config, RegionSettings
from moorage.main.config import DatabaseConfig as DatabaseSettings
from moorage.main.databases import open_for_lease
from moorage.main.local_cluster.postgres import PostgresServer, find_binaries, start_postgres
from moorage.main.schemas import REGION
from moorage.model.clock import SystemClock
from moorage.model.ids import ConductorId
from moorage.operations.context import SagaContext
from moorage.sql import open_database
from moorage.sql.migrate import migrate
from moorage.store.region import conductors
from moorage_testing.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.postgres,
    pytest.mark.skipif(find_binaries() is None, reason="needs PostgreSQL"),
]

LEASE_S, BEAT_S = 8.0, 2.0
PACE = ConductorOptions(lease_s=LEASE_S, beat_s=BEAT_S)
OUTAGE_S = 10.0
ONE_WAY_MS = (0, 15, 100)


class Wire:
    """A TCP proxy: every byte is `delay_s` under way; it can be cut, or swallow everything."""

    def __init__(self, port: int, delay_s: float) -> None:
        self._to, self._delay_s = port, delay_s
        self._cut = False
        self._flows = asyncio.Event()
        self._flows.set()
        self._ends: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._cut:
            writer.transport.abort()
            return
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self._to)
        self._ends |= {writer, to_writer}
        await asyncio.gather(self._pump(reader, to_writer), self._pump(to_reader, writer))

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        try:
            while data := await source.read(65_536):
                await self._flows.wait()
                loop.call_later(self._delay_s, sink.write, data)
        except OSError:
            pass  # an end was cut
        finally:
            sink.close()

    def cut(self) -> None:
        self._cut = True
        for end in self._ends:
            end.transport.abort()
        self._ends.clear()

    def swallow(self) -> None:
        self._flows.clear()

    def mend(self) -> None:
        self._cut = False
        self._flows.set()

    async def close(self) -> None:
        for end in self._ends:
            end.transport.abort()
        if self._server is not None:
            self._server.close()


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    running = start_postgres()
    yield running
    running.stop()


async def one(server: PostgresServer, one_way_ms: int, how: str) -> None:
    url = server.create_database(f"region_{one_way_ms}_{how}")
    port = urlsplit(url).port
    assert port is not None
    near = await open_database(url, name="near")
    await migrate(near, REGION)
    wire = Wire(port, one_way_ms / 1000)
    far = await open_database(url.replace(str(port), str(await wire.open())), name="region")
    context = cast("SagaContext", types.SimpleNamespace(region=far))
    conductor = Conductor(ConductorId("me"), context, MemoryBus(), SystemClock(), PACE)
    await conductor.start()
    try:
        assert conductor.alive
        (wire.cut if how == "cut" else wire.swallow)()
        await until(lambda: not conductor.alive)
        await asyncio.sleep(OUTAGE_S - LEASE_S)
        wire.mend()
        await until(lambda: conductor.alive, patience_s=LEASE_S + BEAT_S)
        for _ in range(10):
            living: Any = await near.read(conductors.living)
            assert [each.id for each in living] == [conductor.id]
            assert conductor.alive
            await asyncio.sleep(LEASE_S / 10)
    finally:
        wire.mend()
        await conductor.stop()
        await wire.close()
        await far.close()
        await near.close()


async def test_after_an_outage_longer_than_the_lease_the_conductor_is_back_within_a_lease_and_a_beat(
    server: PostgresServer,
) -> None:
    async with asyncio.TaskGroup() as group:
        for one_way_ms, how in itertools.product(ONE_WAY_MS, ("cut", "swallow")):
            group.create_task(one(server, one_way_ms, how), name=f"{one_way_ms} ms, {how}")


async def test_a_pool_of_hanging_connections_does_not_prevent_renewal(server: PostgresServer) -> None:
    url = server.create_database("region_full_pool")
    config = Config(region=RegionSettings(database=url), database=DatabaseSettings(pool_size=2))
    region = await open_database(config.region_url(), name="region", limits=config.database.limits)
    await migrate(region, REGION)
    apart = await open_for_lease(config, region)
    context = cast("SagaContext", types.SimpleNamespace(region=region))
    conductor = Conductor(
        ConductorId("me"), context, MemoryBus(), SystemClock(), dataclasses.replace(PACE, lease_on=apart)
    )
    await conductor.lease.take()
    hung = [asyncio.create_task(region.read(lambda tx: tx.scalar(sa.text("SELECT pg_sleep(600)")))) for _ in range(4)]
    try:
        for _ in range(3):
            async with asyncio.timeout(LEASE_S - BEAT_S):
                await conductor.beat()
            assert conductor.alive
        assert conductor.id == "me"
    finally:
        for each in hung:
            each.cancel()
        await asyncio.gather(*hung, return_exceptions=True)
        await apart.close()
        await region.close()
