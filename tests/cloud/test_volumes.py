"""Volumes attached to servers and detached from them, in a whole cloud: the volume service, the record and the guest agree."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.cloud.conftest import Running, Shared

from moorage.drivers.fault_injection import VerbDial
from moorage.model.ids import ServerId
from moorage_testing.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def running(shared: Shared) -> AsyncIterator[Running]:
    async with shared.for_a_test() as found:
        yield found


PATIENCE_S = 180.0
NO_SUCH = "0d0c0b0a-0000-4000-8000-00000000ffff"


async def volume(running: Running, size: int = 1, **more: Any) -> str:
    """The id of a new volume that is available."""
    reply = await running.admin.volume("POST", "/volumes", {"volume": {"size": size, "name": "v", **more}})
    assert reply.status_code == 202, reply.text
    made = str(reply.json()["volume"]["id"])
    await becomes(running, made, "available")
    return made


async def status(running: Running, volume: str) -> str:
    reply = await running.admin.volume("GET", f"/volumes/{volume}")
    return str(reply.json()["volume"]["status"]) if reply.status_code == 200 else "gone"


async def becomes(running: Running, volume: str, wanted: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while (now := await status(running, volume)) != wanted:
        assert time.monotonic() < deadline, f"{volume} is {now}, not {wanted}"
        await asyncio.sleep(running.look_every_s)


async def attach(running: Running, server: str, volume: str, **more: Any) -> Any:
    body = {"volumeAttachment": {"volumeId": volume, **more}}
    return await running.admin.compute("POST", f"/servers/{server}/os-volume_attachments", body)


async def attached(running: Running, server: str) -> list[dict[str, Any]]:
    reply = await running.admin.compute("GET", f"/servers/{server}/os-volume_attachments")
    assert reply.status_code == 200, reply.text
    return list(reply.json()["volumeAttachments"])


async def detach(running: Running, server: str, volume: str) -> Any:
    return await running.admin.compute("DELETE", f"/servers/{server}/os-volume_attachments/{volume}")


def disks(running: Running, server: dict[str, Any]) -> list[str]:
    """The volumes that the guest has."""
    driver = running.cloud.fleet.drivers[server["OS-EXT-SRV-ATTR:host"]]
    return [each.volume for each in driver.spec_of(ServerId(server["id"])).volumes]


async def held(running: Running) -> list[dict[str, Any]]:
    """Everything the volume service holds for servers."""
    reply = await running.admin.volume("GET", "/attachments/detail", all_tenants="1")
    assert reply.status_code == 200, reply.text
    return list(reply.json()["attachments"])


async def ended(running: Running, server: str, action: str) -> dict[str, Any]:
    """The newest such action, when it has ended."""
    deadline = time.monotonic() + PATIENCE_S
    path = f"/servers/{server}/os-instance-actions"
    while True:
        actions = (await running.admin.compute("GET", path)).json()["instanceActions"]
        for each in actions:
            if each["action"] == action:
                found = (await running.admin.compute("GET", f"{path}/{each['request_id']}")).json()["instanceAction"]
                if found["events"] and found["events"][-1]["finish_time"]:
                    return dict(found)
                break
        assert time.monotonic() < deadline, f"{action} of {server} does not end"
        await asyncio.sleep(0.02)


async def test_a_volume_is_attached_and_detached(running: Running) -> None:
    server, disk = await running.admin.active("a"), await volume(running)
    reply = await attach(running, server["id"], disk, tag="data")
    assert reply.status_code == 202, reply.text
    assert not reply.content
    await becomes(running, disk, "in-use")
    assert (await ended(running, server["id"], "attach_volume"))["message"] is None
    (row,) = await attached(running, server["id"])
    (attachment,) = await held(running)
    assert row["attachment_id"] == attachment["id"]
    assert (row["volumeId"], row["device"], row["tag"]) == (disk, "/dev/vdb", "data")
    assert (attachment["status"], attachment["instance"]) == ("attached", server["id"])
    assert disks(running, server) == [disk]
    shown = await running.admin.server(server["id"])
    assert shown is not None
    assert shown["os-extended-volumes:volumes_attached"] == [{"id": disk, "delete_on_termination": False}]
    reply = await detach(running, server["id"], disk)
    assert reply.status_code == 202, reply.text
    await becomes(running, disk, "available")
    assert (await ended(running, server["id"], "detach_volume"))["message"] is None
    assert await attached(running, server["id"]) == []
    assert disks(running, server) == []
    assert await held(running) == []
    await running.admin.gone(server["id"])


async def test_a_device_name_that_is_taken_is_refused(running: Running) -> None:
    server, one, other = await running.admin.active("a"), await volume(running), await volume(running)
    reply = await attach(running, server["id"], other, device="/dev/vda")
    assert (reply.status_code, "(/dev/vda) is in use" in reply.text) == (409, True)
    assert (await attach(running, server["id"], one, device="/dev/vdc")).status_code == 202
    await becomes(running, one, "in-use")
    reply = await attach(running, server["id"], other, device="/dev/vdc")
    assert (reply.status_code, "(/dev/vdc) is in use" in reply.text) == (409, True)
    assert await status(running, other) == "available"
    assert (await attach(running, server["id"], other)).status_code == 202
    await becomes(running, other, "in-use")
    assert sorted(each["device"] for each in await attached(running, server["id"])) == ["/dev/vdb", "/dev/vdc"]
    await running.admin.delete(server["id"])
    await running.admin.gone(server["id"])


async def test_a_delete_detaches_volumes_and_deletes_the_marked_ones(running: Running) -> None:
    server, stays, goes = await running.admin.active("a"), await volume(running), await volume(running)
    assert (await attach(running, server["id"], stays)).status_code == 202
    assert (await attach(running, server["id"], goes, delete_on_termination=True)).status_code == 202
    await becomes(running, goes, "in-use")
    await running.admin.gone(server["id"])
    assert await status(running, stays) == "available"
    await becomes(running, goes, "gone")
    assert await held(running) == []


async def test_a_marked_volume_goes_with_a_server_that_is_deleted_while_it_is_attached(running: Running) -> None:
    server, goes = await running.admin.active("a"), await volume(running)
    running.set_faults_everywhere(attach_volume=VerbDial(delay_s=2.0))
    assert (await attach(running, server["id"], goes, delete_on_termination=True)).status_code == 202
    await becomes(running, goes, "in-use")
    await running.admin.gone(server["id"])
    await becomes(running, goes, "gone")
    assert await held(running) == []


async def test_refused_attaches(running: Running) -> None:
    server, other, disk = await running.admin.active("a"), await running.admin.active("b"), await volume(running)
    assert (await attach(running, server["id"], NO_SUCH)).status_code == 404
    assert (await attach(running, server["id"], disk)).status_code == 202
    await ended(running, server["id"], "attach_volume")
    again = await attach(running, server["id"], disk)
    assert again.status_code == 400, again.text
    taken = await attach(running, other["id"], disk)
    assert (taken.status_code, "already attached" in taken.text) == (400, True)
    spare = await volume(running)
    assert (await attach(running, server["id"], spare, device="/dev/vdb")).status_code == 409
    assert (await detach(running, other["id"], disk)).status_code == 404
    assert (await detach(running, server["id"], NO_SUCH)).status_code == 404
    await running.admin.compute("POST", f"/servers/{server['id']}/action", {"lock": None})
    for each in (server, other):
        await running.admin.gone(each["id"])


async def test_a_volume_that_is_not_in_use_forbids_rebuild_and_rescue(running: Running) -> None:
    """The guest could not be connected to it again: refused before anything is touched, as Nova does."""
    admin, disk = running.admin, await volume(running)
    server = (await admin.active("a"))["id"]
    assert (await attach(running, server, disk)).status_code in {200, 202}
    await becomes(running, disk, "in-use")
    image = await admin.id_of("image", "tiny")
    for state in ("error", "in-use"):
        reply = await admin.volume("POST", f"/volumes/{disk}/action", {"os-reset_status": {"status": state}})
        assert reply.status_code == 202, reply.text
        for action, status in (({"rebuild": {"imageRef": image}}, 400), ({"rescue": None}, 409)):
            reply = await admin.compute("POST", f"/servers/{server}/action", action)
            if state == "in-use":
                assert reply.status_code in {200, 202}, reply.text
                await admin.settled(server)
                continue
            assert reply.status_code == status, reply.text
            said = f"Invalid volume: volume '{disk}' status must be 'in-use'. Currently in 'error' status"
            assert [each["message"] for each in reply.json().values()] == [said]
    await admin.gone(server)


async def test_a_failed_plug_leaves_nothing(running: Running) -> None:
    server, disk = await running.admin.active("a"), await volume(running)
    running.set_faults_everywhere(attach_volume=VerbDial(fail_times=1, fail_when="after", says="no bus is free"))
    assert (await attach(running, server["id"], disk)).status_code == 202
    action = await ended(running, server["id"], "attach_volume")
    assert action["message"] == "Error"
    assert "no bus is free" in action["events"][-1]["details"]
    await becomes(running, disk, "available")
    assert await attached(running, server["id"]) == []
    assert disks(running, server) == []
    await running.admin.gone(server["id"])


async def test_a_volume_grows_while_attached_and_its_delete_flag_can_be_changed(running: Running) -> None:
    server, disk = await running.admin.active("a"), await volume(running)
    assert (await attach(running, server["id"], disk)).status_code == 202
    await becomes(running, disk, "in-use")
    await ended(running, server["id"], "attach_volume")
    reply = await running.admin.volume("POST", f"/volumes/{disk}/action", {"os-extend": {"new_size": 3}})
    assert reply.status_code == 202, reply.text
    assert (await ended(running, server["id"], "extend_volume"))["message"] is None
    await becomes(running, disk, "in-use")
    driver = running.cloud.fleet.drivers[server["OS-EXT-SRV-ATTR:host"]]
    assert [each.size_gib for each in driver.spec_of(ServerId(server["id"])).volumes] == [3]
    path, body = f"/servers/{server['id']}/os-volume_attachments/{disk}", {"volumeId": disk}
    for more, wanted in (({"tag": "new"}, 400), ({"delete_on_termination": True}, 202)):
        reply = await running.admin.compute("PUT", path, {"volumeAttachment": {**body, **more}})
        assert reply.status_code == wanted, reply.text
    await running.admin.gone(server["id"])
    await becomes(running, disk, "gone")


async def test_a_busy_device_stays_attached(running: Running) -> None:
    server, disk = await running.admin.active("a"), await volume(running)
    assert (await attach(running, server["id"], disk)).status_code == 202
    await ended(running, server["id"], "attach_volume")
    running.set_faults_everywhere(detach_volume=VerbDial(fail_times=1, says="the device is busy", code="device_busy"))
    assert (await detach(running, server["id"], disk)).status_code == 202
    action = await ended(running, server["id"], "detach_volume")
    assert (action["message"], "busy" in action["events"][-1]["details"]) == ("Error", True)
    await becomes(running, disk, "in-use")
    assert disks(running, server) == [disk]
    assert (await detach(running, server["id"], disk)).status_code == 202
    await becomes(running, disk, "available")
    await running.admin.gone(server["id"])


async def snapshot_that_waits(running: Running, volume: str) -> str:
    """One that is said to be made by somebody else, as those of back ends that keep files are."""
    body = {"snapshot": {"volume_id": volume}}
    reply = await running.admin.volume("POST", "/snapshots", body)
    assert reply.status_code == 202, reply.text
    made = str(reply.json()["snapshot"]["id"])
    await snapshot_becomes(running, made, "available", "100%")
    return made


async def reset(running: Running, snapshot: str, status: str) -> None:
    body = {"os-reset_status": {"status": status}}
    reply = await running.admin.volume("POST", f"/snapshots/{snapshot}/action", body)
    assert reply.status_code == 202, reply.text


async def snapshot_becomes(running: Running, snapshot: str, status: str, progress: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        shown = (await running.admin.volume("GET", f"/snapshots/{snapshot}")).json()["snapshot"]
        now = shown["status"], shown["os-extended-snapshot-attributes:progress"]
        if now == (status, progress):
            return
        assert time.monotonic() < deadline, f"{snapshot} is {now}, not {(status, progress)}"
        await asyncio.sleep(running.look_every_s)


async def test_the_host_makes_and_deletes_assisted_snapshots(running: Running) -> None:
    disk, path = await volume(running), "/os-assisted-volume-snapshots"
    made = [await snapshot_that_waits(running, disk) for _ in range(2)]
    server = await running.admin.active("a")
    assert (await attach(running, server["id"], disk)).status_code == 202
    await ended(running, server["id"], "attach_volume")
    driver = running.cloud.fleet.drivers[server["OS-EXT-SRV-ATTR:host"]]

    async def take(snapshot: str, file: str) -> Any:
        info = {"snapshot_id": snapshot, "type": "qcow2", "new_file": file}
        body = {"snapshot": {"volume_id": disk, "create_info": info}}
        await reset(running, snapshot, "creating")
        return await running.admin.compute("POST", path, body)

    def chain() -> tuple[str, ...]:
        return driver.chain_of(ServerId(server["id"]), disk)

    for place, snapshot in enumerate(made):
        reply = await take(snapshot, f"file-{place}")
        assert (reply.status_code, reply.json()) == (200, {"snapshot": {"id": None, "volumeId": disk}})
        await snapshot_becomes(running, snapshot, "creating", "90%")
    assert chain() == ("file-0", "file-1")
    await reset(running, made[0], "deleting")
    info = f'{{"volume_id":"{disk}","type":"qcow2","file_to_merge":"file-0","merge_target_file":"volume"}}'
    reply = await running.admin.compute("DELETE", f"{path}/{made[0]}", delete_info=info)
    assert reply.status_code == 204, reply.text
    await until(
        lambda: chain() == ("file-1",)
    )  # Cinder keeps the progress of before: it says nothing of this one's end
    await snapshot_becomes(running, made[0], "deleting", "90%")
    running.set_faults_everywhere(take_volume_snapshot=VerbDial(fail_times=1, says="no room for another file"))
    assert (await take(made[1], "file-2")).status_code == 200
    await snapshot_becomes(running, made[1], "error", "90%")
    running.set_faults_everywhere(drop_volume_snapshot=VerbDial(fail_times=1))
    await reset(running, made[1], "deleting")
    unknown = f'{{"volume_id":"{disk}"}}'
    assert (await running.admin.compute("DELETE", f"{path}/{made[1]}", delete_info=unknown)).status_code == 204
    await snapshot_becomes(running, made[1], "error_deleting", "90%")
    assert chain() == ("file-1",)
    reply = await running.admin.compute("DELETE", f"{path}/{NO_SUCH}", delete_info=unknown)  # nobody waits for it
    assert reply.status_code == 204, reply.text
    assert await detach_and_wait(running, server["id"], disk) == []
    await running.admin.gone(server["id"])
    for snapshot in made:
        await reset(running, snapshot, "error")
        assert (await running.admin.volume("DELETE", f"/snapshots/{snapshot}")).status_code == 202
    deadline = time.monotonic() + PATIENCE_S
    while (await running.admin.volume("GET", "/snapshots")).json()["snapshots"]:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def detach_and_wait(running: Running, server: str, disk: str) -> list[str]:
    assert (await detach(running, server, disk)).status_code == 202
    await becomes(running, disk, "available")
    await ended(running, server, "detach_volume")
    return [each["volumeId"] for each in await attached(running, server)]
