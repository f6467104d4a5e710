"""A cloud with a real Cinder, Keystone and Glance, in the form that the tests of `tests/cloud` use, so that these tests run here too.

Its configuration names the real services where those tests look for the embedded ones.  It has flat networks of no address: what
is proved here has nothing to do with ports, and a Neutron takes a second of CPU for each server.
"""

import contextlib
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
from typing_extensions import override

from moorage.main.config import (
    ApiConfig,
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
    VolumeConfig,
)
from moorage.main.local_cluster.ports import free_ports
from moorage.main.up import RunningCloud, start_cloud
from moorage_testing.api_user import VERSION, Person
from moorage_testing.leak_audit import nothing_leaked
from moorage_testing.real_services.stack import ServiceLogin, Stack
from tests.cloud.conftest import SERVICES, Running, Shared, plain
from tests.helpers.real_cinder_audit import Cinder


class RealPerson(Person):
    """Somebody known to the real Keystone, in a project of their own."""

    reaches_all = True

    def __init__(self, config: Config, stack: Stack, login: ServiceLogin) -> None:
        super().__init__(config, login.user, login.project)
        self._stack, self._login = stack, login

    @override
    async def log_in(self) -> None:
        self.project = self._login.project_id
        self.http.headers["X-Auth-Token"] = self._stack.token_of(self._login)
        self.http.headers["OpenStack-API-Version"] = f"compute {VERSION}"

    @override
    async def ask_boot(self, name: str = "a", *, networks: Any = "none", **more: Any) -> httpx.Response:
        return await super().ask_boot(name, networks=networks, **more)


class RealRunning(Running):
    """Its people are made when they are asked for."""

    def __init__(self, cloud: RunningCloud, admin: Person, stack: Stack, cinder: Cinder) -> None:
        super().__init__(cloud, admin, look_every_s=0.15)  # a look costs a real Cinder 40 ms of CPU
        self.stack, self.cinder = stack, cinder

    @property
    @override
    def config(self) -> Config:
        return self.admin.config

    @override
    def person(self, user: str, project: str) -> Person:
        return RealPerson(self.config, self.stack, new_login(self.stack, user, "member"))


def new_login(stack: Stack, user: str, role: str) -> ServiceLogin:
    """Somebody new in a project of their own."""
    name = f"{user}-{uuid.uuid4().hex[:8]}"
    headers = {"X-Auth-Token": stack.token("admin")}
    with httpx.Client(base_url=stack.identity_url, headers=headers, timeout=60) as http:

        def made(kind: str, **said: str) -> str:
            reply = http.post(f"/{kind}s", json={kind: {"name": name, "domain_id": "default", **said}})
            reply.raise_for_status()
            return str(reply.json()[kind]["id"])

        project, who = made("project"), made("user", password=name)
        (found,) = http.get("/roles", params={"name": role}).json()["roles"]
        http.put(f"/projects/{project}/users/{who}/roles/{found['id']}").raise_for_status()
    return ServiceLogin(name, name, name, who, project)


def configured(stack: Stack, data: Path, **changes: Any) -> Config:
    """Cinder asks and tells the compute service at the address that is in the catalog."""
    login = stack.logins["moorage"]
    listens = {name: Listen(port=port) for name, port in zip(SERVICES, free_ports(len(SERVICES)), strict=True)}
    listens["compute"] = Listen(port=stack.site.our_compute_port)
    body: dict[str, Any] = {
        "data_dir": str(data),
        "region": RegionSettings(durability="process"),
        "api": ApiConfig(**listens),  # type: ignore[arg-type]
        "compute": Compute(vif_plugging_timeout=0),
        "identity": ServiceSettings(url=stack.identity_url),
        "image": ImageConfig(url=stack.image_url),
        "network": NetworkConfig(backend="flat"),
        "volume": VolumeConfig(url=stack.volume_url),
        "service_user": ServiceUser(user=login.user, password=login.password, project=login.project),
        "hosts": Hosts(count=3),
        "quota": Quota(instances=-1, cores=-1, ram=-1),
        "log_level": "warning",
    }
    return Config(**{**body, **changes})


def as_seen(config: Config, stack: Stack) -> Config:
    """The same, with the real services where a cloud has its own: for people, and for tests that ask there."""
    site = stack.site
    real = {"identity": site.identity_port, "image": site.image_port, "volume": site.volume_port}
    api = msgspec.structs.replace(config.api, **{name: Listen(port=port) for name, port in real.items()})
    return msgspec.structs.replace(config, api=api)


class SharedCinderCloud(Shared):
    """One cloud for the tests of a module; after each test Cinder holds nothing at all."""

    def __init__(self, directory: Path, stack: Stack, changes: dict[str, Any]) -> None:
        super().__init__(directory, changes)
        self._stack = stack
        self._cinder: Cinder | None = None

    @override
    @asynccontextmanager
    async def for_a_test(self) -> AsyncIterator[RealRunning]:
        running = self._running or await self._started()
        assert isinstance(running, RealRunning)
        running.told.clear()
        running.commands_once.clear()
        running.admin.http.headers["OpenStack-API-Version"] = f"compute {VERSION}"
        try:
            yield running
            for host in running.cloud.fleet.drivers:
                running.cloud.fleet.drivers[host].turn(plain(running.cloud, host))
            await nothing_leaked(running.config, running.admin)
            await running.admin.leave_nothing(self._images)
            await running.cinder.becomes(NOTHING, running.admin.project)
            await running.cinder.forget_types()
            await nothing_leaked(running.config, running.admin)
        except BaseException:
            with contextlib.suppress(Exception):  # what one test left is not the next one's
                await running.admin.leave_nothing(self._images)
            await self.stop()
            raise

    @override
    async def _started(self) -> Running:
        self._clouds += 1
        self._cinder = cinder = self._cinder or Cinder(self._stack)
        await cinder.empty()
        cloud = await start_cloud(configured(self._stack, self._directory / f"data{self._clouds}", **self._changes))
        seen = as_seen(cloud.config, self._stack)
        admin = RealPerson(seen, self._stack, new_login(self._stack, "harbourmaster", "admin"))
        await admin.log_in()
        self._running = running = RealRunning(cloud, admin, self._stack, cinder)
        await running.listen()
        await tiny_image(admin)
        self._images = set(await admin.images())
        return running

    @override
    async def stop(self) -> None:
        await super().stop()
        if self._cinder is not None:
            cinder, self._cinder = self._cinder, None
            try:
                await cinder.empty()
            finally:
                await cinder.close()


async def tiny_image(admin: Person) -> None:
    """The small image that embedded clouds begin with."""
    url = f"{admin.config.api.image.url}/v2/images"
    body = {"name": "tiny", "disk_format": "raw", "container_format": "bare", "visibility": "public", "min_disk": 1}
    made = await admin.http.post(url, json=body)
    made.raise_for_status()
    id = str(made.json()["id"])
    headers = {"Content-Type": "application/octet-stream"}
    (await admin.http.put(f"{url}/{id}/file", content=SMALL, headers=headers)).raise_for_status()
    admin._names["image", "tiny"] = id


SMALL = b"Moorage's small image\n" + b"\0" * 490
NOTHING: dict[str, Any] = {
    "volumes": [],
    "snapshots": [],
    "attachments": [],
    "exports": [],
    "files": [],
    "charged": [{}],
}
"""What an empty Cinder holds."""
