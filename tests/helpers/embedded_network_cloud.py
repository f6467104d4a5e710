"""A small cloud for the embedded network service: two hosts, some users, and a receiver of its events."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from moorage.model.errors import Unauthenticated
from moorage.model.principal import Principal
from moorage.sql import open_database
from moorage_embedded.network.app import HostNetworks, NetworkService, NetworkSettings, make_network

PEOPLE = {
    "service": Principal(user="nova", project="services", roles=("admin", "service", "member", "reader")),
    "admin": Principal(user="root", project="ops", roles=("admin", "member", "reader")),
    "member": Principal(user="ann", project="p1", roles=("member", "reader")),
    "reader": Principal(user="rob", project="p1", roles=("reader",)),
    "stranger": Principal(user="sue", project="p2", roles=("member", "reader")),
}
DEADLINE_S = 120.0


async def _validate(token: str) -> Principal:
    if token not in PEOPLE:
        raise Unauthenticated("no such token")
    return PEOPLE[token]


NEUTRONS = NetworkSettings()


class Cloud:
    """The service, over its own HTTP."""

    def __init__(self, http: httpx.AsyncClient, service: NetworkService, events: list[dict[str, Any]]) -> None:
        self.http = http
        self.service = service
        self.events = events
        self.news = asyncio.Event()

    async def call(
        self, method: str, path: str, body: Any = None, *, token: str = "service", headers: dict[str, str] | None = None,
        **query: Any,
    ) -> httpx.Response:  # fmt: skip
        sent = {"X-Auth-Token": token} | (headers or {})
        return await self.http.request(method, f"/v2.0{path}", json=body, headers=sent, params=query or None)

    async def ok(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        answer = await self.call(method, path, body, **more)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    async def get(self, path: str, **query: Any) -> Any:
        return await self.ok("GET", path, **query)

    async def flat_network(self, cidr: str = "10.0.0.0/24", **more: Any) -> tuple[Any, Any]:
        net = await self.service.seed_network("net", "p1", **more)
        return net, await self.service.seed_subnet("sub", net, cidr)

    async def routed_network(self, *cidrs: str) -> tuple[Any, list[Any], list[Any]]:
        net = await self.service.seed_network(
            "routed", "p1", **{
                "provider:network_type": "vlan", "provider:physical_network": "physnet1",
                "provider:segmentation_id": 101,
            }
        )  # fmt: skip
        segments = (await self.get("/segments", network_id=net["id"]))["segments"]
        for n in range(2, len(cidrs) + 1):
            segment = {"network_id": net["id"], "network_type": "vlan", "physical_network": f"physnet{n}",
                       "segmentation_id": 100 + n}  # fmt: skip
            segments.append((await self.ok("POST", "/segments", {"segment": segment}))["segment"])
        subnets = [
            await self.service.seed_subnet(f"sub-{cidr}", net, cidr, segment_id=segment["id"])
            for cidr, segment in zip(cidrs, segments, strict=True)
        ]
        return net, subnets, segments

    async def port(self, network: str, **more: Any) -> Any:
        body = {"port": {"network_id": network, "project_id": "p1"} | more}
        return (await self.ok("POST", "/ports", body))["port"]

    async def bind(self, port: str, host: str) -> Any:
        body = {"port": {"binding:host_id": host, "device_owner": "compute:nova"}}
        return (await self.ok("PUT", f"/ports/{port}", body))["port"]

    async def heard(self, event: dict[str, Any]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while event not in self.events:
                self.news.clear()
                await self.news.wait()


@pytest.fixture
async def cloud(tmp_path: Path) -> AsyncIterator[Cloud]:
    url = f"sqlite:///{tmp_path}/network.db"
    async with cloud_over(url) as made:
        yield made


@asynccontextmanager
async def cloud_over(url: str, settings: NetworkSettings = NEUTRONS) -> AsyncIterator[Cloud]:
    """The cloud, over a database of either kind."""
    events: list[dict[str, Any]] = []

    async def on_message(batch: list[dict[str, Any]]) -> None:
        events.extend(batch)
        made.news.set()

    database = await open_database(url, name="network", durability="process")
    service = make_network(
        database,
        public_url="http://net",
        validate_token=_validate,
        notify_compute=on_message,
        settings=settings,
    )
    try:
        await service.start()
        await service.declare_hosts([HostNetworks("cmp1", ("physnet1",)), HostNetworks("cmp2", ("physnet2",))])
        async with httpx.AsyncClient(transport=httpx.ASGITransport(service.app), base_url="http://net") as http:
            made = Cloud(http, service, events)
            yield made
    finally:
        await service.stop()
        await database.close()
