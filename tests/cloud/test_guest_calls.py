"""A running guest of a whole cloud: its password, a crash dump, diagnostics, files; images kept on hosts; the hosts' uptime."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.cloud.conftest import Running, Shared

from moorage.model.ids import ServerId
from moorage.operations.steps import server_lock
from moorage_testing.waiting import PATIENCE_S, until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def running(shared: Shared) -> AsyncIterator[Running]:
    async with shared.for_a_test() as found:
        yield found


SECRET = "correct-horse-battery-9"


async def actions_of(running: Running, server: str) -> dict[str, Any]:
    rows = (await running.admin.compute("GET", f"/servers/{server}/os-instance-actions")).json()["instanceActions"]
    return {row["action"]: row for row in rows}


async def test_a_password_is_set_in_the_guest_and_stored_nowhere_else(running: Running) -> None:
    admin = running.admin
    server = await admin.active("has-a-password")
    driver = running.cloud.fleet.drivers[server["OS-EXT-SRV-ATTR:host"]]
    path = f"/servers/{server['id']}/action"
    answer = await admin.compute("POST", path, {"changePassword": {"adminPass": SECRET}})
    assert answer.status_code == 202
    assert driver.knows_password(ServerId(server["id"]), SECRET)
    done = (await actions_of(running, server["id"]))["changePassword"]
    shown = await admin.compute("GET", f"/servers/{server['id']}/os-instance-actions/{done['request_id']}")
    (event,) = shown.json()["instanceAction"]["events"]
    assert (event["event"], event["result"]) == ("compute_set_admin_password", "Success")
    for file in running.config.data.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # it went meanwhile
            if file.is_file():
                assert SECRET.encode() not in file.read_bytes(), file


async def test_a_guest_without_an_agent_has_no_password_set(running: Running) -> None:
    admin = running.admin
    image = await admin.id_of("image", "tiny")
    url = f"{running.config.api.image.url}/v2/images/{image}"
    patch = [{"op": "add", "path": "/hw_qemu_guest_agent", "value": "no"}]
    headers = {"Content-Type": "application/openstack-images-v2.1-json-patch"}
    (await admin.http.patch(url, content=json.dumps(patch), headers=headers)).raise_for_status()
    server = await admin.active("no-agent")
    body = {"changePassword": {"adminPass": SECRET}}
    answer = await admin.compute("POST", f"/servers/{server['id']}/action", body)
    assert answer.status_code == 409
    assert "no agent" in answer.text
    assert (await actions_of(running, server["id"]))["changePassword"]["message"] == "Error"


async def test_a_crash_dump_and_diagnostics(running: Running) -> None:
    admin = running.admin
    server = await admin.active("crashes")
    answer = await admin.compute("POST", f"/servers/{server['id']}/action", {"trigger_crash_dump": None})
    assert answer.status_code == 202

    driver = running.cloud.fleet.drivers[server["OS-EXT-SRV-ATTR:host"]]
    await until(lambda: driver.dumps_of(ServerId(server["id"])) == 1)
    console = await admin.compute("POST", f"/servers/{server['id']}/action", {"os-getConsoleOutput": {}})
    assert "kdump: saving vmcore" in console.json()["output"]
    result = (await admin.compute("GET", f"/servers/{server['id']}/diagnostics")).json()
    assert (result["state"], result["driver"], result["num_nics"]) == ("running", "libvirt", 1)
    mac = next(iter(server["addresses"].values()))[0]["OS-EXT-IPS-MAC:mac_addr"]
    assert result["nic_details"][0]["mac_address"] == mac
    (await admin.compute("POST", f"/servers/{server['id']}/action", {"os-stop": None})).raise_for_status()
    await admin.settled(server["id"])
    assert (await admin.compute("GET", f"/servers/{server['id']}/diagnostics")).status_code == 409
    refused = await admin.compute("POST", f"/servers/{server['id']}/action", {"trigger_crash_dump": None})
    assert refused.status_code == 409


async def test_images_are_cached_on_the_hosts_of_an_aggregate(running: Running) -> None:
    admin = running.admin
    hosts = sorted(running.cloud.fleet.drivers)
    new = {"aggregate": {"name": "near"}}
    number = (await admin.compute("POST", "/os-aggregates", new)).json()["aggregate"]["id"]
    for host in hosts[:2]:
        body = {"add_host": {"host": host}}
        (await admin.compute("POST", f"/os-aggregates/{number}/action", body)).raise_for_status()
    image = await admin.id_of("image", "tiny")
    path = f"/os-aggregates/{number}/images"
    assert (await admin.compute("POST", path, {"cache": [{"id": image}]})).status_code == 202
    drivers = running.cloud.fleet.drivers

    await until(lambda: all(image in drivers[host].images_cached() for host in hosts[:2]))
    assert not any(drivers[host].images_cached() for host in hosts[2:])
    assert (await admin.compute("POST", path, {"cache": [{"id": image}, {"id": image}]})).status_code == 400
    missing = "00000000-0000-4000-8000-00000000dead"
    assert (await admin.compute("POST", path, {"cache": [{"id": missing}]})).status_code == 400
    assert (await admin.compute("POST", path, {"cache": []})).status_code == 400
    nowhere = await admin.compute("POST", "/os-aggregates/99999/images", {"cache": [{"id": image}]})
    assert nowhere.status_code == 404


async def test_hosts_report_their_uptime(running: Running) -> None:
    admin = running.admin
    rows = (await admin.compute("GET", "/os-hypervisors/detail")).json()["hypervisors"]
    assert all(" up  0:0" in row["uptime"] for row in rows)
    headers = {"OpenStack-API-Version": "compute 2.87"}
    url = f"{admin.urls[0]}/os-hypervisors/{rows[0]['id']}/uptime"
    answer = (await admin.http.get(url, headers=headers)).json()["hypervisor"]
    assert set(answer) == {"id", "hypervisor_hostname", "state", "status", "uptime"}
    assert " up " in answer["uptime"]
    assert (await admin.compute("GET", f"/os-hypervisors/{rows[0]['id']}/uptime")).status_code == 404


async def test_a_zone_with_a_host_name_selects_this_host(running: Running) -> None:
    """A zone that no host is in is not available; beside a host another zone is passed over."""
    admin = running.admin
    made = await admin.compute("POST", "/os-aggregates", {"aggregate": {"name": "void", "availability_zone": "void"}})
    assert made.status_code == 200, made.text
    refused = await admin.ask_boot("nowhere", availability_zone="void")
    assert (refused.status_code, "zone is not available" in refused.text) == (400, True)
    server = await admin.active("there", availability_zone="void:host1")
    shown = (server["OS-EXT-SRV-ATTR:host"], server["pinned_availability_zone"], server["progress"])
    assert shown == ("host1", None, 0)
    await admin.gone(server["id"])
    await admin.compute("DELETE", f"/os-aggregates/{made.json()['aggregate']['id']}")


async def test_a_hard_reboot_is_accepted_during_a_soft_one(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as that is over."""
    monkeypatch.setattr(server_lock, "TURN_COMES_WITHIN_S", PATIENCE_S)
    admin = running.admin
    server = await admin.active("hangs")
    path, gate = f"/servers/{server['id']}/action", running.delay_verb("reboot")
    assert (await admin.compute("POST", path, {"reboot": {"type": "SOFT"}})).status_code == 202
    assert (await admin.compute("POST", path, {"reboot": {"type": "SOFT"}})).status_code == 409
    hard = asyncio.ensure_future(admin.compute("POST", path, {"reboot": {"type": "HARD"}}))
    await asyncio.wait({hard}, timeout=0.5)  # nothing shows that it waits; a refusal would come at once
    gate.set()
    assert (await hard).status_code == 202
    assert (await admin.settled(server["id"]))["status"] == "ACTIVE"
    rows = (await admin.compute("GET", f"/servers/{server['id']}/os-instance-actions")).json()["instanceActions"]
    assert [(row["action"], row["message"]) for row in rows] == [("reboot", None), ("reboot", None), ("create", None)]
    await admin.gone(server["id"])
