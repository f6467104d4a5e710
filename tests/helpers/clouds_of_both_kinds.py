"""Moorage with simulated hosts and its services, embedded or real, with users of new projects and one interface for both."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec

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
)
from moorage.main.local_cluster.ports import free_port
from moorage.main.service_clients import admin_password
from moorage.main.up import RunningCloud, start_cloud
from moorage_testing.logins import CHEAP_LOGINS
from moorage_testing.real_services.stack import Stack

DEADLINE_S = 180.0
LOOK_EVERY_S = 0.1
SERVICES = ("compute", "placement", "identity", "image", "network", "volume")


class Who:
    """Somebody's way to all services."""

    def __init__(self, urls: dict[str, str], token: str, project: str) -> None:
        self.project, self.token = project, token
        self._http = httpx.AsyncClient(headers={"X-Auth-Token": token}, timeout=DEADLINE_S)
        self._urls = urls

    async def ask(
        self, service: str, method: str, path: str, body: Any = None, at: str = "2.104", **params: str
    ) -> httpx.Response:
        headers = {"OpenStack-API-Version": f"compute {at}"} if service == "compute" else {}
        url = self._urls[service] + path
        return await self._http.request(method, url, json=body, headers=headers, params=params)

    async def ok(self, service: str, method: str, path: str, body: Any = None, **more: Any) -> Any:
        reply = await self.ask(service, method, path, body, **more)
        assert reply.is_success, f"{method} {path}: {reply.status_code} {reply.text}"
        return reply.json() if reply.content else {}

    async def image(self) -> str:
        body = {"name": "tiny", "disk_format": "raw", "container_format": "bare"}
        made = str((await self.ok("image", "POST", "/images", body))["id"])
        headers = {"Content-Type": "application/octet-stream"}
        url = f"{self._urls['image']}/images/{made}/file"
        (await self._http.put(url, content=b"\0" * 1024, headers=headers)).raise_for_status()
        return made

    async def settled(self, server: str) -> Any:
        """The server when it is no longer being built."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            shown = (await self.ok("compute", "GET", f"/servers/{server}"))["server"]
            if shown["status"] != "BUILD":
                return shown
            assert time.monotonic() < deadline, f"{server} is still built"
            await asyncio.sleep(LOOK_EVERY_S)

    async def delete(self, server: str) -> None:
        """Delete it, and see it go."""
        await self.ok("compute", "DELETE", f"/servers/{server}")
        deadline = time.monotonic() + DEADLINE_S
        while (await self.ask("compute", "GET", f"/servers/{server}")).status_code != 404:
            assert time.monotonic() < deadline, f"{server} is still there"
            await asyncio.sleep(LOOK_EVERY_S)

    async def ports(self, server: str) -> list[Any]:
        found: list[Any] = (await self.ok("network", "GET", "/ports", device_id=server))["ports"]
        return found

    async def close(self) -> None:
        await self._http.aclose()


class Land:
    """A running cloud with its neighbours."""

    def __init__(self, cloud: RunningCloud, urls: dict[str, str], admin: Who) -> None:
        self.cloud, self.config, self.urls, self.admin = cloud, cloud.config, urls, admin
        self._people: list[Who] = [admin]

    async def person(self) -> Who:
        """A member of a project of their own."""
        name = f"p-{uuid.uuid4().hex[:8]}"
        project = {"project": {"name": name, "domain_id": "default"}}
        made = (await self.admin.ok("identity", "POST", "/projects", project))["project"]["id"]
        user = {"user": {"name": name, "domain_id": "default", "password": name}}
        who = (await self.admin.ok("identity", "POST", "/users", user))["user"]["id"]
        roles = (await self.admin.ok("identity", "GET", "/roles", name="member"))["roles"]
        await self.admin.ok("identity", "PUT", f"/projects/{made}/users/{who}/roles/{roles[0]['id']}")
        found = await log_in(self.urls, name, name, name)
        self._people.append(found)
        return found

    async def close(self) -> None:
        for who in self._people:
            await who.close()


async def log_in(urls: dict[str, str], user: str, password: str, project: str) -> Who:
    domain = {"id": "default"}
    asked = {
        "auth": {
            "identity": {
                "methods": ["password"],
                "password": {"user": {"name": user, "domain": domain, "password": password}},
            },
            "scope": {"project": {"name": project, "domain": domain}},
        }
    }
    async with httpx.AsyncClient(timeout=DEADLINE_S) as http:
        reply = await http.post(f"{urls['identity']}/auth/tokens", json=asked)
    reply.raise_for_status()
    return Who(urls, reply.headers["X-Subject-Token"], reply.json()["token"]["project"]["id"])


@asynccontextmanager
async def land(data: Path, stack: Stack | None, **changes: Any) -> AsyncIterator[Land]:
    """With the real services of a stack, or with embedded ones."""
    config = Config(
        data_dir=str(data),
        region=RegionSettings(durability="process"),
        api=ApiConfig(**{name: Listen(port=free_port()) for name in SERVICES}),
        hosts=Hosts(count=4),
        quota=Quota(instances=-1, cores=-1, ram=-1),
        security_compliance=CHEAP_LOGINS,
        log_level="warning",
    )
    if stack is not None:
        login = stack.logins["moorage"]
        config = msgspec.structs.replace(
            config,
            compute=Compute(vif_plugging_timeout=0),  # nothing plugs what guests of simulated hosts have
            identity=ServiceSettings(url=stack.identity_url),
            image=ImageConfig(url=stack.image_url),
            network=NetworkConfig(url=stack.network_url),
            service_user=ServiceUser(user=login.user, password=login.password, project=login.project),
        )
    config = msgspec.structs.replace(config, **changes)
    cloud = await start_cloud(config)
    try:
        urls = {
            "compute": f"{config.api.compute.url}/v2.1",
            "identity": config.identity.url or f"{config.api.identity.url}/v3",
            "image": f"{config.image.url or config.api.image.url}/v2",
            "network": f"{config.network.url or config.api.network.url}/v2.0",
        }
        if stack is None:
            admin = await log_in(urls, "admin", admin_password(config), "admin")
        else:
            login = stack.logins["admin"]
            admin = await log_in(urls, login.user, login.password, login.project)
        made = Land(cloud, urls, admin)
        yield made
        await made.close()
    finally:
        await cloud.stop()
