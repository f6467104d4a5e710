"""Several ephemeral disks of one server, with formats of their own, through everything that makes its guest anew or moves it."""

import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from tests.cloud.conftest import Running, Shared
from tests.cloud.test_evacuate import evacuated, killed
from tests.cloud.test_snapshots import image, until
from tests.cloud.test_volumes import attach, attached, becomes, volume
from tests.helpers.resized_cloud import asked, assert_nothing_to_repair, host_of, resized

from moorage.main.config import Compute, Hosts
from moorage.model.guest import EphemeralDisk, GuestSpec
from moorage.model.ids import ServerId
from moorage.model.local_disks import DISKS_TRAIT, XFS_TRAIT
from moorage.model.world import Ask
from moorage.scheduler.filters.traits import has_traits
from moorage_testing.waiting import until as soon

pytestmark = pytest.mark.asyncio(loop_scope="module")
CLOUD = {
    "compute": Compute(host_silence_s=3.0, fence_plugin="simulated"),
    "hosts": Hosts(count=6, beat_s=0.3),
}
TWO = (EphemeralDisk(2, "xfs"), EphemeralDisk(1, "ext4"))
BLANK: dict[str, Any] = {"source_type": "blank", "destination_type": "local", "boot_index": -1}
LIVE = {"os-migrateLive": {"host": None, "block_migration": "auto"}}


@pytest_asyncio.fixture(loop_scope="module")
async def running(shared: Shared) -> AsyncIterator[Running]:
    async with shared.for_a_test() as found:
        yield found


def spec(running: Running, server: dict[str, Any]) -> GuestSpec:
    return running.cloud.fleet.drivers[host_of(server)].spec_of(ServerId(server["id"]))


async def flavor(running: Running, name: str, ephemeral: int, swap: int = 256) -> str:
    new = {"name": name, "ram": 64, "vcpus": 1, "disk": 1, "OS-FLV-EXT-DATA:ephemeral": ephemeral, "swap": swap}
    reply = await running.admin.compute("POST", "/flavors", {"flavor": new})
    assert reply.status_code in {200, 409}, reply.text
    return name


def no_host_has(running: Running, trait: str) -> bool:
    reasons = has_traits(Ask(resources={}, required=(trait,)), running.cloud.region.context.placement.world())
    return reasons is not None and bool(reasons.where[running.cloud.region.context.placement.world().present].all())


async def test_each_operation_gives_the_guest_its_disks(running: Running) -> None:
    admin = running.admin
    root = {
        "source_type": "image",
        "destination_type": "local",
        "uuid": await admin.id_of("image", "tiny"),
        "boot_index": 0,
    }
    disks = [
        {**BLANK, "volume_size": 2, "guest_format": "xfs", "tag": "scratch"},
        {**BLANK, "volume_size": 1, "guest_format": "ext4"},
    ]
    small, large = await flavor(running, "four", 4), await flavor(running, "eight", 8, 512)
    too_small = await flavor(running, "two", 2)
    server = await admin.active("a", flavor=small, config_drive=True, block_device_mapping_v2=[root, *disks])
    id = server["id"]

    async def right(swap_mib: int = 256) -> None:
        seen = await admin.settled(id)
        made = spec(running, seen)
        assert (made.ephemeral_disks, made.ephemeral_gib, made.swap_mib) == (TWO, 3, swap_mib)

    async def step(action: dict[str, Any], status: str = "ACTIVE", code: int = 202, swap_mib: int = 256) -> None:
        await asked(running, id, action, status, code)
        if status != "SHELVED_OFFLOADED":
            await right(swap_mib)

    await right()
    await step({"rebuild": {"imageRef": root["uuid"]}})
    await step({"rescue": {}}, "RESCUE", 200)
    await step({"unrescue": None})
    await resized(running, id, large)
    await right(512)
    await step({"revertResize": None})
    await resized(running, id, large)
    await step({"confirmResize": None}, code=204, swap_mib=512)
    reply = await admin.compute(
        "POST", f"/servers/{id}/action", {"resize": {"flavorRef": await admin.id_of("flavor", too_small)}}
    )
    assert reply.status_code == 202, reply.text
    await admin.settled(id)
    await running.wait_until_unlocked(id)
    await right(512)
    await resized(running, id, small)  # what it has fits, though the flavor before had more
    await step({"confirmResize": None}, code=204)
    await step({"migrate": None}, "VERIFY_RESIZE")
    await step({"confirmResize": None}, code=204)
    await step(LIVE)
    await step({"shelve": None}, "SHELVED_OFFLOADED")
    await step({"unshelve": None})
    disk = await volume(running)
    assert (await attach(running, id, disk)).status_code == 202  # after both, and the swap disk of the flavor
    await becomes(running, disk, "in-use")
    assert [row["device"] for row in await attached(running, id)] == ["/dev/vde"]
    dead = await killed(running, host_of(await admin.settled(id)))
    await dead.down()
    await evacuated(running, id)
    await right()
    await dead.returns()
    await dead.down(False)
    await assert_nothing_to_repair(running)


async def test_an_image_of_a_server_that_boots_from_a_volume_has_them(running: Running) -> None:
    admin = running.admin
    tiny = await admin.id_of("image", "tiny")
    root = {"source_type": "image", "destination_type": "volume", "uuid": tiny, "boot_index": 0, "volume_size": 1}
    data = {"source_type": "blank", "destination_type": "volume", "volume_size": 1, "boot_index": -1}
    disks = [{**BLANK, "volume_size": 2, "guest_format": "xfs"}, {**BLANK, "volume_size": 1, "guest_format": "ext4"}]
    devices = [{**each, "delete_on_termination": True} for each in (root, data, *disks)]
    kind = await flavor(running, "four", 4)
    server = await admin.active("b", flavor=kind, imageRef="", block_device_mapping_v2=devices)
    assert [row["device"] for row in await attached(running, server["id"])] == ["/dev/vda", "/dev/vde"]
    reply = await admin.compute("POST", f"/servers/{server['id']}/action", {"createImage": {"name": "copy"}})
    made = await until(
        lambda: image(running, reply.json()["image_id"]), lambda seen: seen is not None and seen["status"] == "active"
    )
    rows = [each for each in json.loads(made["block_device_mapping"]) if each["destination_type"] == "local"]
    assert [(each["volume_size"], each["guest_format"], each["device_name"]) for each in rows] == [
        (2, "xfs", "/dev/vdb"),
        (1, "ext4", "/dev/vdc"),
    ]
    second = await admin.active("c", flavor=kind, imageRef=made["id"])
    assert spec(running, second).ephemeral_disks == TWO


async def test_only_hosts_that_make_them_get_them(running: Running) -> None:
    """A host of an earlier release, or without the program, is rejected by name."""
    admin = running.admin
    root = {
        "source_type": "image",
        "destination_type": "local",
        "uuid": await admin.id_of("image", "tiny"),
        "boot_index": 0,
    }
    kind = await flavor(running, "four", 4)
    for trait, disks in (
        (DISKS_TRAIT, [{**BLANK, "volume_size": 2}] * 2),
        (XFS_TRAIT, [{**BLANK, "volume_size": 2, "guest_format": "xfs"}]),
    ):
        for driver in running.cloud.fleet.drivers.values():
            driver.turn(msgspec.structs.replace(driver.dials, without_traits=(trait,)))
        await soon(partial(no_host_has, running, trait))
        reply = await admin.ask_boot("d", flavor=kind, block_device_mapping_v2=[root, *disks])
        assert reply.status_code == 202, reply.text
        assert (await admin.settled(reply.json()["server"]["id"]))["status"] == "ERROR"
