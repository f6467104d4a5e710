"""An API process and a conductor start while the PostgreSQL of one cell is unreachable, and add the cell later."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from moorage.main.hosts import planned_hosts
from moorage.main.local_cluster.cluster import TrialSet
from moorage.main.local_cluster.nats import nats_server_program
from moorage.main.local_cluster.ports import free_ports
from moorage.main.local_cluster.postgres import find_binaries
from moorage_testing.api_user import Person
from moorage_testing.logins import CHEAP_LOGINS_SETTINGS
from moorage_testing.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.postgres,
    pytest.mark.skipif(find_binaries() is None or nats_server_program() is None, reason="needs PostgreSQL and NATS"),
]

TAKEN_IN_S = 180.0
RESTARTED = ("api-1", "conductor-1")


class Way:
    """The only way from the processes that are started next to the database of cell1: a port that is closed until `open`."""

    def __init__(self, cloud: TrialSet) -> None:
        (self.port,) = free_ports(1)
        url = cloud.config.cells[0].database
        self._to = urlsplit(url).port or 5432
        name = urlsplit(url).path
        assert f":{self._to}{name}" in cloud.path_of("conductor-1").read_text()
        cloud.rewrite(f":{self._to}{name}", f":{self.port}{name}")
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self._to)
        await asyncio.gather(_pump(reader, to_writer), _pump(to_reader, writer))


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(65_536):
            sink.write(data)
    except OSError:
        pass  # a process was stopped
    finally:
        sink.close()


@pytest.fixture
async def cloud(tmp_path: Path) -> AsyncIterator[TrialSet]:
    found = TrialSet(
        tmp_path / "set", hosts=2, apis=1, conductors=1, durability="none", settings=f"\n{CHEAP_LOGINS_SETTINGS}"
    )
    try:
        await asyncio.to_thread(found.start)
        yield found
    finally:
        await asyncio.to_thread(found.stop)


async def test_processes_start_without_a_cell_and_add_it_later(cloud: TrialSet) -> None:
    cells = {plan.host: str(plan.cell) for plan in planned_hosts(cloud.config)}
    async with Person(cloud.config, urls=cloud.api_urls()) as admin:
        places = [f"nova:{host}" for host in (*cells, *cells)]
        before = await asyncio.gather(
            *(admin.active(f"before{number}", availability_zone=each) for number, each in enumerate(places))
        )
        where = {each["id"]: cells[each["OS-EXT-SRV-ATTR:host"]] for each in before}
        assert set(where.values()) == {"cell1", "cell2"}
        for name in RESTARTED:
            cloud.kill(name)
        way = Way(cloud)
        try:
            for name in RESTARTED:
                await asyncio.to_thread(cloud.run, name, *cloud.arguments_of(name))
                assert "cell cell1 is out, and its hosts take nothing until it answers" in cloud.log_of(name)
            out = {key: "UNKNOWN" if cell == "cell1" else "ACTIVE" for key, cell in where.items()}
            assert await states(admin) == out
            other = await admin.active("other")
            assert cells[other["OS-EXT-SRV-ATTR:host"]] == "cell2"
            await way.open()
            for name in RESTARTED:
                await until(
                    lambda name=name: "cell cell1 answers, and is taken in" in cloud.log_of(name), TAKEN_IN_S, 0.1
                )  # type: ignore[misc]
            assert set((await states(admin)).values()) == {"ACTIVE"}
            for server in where:
                await admin.gone(server, TAKEN_IN_S)
            for name in RESTARTED:
                cloud.kill(name)
        finally:
            way.close()


async def states(admin: Person) -> dict[str, str]:
    listed = (await admin.compute("GET", "/servers/detail")).json()["servers"]
    return {each["id"]: each["status"] for each in listed}
