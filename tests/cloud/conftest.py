"""A whole cloud in this process, as `moorage up` starts it, on free ports and an empty directory."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from moorage.bus import subjects
from moorage.bus.command_messages import Command
from moorage.bus.messages import read
from moorage.drivers.fault_injection import FaultSettings, VerbDial
from moorage.main import reconcilers
from moorage.main.config import ApiConfig, Config, Hosts, Listen, Quota, RegionSettings
from moorage.main.local_cluster.ports import free_ports
from moorage.main.up import RunningCloud, start_cloud
from moorage.model.fencing_token import FencingToken
from moorage.model.ids import ServerId
from moorage.store.region import servers as region_servers
from moorage_testing.api_user import VERSION, Person
from moorage_testing.leak_audit import nothing_leaked
from moorage_testing.logins import CHEAP_LOGINS
from moorage_testing.waiting import PATIENCE_S, until

SERVICES = ("identity", "image", "network", "volume", "compute", "placement")


def a_config(data: Path, policy: Mapping[str, str] | None = None, **changes: Any) -> Config:
    """Free ports, no limits of quota, commits that survive a kill; `policy`: rules other than the defaults."""
    rules = data.parent / f"{data.name}-policy.yaml"
    if policy:
        rules.parent.mkdir(parents=True, exist_ok=True)
        rules.write_text("".join(f'"{name}": "{rule}"\n' for name, rule in policy.items()))
    listens = {name: Listen(port=port) for name, port in zip(SERVICES, free_ports(len(SERVICES)), strict=True)}
    config = Config(
        data_dir=str(data),
        api=ApiConfig(policy_file=str(rules) if policy else "", **listens),  # type: ignore[arg-type]
        region=RegionSettings(durability="process"),
        quota=Quota(instances=-1, cores=-1, ram=-1),
        hosts=Hosts(count=6),
        security_compliance=CHEAP_LOGINS,
        log_level="warning",
    )
    return msgspec.structs.replace(config, **changes)


@dataclass
class Running:
    """A cloud, and an administrator at it."""

    cloud: RunningCloud
    admin: Person
    told: list[tuple[str, str]] = field(default_factory=list)
    """(host, step) of every command that was sent to a host."""
    commands_once: list[tuple[str, str]] = field(default_factory=list)
    """The same, without what is sent again: a busy machine answers late."""
    look_every_s: float = 0.02
    """How often a volume is looked at that is waited for."""

    @property
    def config(self) -> Config:
        return self.cloud.config

    async def listen(self) -> None:
        """Hear what hosts are told, as they do."""
        heard: set[tuple[str, ServerId, FencingToken, str]] = set()
        for plan in self.cloud.plans:

            async def on_message(_: str, payload: bytes, host: str = plan.host) -> None:
                message = read(payload)
                if isinstance(message, Command):
                    command = (host, message.server, message.turn, message.step)
                    self.told.append((host, message.step))
                    if command not in heard:
                        heard.add(command)
                        self.commands_once.append((host, message.step))

            await self.cloud.region.bus.subscribe(subjects.to_host(plan.cell, plan.host), on_message)

    def dial(self, host: str, **verbs: VerbDial) -> None:
        """Turn one host's dials; its size and wires stay."""
        driver = self.cloud.fleet.drivers[host]
        driver.turn(msgspec.structs.replace(driver.dials, verbs=verbs))

    def set_faults_everywhere(self, **verbs: VerbDial) -> None:
        for host in self.cloud.fleet.drivers:
            self.dial(host, **verbs)

    def person(self, user: str, project: str) -> Person:
        return Person(self.config, user, project)

    def delay_verb(self, verb: str, hosts: Collection[str] = ()) -> asyncio.Event:
        """None of these hosts (none of all) gets on with this verb until the event is set: what goes on meanwhile has all the time it wants."""
        gate = asyncio.Event()
        for host, driver in self.cloud.fleet.drivers.items():
            if not hosts or host in hosts:
                driver._trouble = _after(gate, verb, driver._trouble)  # type: ignore[method-assign]
        return gate

    async def wait_until_unlocked(self, server: str) -> None:
        """Until no operation holds it: what people are shown of one's work is a commit or some before its end."""
        region = self.cloud.region.databases.region
        async with asyncio.timeout(PATIENCE_S):
            while True:
                where = await region.read(lambda tx: region_servers.find(tx, server))
                if where is None or where.operation is None:
                    return
                await asyncio.sleep(0.02)

    async def idle(self) -> None:
        """Until no operation at all is told."""
        conductor = self.cloud.region.conductor
        assert conductor is not None
        await until(lambda: not conductor.executing)


def _after(gate: asyncio.Event, verb: str, trouble: Any) -> Any:
    @asynccontextmanager
    async def delayed(named: str) -> AsyncIterator[Any]:
        if named == verb:
            await gate.wait()
        async with trouble(named) as knob:
            yield knob

    return delayed


Start = Callable[..., AbstractAsyncContextManager[Running]]


class Shared:
    """One cloud for the tests of a module, which come one after the other; what each leaves is taken away and counted.

    A module that has nothing to do with how a cloud starts says so at its top:

        pytestmark = pytest.mark.asyncio(loop_scope="module")
        CLOUD = {"hosts": Hosts(count=1)}       # if it is to be another one than the ordinary

        @pytest_asyncio.fixture(loop_scope="module")
        async def running(shared: Shared) -> AsyncIterator[Running]:
            async with shared.for_a_test() as found:
                yield found
    """

    def __init__(self, directory: Path, changes: dict[str, Any]) -> None:
        self._directory, self._changes = directory, changes
        self._running: Running | None = None
        self._clouds = 0
        self._images: set[str] = set()

    @asynccontextmanager
    async def for_a_test(self) -> AsyncIterator[Running]:
        """As if nobody had been there; a cloud that cannot be tidied up is the last test's fault, and the next has a new one."""
        running = self._running or await self._started()
        running.told.clear()
        running.commands_once.clear()
        running.admin.http.headers["OpenStack-API-Version"] = f"compute {VERSION}"
        try:
            yield running
            for host in running.cloud.fleet.drivers:
                running.cloud.fleet.drivers[host].turn(plain(running.cloud, host))
            await nothing_leaked(running.config, running.admin)
            await running.admin.leave_nothing(self._images)
            await nothing_leaked(running.config, running.admin)
        except BaseException:
            await self.stop()
            raise

    async def _started(self) -> Running:
        self._clouds += 1
        cloud = await start_cloud(a_config(self._directory / f"data{self._clouds}", **self._changes))
        admin = Person(cloud.config)
        await admin.log_in()
        self._running = Running(cloud, admin)
        await self._running.listen()
        self._images = set(await admin.images())
        return self._running

    async def stop(self) -> None:
        if self._running is not None:
            running, self._running = self._running, None
            await running.admin.http.aclose()
            await running.cloud.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> AsyncIterator[Shared]:
    """See `Shared`."""
    cloud = Shared(tmp_path_factory.mktemp("shared"), getattr(request.module, "CLOUD", {}))
    yield cloud
    await cloud.stop()


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


def plain(cloud: RunningCloud, host: str) -> FaultSettings:
    """A host on which nothing goes wrong."""
    return msgspec.structs.replace(cloud.fleet.drivers[host].dials, verbs={})


@pytest.fixture
def rounds_are_far_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """None comes again after its first run: who counts calls or statements counts those of what was asked."""
    for name in vars(reconcilers):
        if name.endswith("_EVERY_S"):
            monkeypatch.setattr(reconcilers, name, 3600.0)


@pytest.fixture
async def running(start: Start) -> AsyncIterator[Running]:
    """An ordinary one; after the test, ports, claims, guests and quota are held against the servers."""
    async with start() as found:
        yield found
