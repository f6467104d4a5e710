"""Servers that boot from volumes in a whole cloud: created, reserved, exported, and cleaned up after failures."""

from typing import Any

import pytest
from tests.cloud.conftest import Running, Start
from tests.cloud.test_volumes import NO_SUCH, attached, becomes, disks, held, status, volume

from moorage.drivers.fault_injection import VerbDial
from moorage.main.config import Hosts
from moorage.model.ids import ServerId


async def image(running: Running) -> str:
    return str(await running.admin.id_of("image", "tiny"))


async def volumes(running: Running) -> list[dict[str, Any]]:
    reply = await running.admin.volume("GET", "/volumes/detail", all_tenants="1")
    return list(reply.json()["volumes"])


async def test_a_server_boots_from_a_volume_made_of_an_image(running: Running) -> None:
    root = {"source_type": "image", "destination_type": "volume", "uuid": await image(running), "boot_index": 0}
    data = {"source_type": "blank", "destination_type": "volume", "volume_size": 2, "boot_index": -1, "tag": "data"}
    devices = [{**root, "volume_size": 1, "delete_on_termination": True}, data]
    server = await running.admin.active("a", imageRef="", block_device_mapping_v2=devices)
    assert server["image"] == ""
    rows = await attached(running, server["id"])
    assert [(row["device"], row["tag"], row["delete_on_termination"]) for row in rows] == [
        ("/dev/vda", None, True),
        ("/dev/vdb", "data", False),
    ]
    spec = running.cloud.fleet.drivers[server["OS-EXT-SRV-ATTR:host"]].spec_of(ServerId(server["id"]))
    assert [(each.device, each.boot_index, bool(each.connection)) for each in spec.volumes] == [
        ("/dev/vda", 0, True),
        ("/dev/vdb", -1, True),
    ]
    assert (spec.image, spec.root_gib) == (None, 0)
    assert {each["status"] for each in await volumes(running)} == {"in-use"}
    assert len(await held(running)) == 2
    refused = await running.admin.compute(
        "DELETE", f"/servers/{server['id']}/os-volume_attachments/{rows[0]['volumeId']}"
    )
    assert (refused.status_code, "root" in refused.text) == (400, True)
    await running.admin.gone(server["id"])
    await becomes(running, rows[0]["volumeId"], "gone")
    assert await status(running, rows[1]["volumeId"]) == "available"
    assert await held(running) == []


async def test_a_volume_is_booted_from(running: Running) -> None:
    root = await volume(running, imageRef=await image(running))
    device = {"source_type": "volume", "destination_type": "volume", "uuid": root, "boot_index": 0}
    server = await running.admin.active("a", imageRef="", block_device_mapping_v2=[device])
    assert disks(running, server) == [root]
    await running.admin.gone(server["id"])
    assert await status(running, root) == "available"


async def test_the_next_host_gets_the_volumes_of_a_failed_host(start: Start) -> None:
    async with start(hosts=Hosts(count=2)) as running:
        fails, works = running.cloud.fleet.drivers
        running.dial(fails, start_guest=VerbDial(fail_chance=1.0, fail_when="after", says="no memory"))
        device = {"source_type": "volume", "destination_type": "volume", "boot_index": 0}
        for _ in range(3):
            device["uuid"] = await volume(running, imageRef=await image(running))
            made = await running.admin.active("a", imageRef="", block_device_mapping_v2=[device])
            assert made["OS-EXT-SRV-ATTR:host"] == works
            (attachment,) = [each for each in await held(running) if each["instance"] == made["id"]]
            (row,) = await attached(running, made["id"])
            assert (attachment["status"], attachment["id"]) == ("attached", row["attachment_id"])
            shown = (await running.admin.volume("GET", f"/volumes/{device['uuid']}")).json()["volume"]
            assert [each["host_name"] for each in shown["attachments"]] == [works]
            await running.admin.gone(made["id"])


async def test_a_boot_that_fails_leaves_no_volume(running: Running) -> None:
    running.set_faults_everywhere(start_guest=VerbDial(fail_chance=1.0, says="no memory"))
    root = {"source_type": "image", "destination_type": "volume", "uuid": await image(running), "boot_index": 0}
    made = await running.admin.settled(
        await running.admin.boot("a", imageRef="", block_device_mapping_v2=[{**root, "volume_size": 1}])
    )
    assert made["status"] == "ERROR"
    await becomes_none(running)
    assert await held(running) == []
    await running.admin.gone(made["id"])


async def becomes_none(running: Running) -> None:
    for each in await volumes(running):
        await becomes(running, each["id"], "gone")


@pytest.mark.parametrize(("device", "said"), [
    ({"source_type": "blank", "destination_type": "volume", "boot_index": 0}, "non-zero size"),
    ({"source_type": "volume", "destination_type": "volume", "uuid": NO_SUCH, "boot_index": 0}, "failed to get volume"),
    ({"source_type": "snapshot", "destination_type": "volume", "uuid": NO_SUCH, "boot_index": 0}, "failed to get snap"),
    ({"source_type": "image", "destination_type": "volume", "uuid": NO_SUCH, "boot_index": 0, "volume_size": 1}, "image"),
    ({"source_type": "blank", "destination_type": "volume", "boot_index": 1, "volume_size": 1}, "Boot sequence"),
    ({"source_type": "blank", "destination_type": "volume", "volume_size": 1, "boot_index": 0, "disk_bus": "odd"}, "bus"),
    (
        {"source_type": "blank", "destination_type": "volume", "volume_size": 1, "boot_index": 0, "volume_type": "odd"},
        "Volume type",
    ),
])  # fmt: skip
async def test_refused_boots_from_volumes(running: Running, device: dict[str, Any], said: str) -> None:
    reply = await running.admin.ask_boot("a", imageRef="", block_device_mapping_v2=[device])
    assert reply.status_code == 400, reply.text
    assert said in reply.text
    assert await volumes(running) == []


async def test_a_volume_without_an_image_is_not_bootable(running: Running) -> None:
    blank = await volume(running)
    device = {"source_type": "volume", "destination_type": "volume", "uuid": blank, "boot_index": 0}
    reply = await running.admin.ask_boot("a", imageRef="", block_device_mapping_v2=[device])
    assert (reply.status_code, "is not bootable" in reply.text) == (400, True)


async def test_an_image_may_be_given_with_an_unbootable_volume(running: Running) -> None:
    blank = await volume(running)
    device = {"source_type": "volume", "destination_type": "volume", "uuid": blank, "boot_index": 0, "volume_size": 1}
    server = await running.admin.active("a", block_device_mapping_v2=[device])
    assert disks(running, server) == [blank]
    assert server["image"]["id"] == await image(running)
    await running.admin.gone(server["id"])
    assert await status(running, blank) == "available"
