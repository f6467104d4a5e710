"""A server boots, is seen and goes, with the real Keystone, Glance and Neutron as neighbours."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from moorage.main.config import Api, Config, Hosts, Listen, Neighbour, Region, ServiceUser
from moorage.main.up import start_cloud
from moorage.testing.peers.stack import Stack

pytestmark = pytest.mark.real
DEADLINE_S = 60.0


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


class Desk:
    """One user's way to all services."""

    def __init__(self, stack: Stack, compute: str, who: str) -> None:
        headers = {"X-Auth-Token": stack.token(who), "OpenStack-API-Version": "compute 2.72"}
        self._client = httpx.AsyncClient(headers=headers, timeout=60)
        self._urls = {
            "compute": f"{compute}/v2.1",
            "image": f"{stack.image_url}/v2",
            "network": f"{stack.network_url}/v2.0",
        }

    async def __call__(self, service: str, method: str, path: str, body: Any = None, ok: int = 300) -> Any:
        reply = await self._client.request(method, self._urls[service] + path, json=body)
        assert reply.status_code < ok, f"{method} {path}: {reply.status_code} {reply.text}"
        return reply.json() if reply.content else {}

    async def upload(self, name: str) -> str:
        made = await self("image", "POST", "/images", {"name": name, "disk_format": "raw", "container_format": "bare"})
        headers = {"Content-Type": "application/octet-stream"}
        url = f"{self._urls['image']}/images/{made['id']}/file"
        (await self._client.put(url, content=b"\0" * 1024, headers=headers)).raise_for_status()
        return str(made["id"])

    async def close(self) -> None:
        await self._client.aclose()


@pytest.fixture
async def compute(real_stack: Stack, tmp_path: Path) -> AsyncIterator[str]:
    """Moorage with simulated hosts, and nothing embedded."""
    login = real_stack.logins["moorage"]
    config = Config(
        data_dir=str(tmp_path),
        region=Region(durability="process"),
        api=Api(
            **{name: Listen(port=_free_port()) for name in ("compute", "placement", "identity", "image", "network")}
        ),
        identity=Neighbour(url=real_stack.identity_url),
        image=Neighbour(url=real_stack.image_url),
        network=Neighbour(url=real_stack.network_url),
        service_user=ServiceUser(user=login.user, password=login.password, project=login.project),
        hosts=Hosts(count=4),
    )
    cloud = await start_cloud(config)
    yield config.api.compute.url
    await cloud.stop()


async def _until(desk: Desk, server: str, wanted: str) -> Any:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        shown = (await desk("compute", "GET", f"/servers/{server}"))["server"]
        if shown["status"] in {wanted, "ERROR"}:
            assert shown["status"] == wanted, shown.get("fault")
            return shown
        await asyncio.sleep(0.1)
    raise AssertionError(f"server {server} did not become {wanted}")


async def test_a_server_boots_on_a_routed_network_and_leaves_nothing(real_stack: Stack, compute: str) -> None:
    alice, admin = Desk(real_stack, compute, "alice"), Desk(real_stack, compute, "admin")
    project = real_stack.logins["alice"].project_id
    image = await alice.upload("tiny")
    provider = {
        "provider:network_type": "vlan",
        "provider:physical_network": "physnet1",
        "provider:segmentation_id": 900,
    }
    asked = {"network": {"name": "routed", "project_id": project, **provider}}
    network = (await admin("network", "POST", "/networks", asked))["network"]["id"]
    first = (await admin("network", "GET", f"/segments?network_id={network}"))["segments"][0]["id"]
    second = {"network_id": network, "network_type": "vlan", "physical_network": "physnet2", "segmentation_id": 901}
    segments = [first, (await admin("network", "POST", "/segments", {"segment": second}))["segment"]["id"]]
    for row, segment in enumerate(segments):
        subnet = {"network_id": network, "ip_version": 4, "cidr": f"10.7{row}.0.0/30", "segment_id": segment}
        await admin("network", "POST", "/subnets", {"subnet": {**subnet, "project_id": project}})
    flavor = (await alice("compute", "GET", "/flavors"))["flavors"][0]["id"]
    order = {"imageRef": image, "flavorRef": flavor, "networks": [{"uuid": network}]}
    servers = []
    for name in ("one", "two"):  # a /30 holds one: the second must go to the other segment
        servers.append(
            (await alice("compute", "POST", "/servers", {"server": {"name": name, **order}}))["server"]["id"]
        )
        shown = await _until(alice, servers[-1], "ACTIVE")
        assert [len(addresses) for addresses in shown["addresses"].values()] == [1]
    ports = [(await alice("network", "GET", f"/ports?device_id={server}"))["ports"] for server in servers]
    assert [len(each) for each in ports] == [1, 1]
    assert len({each[0]["fixed_ips"][0]["subnet_id"] for each in ports}) == 2
    for server in servers:
        await alice("compute", "DELETE", f"/servers/{server}")
    deadline = time.monotonic() + DEADLINE_S
    while (await alice("network", "GET", f"/ports?network_id={network}"))["ports"]:
        assert time.monotonic() < deadline, "ports are left"
        await asyncio.sleep(0.1)
    await alice.close()
    await admin.close()
