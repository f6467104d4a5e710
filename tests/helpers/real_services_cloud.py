"""A Moorage with the real services, and clients of all of them."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import httpx

from moorage.main.config import (
    ApiConfig,
    Cell,
    Compute,
    Config,
    Hosts,
    ImageConfig,
    Listen,
    NetworkConfig,
    RegionSettings,
    ServiceSettings,
    ServiceUser,
    VolumeConfig,
)
from moorage.main.local_cluster.ports import free_port
from moorage.main.up import RunningCloud, start_cloud
from moorage_testing.real_services.stack import Stack

DEADLINE_S = 180.0
SeenT = TypeVar("SeenT")


class ServicesClient:
    """One user's way to all services."""

    def __init__(self, stack: Stack, config: Config, who: str) -> None:
        headers = {
            "X-Auth-Token": stack.token(who),
            "OpenStack-API-Version": "compute 2.72, placement 1.39, volume 3.71",
        }
        self._client = httpx.AsyncClient(headers=headers, timeout=60)
        self._urls = {
            "compute": f"{config.api.compute.url}/v2.1",
            "placement": f"{config.api.placement.url}/placement",
            "image": f"{stack.image_url}/v2",
            "network": f"{stack.network_url}/v2.0",
            "agents": f"{stack.network_url}/agent-reports",
            "volume": f"{stack.volume_url}/v3/{stack.logins[who].project_id}",
        }

    async def __call__(self, service: str, method: str, path: str, body: Any = None, ok: int = 300) -> Any:
        reply = await self.ask(service, method, path, body)
        assert reply.status_code < ok, f"{method} {path}: {reply.status_code} {reply.text}"
        return reply.json() if reply.content else {}

    async def ask(self, service: str, method: str, path: str, body: Any = None) -> httpx.Response:
        return await self._client.request(method, self._urls[service] + path, json=body)

    async def upload(self, name: str) -> str:
        made = await self("image", "POST", "/images", {"name": name, "disk_format": "raw", "container_format": "bare"})
        await self.put_data(str(made["id"]), b"\0" * 1024)
        return str(made["id"])

    async def put_data(self, image: str, data: bytes) -> None:
        headers = {"Content-Type": "application/octet-stream"}
        url = f"{self._urls['image']}/images/{image}/file"
        (await self._client.put(url, content=data, headers=headers)).raise_for_status()

    async def close(self) -> None:
        await self._client.aclose()


@contextlib.asynccontextmanager
async def moorage_with_real_services(stack: Stack, data_dir: Path, hosts: Hosts, **more: Any) -> AsyncIterator[Config]:
    """The configuration of `cloud_with_real_services`."""
    async with cloud_with_real_services(stack, data_dir, hosts, **more) as cloud:
        yield cloud.config


@contextlib.asynccontextmanager
async def cloud_with_real_services(
    stack: Stack,
    data_dir: Path,
    hosts: Hosts,
    *,
    compute_port: int = 0,
    placement_port: int = 0,
    reported: bool = False,
    volumes: bool = False,
    host_silence_s: float = Compute().host_silence_s,
    cells: tuple[Cell, ...] = Config().cells,
) -> AsyncIterator[RunningCloud]:
    """Moorage with simulated hosts, and nothing embedded; `reported`: the real Neutron writes its segments into it.

    `volumes`: it has the real Cinder, which the test asked for (`real_volume`).
    """
    login = stack.logins["moorage"]
    ports = {"compute": compute_port, "placement": placement_port, "identity": 0, "image": 0, "network": 0}
    ports["volume"] = 0
    config = Config(
        data_dir=str(data_dir),
        region=RegionSettings(durability="process"),
        api=ApiConfig(**{name: Listen(port=port or free_port()) for name, port in ports.items()}),
        compute=Compute(
            vif_plugging_timeout=0, host_silence_s=host_silence_s, allow_move_across_segments=True
        ),  # nothing plugs what guests of simulated hosts have
        identity=ServiceSettings(url=stack.identity_url),
        image=ImageConfig(url=stack.image_url),
        network=NetworkConfig(url=stack.network_url, reports=reported),
        volume=VolumeConfig(url=stack.volume_url if volumes else ""),
        service_user=ServiceUser(user=login.user, password=login.password, project=login.project),
        hosts=hosts,
        cells=cells,
    )
    cloud = await start_cloud(config)
    try:
        yield cloud
    finally:
        await cloud.stop()


async def until(look: Callable[[], Awaitable[SeenT]], wanted: Callable[[SeenT], bool]) -> SeenT:
    """What is seen as soon as it is as wanted; at the deadline what was seen instead is the failure."""
    deadline = time.monotonic() + DEADLINE_S
    while not wanted(seen := await look()):
        assert time.monotonic() < deadline, f"still: {seen}"
        await asyncio.sleep(0.1)
    return seen


async def until_server(context: ServicesClient, server: str, wanted: str) -> Any:
    """The server when it has the status; ERROR is the end."""

    async def look() -> Any:
        return (await context("compute", "GET", f"/servers/{server}"))["server"]

    shown = await until(look, lambda each: each["status"] in {wanted, "ERROR"})
    assert shown["status"] == wanted, shown.get("fault")
    return shown


async def service_of(admin: ServicesClient, host: str, **words: Any) -> None:
    """What an administrator says of a host."""
    services = (await admin("compute", "GET", f"/os-services?host={host}&binary=nova-compute"))["services"]
    await admin("compute", "PUT", f"/os-services/{services[0]['id']}", words)


async def dies(cloud: RunningCloud, admin: ServicesClient, host: str) -> None:
    """Nobody hears the host any more, and it is said to be down."""

    async def silent() -> bool:
        return cloud.region.context.hosts.is_silent(host)

    await cloud.fleet.agents[host].stop()
    await until(silent, lambda seen: seen)
    await service_of(admin, host, forced_down=True)
