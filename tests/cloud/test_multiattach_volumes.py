"""A volume for several writers (its type has `multiattach`): attached to two servers, detached one after the other."""

import asyncio
from typing import Any

import pytest
from tests.cloud.conftest import Running
from tests.cloud.test_rebuild import guest
from tests.cloud.test_volumes import attach, attached, becomes, detach, disks, ended, held, running, status, volume

from moorage_testing.api_user import VERSION

pytestmark = pytest.mark.asyncio(loop_scope="module")
__all__ = ["running"]


async def several(running: Running, name: str, **more: Any) -> str:
    """A volume whose type lets several servers have it."""
    body = {"volume_type": {"name": name, "extra_specs": {"multiattach": "<is> True"}}}
    made = await running.admin.volume("POST", "/types", body)
    assert made.status_code == 200, made.text
    return await volume(running, volume_type=name, **more)


async def test_two_servers_share_a_volume(running: Running) -> None:
    one, other = await running.admin.active("a"), await running.admin.active("b")
    disk = await several(running, "shared")
    for server in (one, other):
        running.admin.http.headers["OpenStack-API-Version"] = "compute 2.60"
        reply = await attach(running, server["id"], disk)
        assert reply.status_code == 200, reply.text
        running.admin.http.headers["OpenStack-API-Version"] = f"compute {VERSION}"
        await ended(running, server["id"], "attach_volume")
    await becomes(running, disk, "in-use")
    assert {each["instance"] for each in await held(running)} == {one["id"], other["id"]}
    for server in (one, other):
        assert [each["volumeId"] for each in await attached(running, server["id"])] == [disk]
        assert disks(running, server) == [disk]
        assert [each.connection["multiattach"] for each in guest(running, server).spec.volumes] == [True]
    again = await attach(running, one["id"], disk)
    assert (again.status_code, "already attached" in again.text) == (400, True)
    for server, left in ((one, "in-use"), (other, "available")):
        assert (await detach(running, server["id"], disk)).status_code == 202
        assert (await ended(running, server["id"], "detach_volume"))["message"] is None
        await becomes(running, disk, left)
        assert disks(running, server) == []
    assert await held(running) == []


async def test_before_2_60_shared_volumes_are_refused(running: Running) -> None:
    server = await running.admin.active("a")
    disk = await several(running, "old", imageRef=await running.admin.id_of("image", "tiny"))
    device = {"source_type": "volume", "destination_type": "volume", "uuid": disk, "boot_index": 0}
    running.admin.http.headers["OpenStack-API-Version"] = "compute 2.59"
    reply = await attach(running, server["id"], disk)
    assert (reply.status_code, "2.60" in reply.text) == (400, True)
    reply = await running.admin.ask_boot("b", imageRef="", block_device_mapping_v2=[device])
    assert (reply.status_code, "2.60" in reply.text) == (400, True)
    running.admin.http.headers["OpenStack-API-Version"] = "compute 2.60"
    booted = await running.admin.active("b", imageRef="", block_device_mapping_v2=[device])
    running.admin.http.headers["OpenStack-API-Version"] = f"compute {VERSION}"
    assert (await attach(running, server["id"], disk)).status_code == 202
    await ended(running, server["id"], "attach_volume")
    assert disks(running, server) == disks(running, booted) == [disk]
    await running.admin.gone(booted["id"])
    await becomes(running, disk, "in-use")
    assert [each["instance"] for each in await held(running)] == [server["id"]]


async def test_an_accepted_detach_shows_at_the_volume_service(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits for "in-use", the other server's, must not find the one from before."""
    client = running.cloud.region.context.volumes
    assert client is not None
    begin = client.begin_detaching

    async def late(volume: str) -> None:
        await asyncio.sleep(0.3)
        await begin(volume)

    monkeypatch.setattr(client, "begin_detaching", late)
    one, other = await running.admin.active("a"), await running.admin.active("b")
    disk = await several(running, "shown")
    for server in (one, other):
        assert (await attach(running, server["id"], disk)).is_success
        await ended(running, server["id"], "attach_volume")
    for server, left in ((one, "in-use"), (other, "available")):
        unplugged = running.delay_verb("detach_volume")
        assert (await detach(running, server["id"], disk)).status_code == 202
        assert await status(running, disk) == "detaching"
        unplugged.set()
        await becomes(running, disk, left)
    assert await held(running) == []
    for server in (one, other):
        await running.admin.gone(server["id"])
