"""Boots that were accepted by a process that died are scheduled by the next one with all data that it needs."""

from pathlib import Path

import msgspec
import pytest
from tests.cloud.conftest import a_config

from moorage.main.config import Hosts
from moorage.main.up import start_cloud
from moorage_testing.api_user import Person
from moorage_testing.leak_audit import nothing_leaked


async def test_adopted_boots_use_availability_zones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The aggregates are in the picture before an operation begins: a zone is found, and isolation holds."""
    config = a_config(tmp_path / "data", hosts=Hosts(count=2))
    cloud = await start_cloud(config)
    try:
        async with Person(config) as admin:
            host = cloud.plans[0].host
            aggregate = {"aggregate": {"name": "a", "availability_zone": "az2"}}
            made = (await admin.compute("POST", "/os-aggregates", aggregate)).json()["aggregate"]["id"]
            added = await admin.compute("POST", f"/os-aggregates/{made}/action", {"add_host": {"host": host}})
            assert added.status_code == 200
            conductor = cloud.region.conductor
            assert conductor is not None
            monkeypatch.setattr(conductor, "_begin", lambda *_: None)  # it dies between the 202 and the claim
            monkeypatch.setattr(conductor, "hand_over", lambda *_: None)
            servers = [await admin.boot(f"accepted-{number}", availability_zone="az2") for number in range(3)]
    finally:
        await cloud.stop()
    cloud = await start_cloud(msgspec.structs.replace(config))
    try:
        async with Person(config) as admin:
            found = [await admin.settled(each) for each in servers]
            assert {(each["status"], each["OS-EXT-SRV-ATTR:host"]) for each in found} == {("ACTIVE", host)}
            await nothing_leaked(config, admin)
    finally:
        await cloud.stop()
