"""`moorage placement` in a process of its own over a fleet, on SQLite or PostgreSQL, and requests to it over kept connections."""

import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from moorage.main.local_cluster.ports import free_ports
from moorage.main.local_cluster.postgres import PostgresServer
from moorage.main.schemas import PLACEMENT
from moorage.sql import Durability, open_database
from moorage.sql.migrate import migrate
from moorage_testing.bench.fleet import FLAT, ProviderPart, fill
from moorage_testing.bench.load import Connection, UnexpectedAnswer
from moorage_testing.bench.machine import cpu_s_of_tree

START_DEADLINE_S = 300.0
STOP_DEADLINE_S = 30.0
HEADERS = {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.39", "Accept": "application/json"}
PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / 2**20


@dataclass
class Served:
    """One Placement that answers."""

    port: int
    processes: Sequence[int]
    """Process ids whose CPU is its cost, their children's included."""
    started_s: float = 0.0
    hosts: Sequence[str] = ()
    _connections: list[Connection] = field(default_factory=list[Connection])

    def connection(self) -> Connection:
        made = Connection("127.0.0.1", self.port)
        self._connections.append(made)
        return made

    async def close(self) -> None:
        for each in self._connections:
            await each.close()

    def cpu_s(self) -> float:
        """Of all its processes, the database's included."""
        return sum(cpu_s_of_tree(each) for each in self.processes)

    def resident_mib(self) -> float:
        """Of the first process."""
        return int(Path(f"/proc/{self.processes[0]}/statm").read_text().split()[1]) * PAGE_MIB

    async def medians(self, path: str, times: int, expect: int = 200) -> tuple[float, float, int]:
        """Wall milliseconds of one request, CPU milliseconds of each, and the size of the answer. Raises UnexpectedAnswer for
        another status.
        """
        connection = self.connection()
        took: list[float] = []
        size, spent = 0, self.cpu_s()
        for _ in range(times):
            began = time.perf_counter()
            status, body = await connection.ask("GET", path, HEADERS)
            took.append((time.perf_counter() - began) * 1000)
            size = len(body)
            if status != expect:
                raise UnexpectedAnswer(f"GET {path}: {status} {body[:300].decode(errors='replace')}")
        return sorted(took)[times // 2], (self.cpu_s() - spent) / times * 1000, size

    async def rate(
        self, once: Callable[[Connection, int], Awaitable[None]], count: int, in_flight: int
    ) -> tuple[float, float]:
        """How many a second with so many connections, and CPU milliseconds of each."""
        left = iter(range(count))

        async def worker() -> None:
            connection = self.connection()
            for number in left:
                await once(connection, number)

        spent, began = self.cpu_s(), time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(in_flight):
                group.create_task(worker())
        return count / (time.perf_counter() - began), (self.cpu_s() - spent) / count * 1000


@asynccontextmanager
async def placement_of(
    hosts: int,
    layout: Sequence[ProviderPart] = FLAT,
    *,
    postgres: PostgresServer | None = None,
    durability: Durability = "power",
) -> AsyncIterator[Served]:
    """Ours, with so many hosts of one layout; `started_s` is from the command to the first answer."""
    with tempfile.TemporaryDirectory(prefix="moorage-served-") as room:
        name = f"served_{time.monotonic_ns()}"
        url = f"sqlite:///{room}/placement.db" if postgres is None else postgres.create_database(name)
        database = await open_database(url, name="placement", durability="process")
        await migrate(database, PLACEMENT)
        uuids = await database.write(lambda tx: fill(tx, hosts, layout))
        await database.close()
        config = Path(room) / "moorage.toml"
        config.write_text(f'data_dir = "{room}"\n[region]\ndurability = "{durability}"\n')
        port = free_ports(1)[0]
        words = ["--config", str(config), "--database", url, "--auth-strategy", "noauth2", "--port", str(port)]
        began = time.perf_counter()
        environment = os.environ | {"PYTHONPATH": ":".join(path for path in sys.path if path)}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "moorage", "placement", *words, "--log-level", "error"),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env=environment,
        )
        try:
            await _answers(process, port)
            beside = [] if postgres is None else [postgres.process_id]
            served = Served(port, [process.pid, *beside], time.perf_counter() - began, uuids)
            yield served
            await served.close()
        finally:
            process.terminate()
            await asyncio.wait_for(process.wait(), STOP_DEADLINE_S)
            if postgres is not None:
                postgres.drop_database(name)


async def _answers(process: asyncio.subprocess.Process, port: int) -> None:
    deadline = time.monotonic() + START_DEADLINE_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            connection = Connection("127.0.0.1", port)
            await connection.ask("GET", "/", HEADERS)
            await connection.close()
            return
        if process.returncode is not None:
            raise RuntimeError(f"moorage placement ended with {process.returncode}")
        await asyncio.sleep(0.02)
    raise RuntimeError("moorage placement does not answer")
