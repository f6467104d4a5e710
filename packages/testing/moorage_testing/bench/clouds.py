"""Clouds to measure: each in a process and a directory of its own, on SQLite and the bus in memory, or PostgreSQL and NATS."""

import asyncio
import contextlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from moorage.main.config import (
    ApiConfig,
    Cell,
    Compute,
    Config,
    Hosts,
    ImageConfig,
    Listen,
    NetworkConfig,
    Quota,
    RegionSettings,
    ServiceSettings,
    ServiceUser,
)
from moorage.main.config_bus import BusConfig
from moorage.main.local_cluster.nats import NatsServer
from moorage.main.local_cluster.ports import free_ports
from moorage.main.local_cluster.postgres import start_postgres
from moorage.sql import Durability
from moorage_testing.bench.load import Caller, token_of
from moorage_testing.bench.machine import cpu_s_of_tree

READY_S = 90.0
SETTLE_S = 180.0
FLAVOR = "42"
"""The smallest of the seeded ones, so that many servers fit on few hosts."""
WARM_BOOTS = 8
DOORS = 6

Kind = Literal["sqlite", "postgresql"]


@dataclass(frozen=True)
class Backing:
    """Where a cloud keeps its state, and what else spends CPU for it."""

    kind: Kind
    region: str = ""
    cells: tuple[str, str] = ("", "")
    bus: str = "memory:"
    processes: dict[str, int] = field(default_factory=dict[str, int])
    """Names and process ids of further server processes."""


@contextmanager
def backing(kind: Kind) -> Iterator[Backing]:
    """For `postgresql`: fresh servers of PostgreSQL (synced) and NATS, thrown away afterwards."""
    if kind == "sqlite":
        yield Backing("sqlite")
        return
    with contextlib.ExitStack() as stack:
        postgres = start_postgres(durability="power")
        stack.callback(postgres.stop)
        nats = stack.enter_context(NatsServer())
        yield Backing(
            "postgresql",
            postgres.create_database("region"),
            (postgres.create_database("cell1"), postgres.create_database("cell2")),
            nats.url,
            {"PostgreSQL": postgres.process_id, "NATS": nats.process_id},
        )


@dataclass
class Spent:
    """What so many boots took."""

    boots: int
    accepted_s: float
    active_s: float
    counters: dict[str, Any]
    beside_cpu_s: dict[str, float]

    @property
    def cpu_ms(self) -> float:
        """Of the cloud's one process, per boot."""
        return float(self.counters["cpu_s"]) / self.boots * 1000

    @property
    def per_s(self) -> float:
        return self.boots / self.active_s

    def other_process_ms(self, name: str) -> float:
        return self.beside_cpu_s.get(name, 0.0) / self.boots * 1000


@dataclass
class BenchCloud:
    """One running cloud, seen from outside, with a pipe to its counters."""

    config: Config
    process: asyncio.subprocess.Process
    backing: Backing
    ready: dict[str, Any]
    network: str = ""
    image: str = ""
    compute: Caller = field(default_factory=lambda: Caller(""))
    numbered: int = 0

    async def command(self, what: str) -> dict[str, Any]:
        """Send a command to the measured process, and return its answer. Raises RuntimeError when the process has
        ended.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(msgspec.json.encode({"do": what}) + b"\n")
        async with asyncio.timeout(SETTLE_S):
            line = await self.process.stdout.readline()
        if not line:
            raise RuntimeError("the measured cloud ended by itself")
        answer: dict[str, Any] = msgspec.json.decode(line)
        return answer

    async def sign_in(self) -> None:
        """As the administrator; the order is for the seeded image and network, and no quota is in the way."""
        api = self.config.api
        token, project = await token_of(f"{api.identity.url}/v3", "admin", self.ready["password"], "admin")
        headers = {"X-Auth-Token": token, "OpenStack-API-Version": "compute 2.96", "Accept": "application/json"}
        self.compute = Caller(f"{api.compute.url}/v2.1", headers)
        image, network = Caller(f"{api.image.url}/v2", headers), Caller(f"{api.network.url}/v2.0", headers)
        self.image = (await image.call("GET", "/images?name=tiny"))["images"][0]["id"]
        self.network = (await network.call("GET", "/networks?name=private"))["networks"][0]["id"]
        await network.call("PUT", f"/quotas/{project}", {"quota": {"port": -1}})

    def orders(self, count: int) -> list[bytes]:
        """Bodies of single boots with one new port each."""
        first, self.numbered = self.numbered, self.numbered + count
        return [
            msgspec.json.encode(
                {
                    "server": {
                        "name": f"bench-{number}",
                        "flavorRef": FLAVOR,
                        "imageRef": self.image,
                        "networks": [{"uuid": self.network}],
                    }
                }
            )
            for number in range(first, first + count)
        ]

    async def boot(self, count: int, *, in_flight: int, one_by_one: bool = False) -> Spent:
        """Boot servers, and wait until all are ACTIVE (`one_by_one`: before the next is requested). Raises RuntimeError
        when one fails.
        """
        await self.command("begin")
        before = {name: cpu_s_of_tree(process) for name, process in self.backing.processes.items()}
        began = asyncio.get_running_loop().time()
        answers, accepted_s = [], 0.0
        for orders in [self.orders(1) for _ in range(count)] if one_by_one else [self.orders(count)]:
            booted, took_s = await self.compute.many("POST", "/servers", orders, in_flight=in_flight, expect=202)
            answers += booted
            accepted_s += took_s
            if one_by_one:
                await self.command("settle")
        counters = await self.command("settle")
        active_s = asyncio.get_running_loop().time() - began
        beside = {name: cpu_s_of_tree(process) - before[name] for name, process in self.backing.processes.items()}
        shown = (await self.compute.call("GET", f"/servers/{answers[-1]['server']['id']}"))["server"]
        if shown["status"] != "ACTIVE":
            raise RuntimeError(f"a server of the bench is {shown['status']}: {shown.get('fault')}")
        return Spent(count, accepted_s, active_s, counters, beside)

    async def stop(self) -> None:
        if self.process.returncode is None and self.process.stdin is not None:
            self.process.stdin.write(msgspec.json.encode({"do": "stop"}) + b"\n")
            try:
                await asyncio.wait_for(self.process.wait(), READY_S)
            except TimeoutError:
                self.process.kill()
                await self.process.wait()


def config_of(
    room: Path, found: Backing, hosts: int, durability: Durability, neighbours: "ServiceUrls | None" = None
) -> Config:
    """What `moorage up` runs, with roomy hosts and without quota limits (they are counted all the same)."""
    ports = free_ports(DOORS)
    cells = tuple(Cell(f"cell{number}", url) for number, url in enumerate(found.cells, start=1))
    real = neighbours or ServiceUrls()
    return Config(
        data_dir=str(room / "data"),
        region=RegionSettings(database=found.region, durability=durability),
        cells=cells,
        bus=BusConfig(url=found.bus),
        hosts=Hosts(count=hosts, vcpus=256, ram_mib=1 << 20, disk_gib=1 << 14),
        quota=Quota(instances=-1, cores=-1, ram=-1),
        compute=Compute(host_silence_s=120.0, vif_plugging_timeout=0),  # no plug comes for guests of simulated hosts
        api=ApiConfig(
            compute=Listen(port=ports[0]),
            placement=Listen(port=ports[1]),
            identity=Listen(port=ports[2]),
            image=Listen(port=ports[3]),
            network=Listen(port=ports[4]),
            volume=Listen(port=ports[5]),
        ),
        identity=ServiceSettings(real.identity),
        image=ImageConfig(real.image),
        network=NetworkConfig(real.network),
        service_user=real.user,
        log_level="info",
    )


@dataclass(frozen=True)
class ServiceUrls:
    """Real services by URL; an empty one is embedded."""

    identity: str = ""
    image: str = ""
    network: str = ""
    user: ServiceUser = field(default_factory=ServiceUser)


@asynccontextmanager
async def cloud(
    found: Backing,
    *,
    hosts: int,
    durability: Durability = "power",
    neighbours: ServiceUrls | None = None,
    changes: Mapping[str, Any] | None = None,
) -> AsyncIterator[BenchCloud]:
    """A warm cloud: token, network, flavor and image were asked for once, and some servers were booted.
    `changes`: tables of its configuration that differ from those of `moorage up`. Raises RuntimeError when it does not
    start.
    """
    room = Path(tempfile.mkdtemp(prefix="moorage-bench-"))
    config = msgspec.structs.replace(config_of(room, found, hosts, durability, neighbours), **(changes or {}))
    written = room / "config.json"
    written.write_bytes(msgspec.json.encode(config))
    with (room / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "moorage_testing.bench.in_process", str(written),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, limit=1 << 24,
        )  # fmt: skip
    assert process.stdout is not None
    try:
        async with asyncio.timeout(READY_S):
            line = await process.stdout.readline()
        if not line:
            raise RuntimeError(f"the cloud did not start:\n{(room / 'log').read_text()[-3000:]}")
        running = BenchCloud(config, process, found, msgspec.json.decode(line))
        try:
            if neighbours is None:
                await running.sign_in()
                await running.boot(WARM_BOOTS, in_flight=4)
            yield running
        finally:
            await running.stop()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        shutil.rmtree(room, ignore_errors=True)
