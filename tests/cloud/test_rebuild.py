"""Rebuild in a whole cloud: one guest from the right image, with its port and address; refused before anything is destroyed."""

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.cloud.conftest import Running, Shared

from moorage.drivers.fault_injection import VerbDial
from moorage.model.guest import PowerState
from moorage.model.ids import ServerId
from moorage_testing.leak_audit import guests_on_disk
from moorage_testing.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def running(shared: Shared) -> AsyncIterator[Running]:
    async with shared.for_a_test() as found:
        yield found


async def second_image(running: Running, name: str = "other", **fields: Any) -> str:
    """An active image of a few bytes."""
    url = f"{running.config.api.image.url}/v2/images"
    new = {"name": name, "disk_format": "raw", "container_format": "bare", **fields}
    image = (await running.admin.http.post(url, json=new)).json()["id"]
    headers = {"Content-Type": "application/octet-stream"}
    sent = await running.admin.http.put(f"{url}/{image}/file", content=b"\0" * 512, headers=headers)
    sent.raise_for_status()
    return str(image)


async def rebuild(running: Running, server: str, image: str, **fields: Any) -> Any:
    body = {"rebuild": {"imageRef": image, **fields}}
    return await running.admin.compute("POST", f"/servers/{server}/action", body)


def guest(running: Running, server: dict[str, Any]) -> Any:
    driver = running.cloud.fleet.drivers[server["OS-EXT-SRV-ATTR:host"]]
    return driver._guests[ServerId(server["id"])]


async def test_a_rebuild_changes_the_image_and_keeps_port_and_address(running: Running) -> None:
    admin = running.admin
    server = await admin.active("old", user_data=base64.b64encode(b"old").decode())
    image = await second_image(running, auto_disk_config="true")
    before = (await admin.network("GET", "/ports", device_id=server["id"])).json()["ports"]
    answer = await rebuild(running, server["id"], image, name="anew", metadata={"a": "b"}, hostname="anew")
    assert answer.status_code == 202, answer.text
    assert answer.json()["server"]["status"] == "REBUILD"
    after = await admin.settled(server["id"])
    assert (after["status"], after["name"], after["metadata"]) == ("ACTIVE", "anew", {"a": "b"})
    assert (after["image"]["id"], after["OS-DCF:diskConfig"]) == (image, "AUTO")
    assert after["addresses"] == server["addresses"]
    assert after["OS-EXT-SRV-ATTR:user_data"] == server["OS-EXT-SRV-ATTR:user_data"]
    assert after["OS-SRV-USG:launched_at"] > server["OS-SRV-USG:launched_at"]
    ports = (await admin.network("GET", "/ports", device_id=server["id"])).json()["ports"]
    assert [(each["id"], each["binding:host_id"]) for each in ports] == [
        (each["id"], each["binding:host_id"]) for each in before
    ]
    made = guest(running, after)
    assert (made.spec.image, made.spec.hostname, made.rebuilds) == (image, "anew", 1)
    assert [vif.port for vif in made.spec.vifs] == [before[0]["id"]]
    assert guests_on_disk(running.config.data)[server["id"]] == [after["OS-EXT-SRV-ATTR:host"]]
    rows = (await admin.compute("GET", f"/servers/{server['id']}/os-instance-actions")).json()["instanceActions"]
    action = next(row for row in rows if row["action"] == "rebuild")
    assert action["message"] is None
    reply = await admin.compute("GET", f"/servers/{server['id']}/os-instance-actions/{action['request_id']}")
    events = reply.json()["instanceAction"]["events"]
    assert {(each["event"], each["result"]) for each in events} == {
        ("rebuild_server", "Success"),
        ("compute_rebuild_instance", "Success"),
    }


async def test_a_stopped_server_stays_stopped_and_one_in_error_becomes_active(running: Running) -> None:
    admin = running.admin
    server = await admin.active("off")
    image = await admin.id_of("image", "tiny")
    (await admin.compute("POST", f"/servers/{server['id']}/action", {"os-stop": None})).raise_for_status()
    await admin.settled(server["id"])
    assert (await rebuild(running, server["id"], image)).status_code == 202
    after = await admin.settled(server["id"])
    assert (after["status"], guest(running, after).power) == ("SHUTOFF", PowerState.SHUTDOWN)
    reset = {"os-resetState": {"state": "error"}}
    (await admin.compute("POST", f"/servers/{server['id']}/action", reset)).raise_for_status()
    assert (await rebuild(running, server["id"], image)).status_code == 202
    after = await admin.settled(server["id"])
    assert (after["status"], guest(running, after).power) == ("ACTIVE", PowerState.RUNNING)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"min_ram": 100_000}, "memory is too small"),
        ({"min_disk": 1_000}, "disk is smaller"),
        ({"trait:CUSTOM_NOBODY_HAS_IT": "required"}, "its host cannot run it"),
        ({"cinder_encryption_key_id": "k"}, "is unacceptable"),
        ({"hw_watchdog_action": "bark"}, "Field value bark is invalid"),
    ],
)
async def test_an_image_that_does_not_fit_is_refused_before_anything_is_destroyed(
    running: Running, fields: dict[str, Any], said: str
) -> None:
    server = await running.admin.active("keeps-its-disk")
    image = await second_image(running, "too-much", **fields)
    refused = await rebuild(running, server["id"], image)
    assert refused.status_code == 400
    assert said in refused.json()["badRequest"]["message"]
    shown = await running.admin.server(server["id"])
    assert shown is not None
    assert (shown["status"], shown["image"]["id"]) == ("ACTIVE", server["image"]["id"])
    assert guest(running, server).rebuilds == 0


async def test_missing_images_are_refused(running: Running) -> None:
    server = await running.admin.active("stays")
    url = f"{running.config.api.image.url}/v2/images"
    new = {"name": "empty", "disk_format": "raw", "container_format": "bare"}
    queued = (await running.admin.http.post(url, json=new)).json()["id"]
    assert (await rebuild(running, server["id"], queued)).status_code == 400
    assert (await rebuild(running, server["id"], "00000000-0000-4000-8000-00000000dead")).status_code == 400
    assert (await rebuild(running, server["id"], server["image"]["id"], key_name="nobody's")).status_code == 400


async def test_a_failed_rebuild_sets_error_with_a_fault_and_can_be_repeated(running: Running) -> None:
    admin = running.admin
    server = await admin.active("unlucky")
    image = await second_image(running)
    running.dial(server["OS-EXT-SRV-ATTR:host"], rebuild_guest=VerbDial(fail_times=1, says="no space for the disk"))
    assert (await rebuild(running, server["id"], image)).status_code == 202
    after = await admin.settled(server["id"])
    assert (after["status"], after["fault"]["message"]) == ("ERROR", "no space for the disk")
    assert after["image"]["id"] == image
    assert (await rebuild(running, server["id"], image)).status_code == 202
    after = await admin.settled(server["id"])
    assert after["status"] == "ACTIVE"
    assert "fault" not in after
    assert guest(running, after).spec.image == image


async def test_a_host_without_rebuild_leaves_the_server_unchanged(running: Running) -> None:
    admin = running.admin
    server = await admin.active("old-host")
    dial = VerbDial(fail_times=1, says="this host cannot do that", code="not_supported")
    running.dial(server["OS-EXT-SRV-ATTR:host"], rebuild_guest=dial)
    assert (await rebuild(running, server["id"], await second_image(running), name="anew")).status_code == 202
    after = await admin.settled(server["id"])
    assert (after["status"], after["name"], after["image"]["id"]) == ("ACTIVE", "old-host", server["image"]["id"])
    rows = (await admin.compute("GET", f"/servers/{server['id']}/os-instance-actions")).json()["instanceActions"]
    assert next(row for row in rows if row["action"] == "rebuild")["message"] == "Error"


async def test_progress_is_shown_and_a_delete_does_not_wait(running: Running) -> None:
    admin = running.admin
    server = await admin.active("slow")
    running.dial(server["OS-EXT-SRV-ATTR:host"], rebuild_guest=VerbDial(delay_s=60.0))
    assert (await rebuild(running, server["id"], server["image"]["id"])).status_code == 202
    async with asyncio.timeout(180):
        while (shown := await admin.server(server["id"])) is not None:
            assert shown["status"] == "REBUILD"
            if shown["OS-EXT-STS:task_state"] == "rebuild_spawning":
                break
            await asyncio.sleep(0.05)
    listed = (await admin.compute("GET", "/servers/detail", status="REBUILD")).json()["servers"]
    assert [each["id"] for each in listed] == [server["id"]]
    assert (await rebuild(running, server["id"], server["image"]["id"])).status_code == 409
    await admin.gone(server["id"])


async def test_cards_that_the_network_service_does_not_show_are_not_lost(running: Running) -> None:
    """An account that lost its role is shown empty lists: the rebuild waits, and makes no guest without cards."""
    admin = running.admin
    server = await admin.active("has-cards")
    network = running.cloud.region.context.network
    shown, hidden, asked_of = network.ports_of, True, 0

    async def ports_of(*asked: Any) -> Any:
        nonlocal asked_of
        asked_of += 1
        return () if hidden else await shown(*asked)

    network.ports_of = ports_of  # type: ignore[method-assign]
    assert (await rebuild(running, server["id"], server["image"]["id"])).status_code == 202
    await until(lambda: asked_of >= 2)
    assert guest(running, server).rebuilds == 0
    hidden = False
    await until(lambda: guest(running, server).rebuilds == 1)
    assert len(guest(running, server).spec.vifs) == 1
    await admin.settled(server["id"])


async def test_the_ephemeral_disk_is_preserved_on_request(running: Running) -> None:
    admin = running.admin
    flavor = {"name": "with-ephemeral", "ram": 64, "vcpus": 1, "disk": 1, "OS-FLV-EXT-DATA:ephemeral": 1}
    (await admin.compute("POST", "/flavors", {"flavor": flavor})).raise_for_status()
    server = await admin.active("keeps-some", flavor="with-ephemeral")
    for preserve, since in ((True, 0), (False, 2)):
        again = await rebuild(running, server["id"], server["image"]["id"], preserve_ephemeral=preserve)
        assert again.status_code == 202
        await admin.settled(server["id"])
        assert guest(running, server).ephemeral_since == since
