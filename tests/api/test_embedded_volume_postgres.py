"""The embedded volume service on PostgreSQL: concurrent requests for one quota and for one volume."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from moorage_testing.volume_app import VolumeApp, ask_volume, attached, gone, made, shown, until, volume_service

pytestmark = pytest.mark.postgres


@pytest.fixture
async def cloud(tmp_path: Path, postgres_url: str) -> AsyncIterator[VolumeApp]:
    async with volume_service(tmp_path, url=postgres_url) as opened:
        yield opened


async def test_concurrent_requests_for_the_last_quota(cloud: VolumeApp) -> None:
    alice = cloud.open_as("alice")
    answers = await asyncio.gather(*(ask_volume(alice, name=str(number)) for number in range(14)))
    assert sorted(answer.status_code for answer in answers) == [202] * 10 + [413] * 4
    for answer in answers:
        if answer.status_code == 202:
            await until(alice, answer.json()["volume"]["id"], "available")
    rows = (await alice.get("/volumes/detail?limit=4&sort=name:asc")).json()["volumes"]
    assert [row["name"] for row in rows] == sorted(row["name"] for row in rows)


async def test_concurrent_requests_for_one_volume(cloud: VolumeApp) -> None:
    alice = cloud.open_as("alice")
    id = (await made(alice))["id"]
    servers = [f"5e4f0000-0000-4000-8000-{number:012}" for number in range(6)]
    bodies = [{"attachment": {"volume_uuid": id, "instance_uuid": server}} for server in servers]
    answers = await asyncio.gather(*(alice.post("/attachments", json=body) for body in bodies))
    assert sorted(answer.status_code for answer in answers) == [200] + [400] * 5


async def test_a_life(cloud: VolumeApp) -> None:
    alice = cloud.open_as("alice")
    id = (await made(alice, metadata={"a": "b"}))["id"]
    found = await attached(alice, id)
    assert (await shown(alice, id))["status"] == "in-use"
    assert (await alice.delete(f"/attachments/{found['id']}", headers={"X-Service-Token": "nova"})).status_code == 200
    assert (await alice.delete(f"/volumes/{id}")).status_code == 202
    await gone(alice, id)
