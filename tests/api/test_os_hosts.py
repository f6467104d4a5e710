"""`/os-hosts` below 2.43, and what it shares with services and hypervisors."""

from typing import Any

import pytest
from tests.api.test_hosts import cloud

from moorage_testing.compute_app import MEMBER, ApiClient

__all__ = ["cloud"]


async def test_hosts_are_listed_by_service_and_zone(cloud: ApiClient) -> None:
    rows = (await cloud.get("/os-hosts", at="2.42")).json()["hosts"]
    assert [(row["host_name"], row["service"], row["zone"]) for row in rows] == [
        ("control", "scheduler", "internal"),
        ("control", "conductor", "internal"),
        ("host1", "compute", "nova"),
        ("host2", "compute", "nova"),
    ]
    nova = (await cloud.get("/os-hosts?zone=nova&other=1", at="2.1")).json()["hosts"]
    assert {row["service"] for row in nova} == {"compute"}
    assert (await cloud.get("/os-hosts?zone=nowhere", at="2.1")).json() == {"hosts": []}
    assert (await cloud.get("/os-hosts", at="2.1", by=MEMBER)).status_code == 403
    assert (await cloud.get("/os-hosts", at="2.43")).status_code == 404


async def test_a_host_shows_its_usage(cloud: ApiClient) -> None:
    rows = [each["resource"] for each in (await cloud.get("/os-hosts/host1", at="2.1")).json()["host"]]
    assert [row["project"] for row in rows] == ["(total)", "(used_now)", "(used_max)"]
    assert rows[0] == {"host": "host1", "project": "(total)", "cpu": 8, "memory_mb": 1024, "disk_gb": 100}
    assert (await cloud.get("/os-hosts/nowhere", at="2.1")).status_code == 404


async def test_a_host_is_switched_off_and_on(cloud: ApiClient) -> None:
    off = await cloud.ask("PUT", "/os-hosts/host1", {"status": "Disable"}, at="2.1")
    assert off.json() == {"host": "host1", "status": "disabled"}
    services = (await cloud.get("/os-services?host=host1", at="2.1")).json()["services"]
    assert services[0]["status"] == "disabled"
    listed = (await cloud.get("/os-hosts", at="2.1")).json()["hosts"]
    assert "host1" not in {row["host_name"] for row in listed}
    on = await cloud.ask("PUT", "/os-hosts/host1", {"status": "enable"}, at="2.1")
    assert on.json() == {"host": "host1", "status": "enabled"}


@pytest.mark.parametrize(
    ("host", "body", "status"),
    [
        ("host1", {}, 400),
        ("host1", {"status": "false"}, 400),
        ("host1", {"status": "enable", "param": "x"}, 400),
        ("host1", {"maintenance_mode": "enable"}, 501),
        ("nowhere", {"status": "enable"}, 404),
    ],
)
async def test_refused_host_changes(cloud: ApiClient, host: str, body: Any, status: int) -> None:
    assert (await cloud.ask("PUT", f"/os-hosts/{host}", body, at="2.1")).status_code == status


@pytest.mark.parametrize("action", ["reboot", "shutdown", "startup"])
async def test_no_host_has_a_power_switch(cloud: ApiClient, action: str) -> None:
    assert (await cloud.get(f"/os-hosts/nowhere/{action}", at="2.1")).status_code == 404
    assert (await cloud.get(f"/os-hosts/host1/{action}", at="2.1")).status_code == 501
    assert (await cloud.get(f"/os-hosts/host1/{action}", at="2.1", by=MEMBER)).status_code == 403
