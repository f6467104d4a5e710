"""Volumes with the real Cinder: booted from, attached, detached and released, and nothing leaks."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.helpers.real_services_cloud import ServicesClient, moorage_with_real_services, until, until_server

from moorage.main.config import Hosts
from moorage_testing.real_services.fixtures import RealService

pytestmark = pytest.mark.real


async def test_volumes_of_servers_with_a_real_cinder(real_volume: RealService, tmp_path: Path) -> None:
    stack = real_volume.stack
    async with moorage_with_real_services(stack, tmp_path, Hosts(count=2), volumes=True) as config:
        alice = ServicesClient(stack, config, "alice")
        volumes, admin = Volumes(real_volume, "alice"), Volumes(real_volume, "admin")
        try:
            await _live(alice, volumes, admin)
        finally:
            for each in (alice, volumes, admin):
                await each.close()


class Volumes:
    """One user's way to Cinder."""

    def __init__(self, service: RealService, who: str) -> None:
        headers = {"X-Auth-Token": service.token(who), "OpenStack-API-Version": "volume 3.60"}
        self._client = httpx.AsyncClient(headers=headers, timeout=60)
        self._url = f"{service.url.rstrip('/').removesuffix('/v3')}/v3/{service.logins[who].project_id}"

    async def __call__(self, method: str, path: str, body: Any = None) -> Any:
        reply = await self._client.request(method, self._url + path, json=body)
        assert reply.status_code < 300, f"{method} {path}: {reply.status_code} {reply.text}"
        return reply.json() if reply.content else {}

    async def close(self) -> None:
        await self._client.aclose()

    async def becomes(self, volume: str, wanted: str) -> None:
        await until(
            lambda: self("GET", "/volumes/detail"),
            lambda shown: next((v["status"] for v in shown["volumes"] if v["id"] == volume), "gone") == wanted,
        )


async def _live(alice: ServicesClient, volumes: Volumes, admin: Volumes) -> None:
    image = await alice.upload("root")
    made = await volumes("POST", "/volumes", {"volume": {"size": 1, "name": "data"}})
    data = made["volume"]["id"]
    await volumes.becomes(data, "available")
    flavor = (await alice("compute", "GET", "/flavors"))["flavors"][0]["id"]
    root = {"source_type": "image", "destination_type": "volume", "uuid": image, "boot_index": 0, "volume_size": 1}
    order = {
        "name": "from-volume",
        "imageRef": "",
        "flavorRef": flavor,
        "networks": "none",
        "block_device_mapping_v2": [{**root, "delete_on_termination": True}],
    }
    server = (await alice("compute", "POST", "/servers", {"server": order}))["server"]["id"]
    shown = await until_server(alice, server, "ACTIVE")
    (booted,) = [each["id"] for each in shown["os-extended-volumes:volumes_attached"]]
    path = f"/servers/{server}/os-volume_attachments"
    await alice("compute", "POST", path, {"volumeAttachment": {"volumeId": data}})
    await volumes.becomes(data, "in-use")
    await until(lambda: alice("compute", "GET", path), lambda shown: len(shown["volumeAttachments"]) == 2)
    attachments = (await admin("GET", f"/attachments/detail?all_tenants=1&instance_id={server}"))["attachments"]
    assert sorted((each["volume_id"], each["status"]) for each in attachments) == sorted(
        [(booted, "attached"), (data, "attached")]
    )
    await alice("compute", "DELETE", f"{path}/{data}")
    await volumes.becomes(data, "available")
    await until(lambda: alice("compute", "GET", path), lambda shown: len(shown["volumeAttachments"]) == 1)
    await alice("compute", "DELETE", f"/servers/{server}")
    await volumes.becomes(booted, "gone")
    assert (await admin("GET", f"/attachments?all_tenants=1&instance_id={server}"))["attachments"] == []
