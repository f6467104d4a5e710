"""A whole cloud in this process, as `moorage up` starts it, on free ports and an empty directory."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from moorage.bus import subjects
from moorage.bus.messages import Command, read
from moorage.drivers.dials import Dials, VerbDial
from moorage.main.config import Api, Config, Listen, Quota, Region
from moorage.main.up import Cloud, start_cloud
from moorage.testing.census import nothing_leaked
from moorage.testing.person import Person
from moorage.testing.set import free_ports

SERVICES = ("identity", "image", "network", "compute", "placement")


def a_config(data: Path, **changes: Any) -> Config:
    """Free ports, no limits of quota, commits that survive a kill."""
    listens = {name: Listen(port=port) for name, port in zip(SERVICES, free_ports(len(SERVICES)), strict=True)}
    config = Config(
        data_dir=str(data),
        api=Api(**listens),  # type: ignore[arg-type]
        region=Region(durability="process"),
        quota=Quota(instances=-1, cores=-1, ram=-1),
        log_level="warning",
    )
    return msgspec.structs.replace(config, **changes)


@dataclass
class Running:
    """A cloud, and an administrator at it."""

    cloud: Cloud
    admin: Person
    told: list[tuple[str, str]] = field(default_factory=list)
    """(host, step) of every command that was sent to a host."""

    @property
    def config(self) -> Config:
        return self.cloud.config

    async def listen(self) -> None:
        """Hear what hosts are told, as they do."""
        for plan in self.cloud.plans:

            async def hear(_: str, payload: bytes, host: str = plan.host) -> None:
                message = read(payload)
                if isinstance(message, Command):
                    self.told.append((host, message.step))

            await self.cloud.region.bus.subscribe(subjects.to_host(plan.cell, plan.host), hear)

    def dial(self, host: str, **verbs: VerbDial) -> None:
        """Turn one host's dials; its size and wires stay."""
        driver = self.cloud.fleet.drivers[host]
        driver.turn(msgspec.structs.replace(driver.dials, verbs=verbs))

    def dial_all(self, **verbs: VerbDial) -> None:
        for host in self.cloud.fleet.drivers:
            self.dial(host, **verbs)

    def person(self, user: str, project: str) -> Person:
        return Person(self.config, user, project)


Start = Callable[..., AbstractAsyncContextManager[Running]]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Start a cloud of another configuration: `async with start(hosts=Hosts(count=2)) as running`."""

    @asynccontextmanager
    async def starting(**changes: Any) -> AsyncIterator[Running]:
        cloud = await start_cloud(a_config(tmp_path / "data", **changes))
        try:
            async with Person(cloud.config) as admin:
                running = Running(cloud, admin)
                await running.listen()
                yield running
                for host in cloud.fleet.drivers:
                    cloud.fleet.drivers[host].turn(plain(cloud, host))
                await nothing_leaked(cloud.config, admin)
        finally:
            await cloud.stop()

    return starting


def plain(cloud: Cloud, host: str) -> Dials:
    """A host on which nothing goes wrong."""
    return msgspec.structs.replace(cloud.fleet.drivers[host].dials, verbs={})


@pytest.fixture
async def running(start: Start) -> AsyncIterator[Running]:
    """An ordinary one; after the test, ports, claims, guests and quota are held against the servers."""
    async with start() as found:
        yield found
