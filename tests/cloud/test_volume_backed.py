"""Servers that booted from volumes: images of them, shelved, rebuilt and rescued, in a whole cloud."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.cloud.conftest import Running, Shared
from tests.cloud.test_snapshots import act, actions, image, images, until
from tests.cloud.test_volumes import attached, becomes, disks, held, status, volume

from moorage.drivers.fault_injection import VerbDial

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def running(shared: Shared) -> AsyncIterator[Running]:
    async with shared.for_a_test() as found:
        yield found


async def backed(running: Running, name: str = "backed", *, goes: bool = True) -> dict[str, Any]:
    """A server that boots from a volume with the small image on it, with a second volume."""
    tiny = str(await running.admin.id_of("image", "tiny"))
    root = {"source_type": "image", "destination_type": "volume", "uuid": tiny, "boot_index": 0, "volume_size": 1}
    data = {"source_type": "blank", "destination_type": "volume", "volume_size": 1, "boot_index": -1}
    devices = [{**each, "delete_on_termination": goes} for each in (root, data)]
    return dict(await running.admin.active(name, imageRef="", block_device_mapping_v2=devices))


async def snapshots(running: Running) -> list[dict[str, Any]]:
    reply = await running.admin.volume("GET", "/snapshots/detail", all_tenants="1")
    return list(reply.json()["snapshots"])


async def test_its_image_names_volume_snapshots_and_boots(running: Running) -> None:
    server = await backed(running)
    reply = await act(running, server["id"], {"createImage": {"name": "copy", "metadata": {"why": "because"}}})
    assert reply.status_code == 202, reply.text
    id = reply.json()["image_id"]
    made = await until(lambda: image(running, id), lambda seen: seen is None or seen["status"] == "active")
    assert made is not None
    await running.admin.settled(server["id"])
    assert (made["size"], made["bdm_v2"], made["root_device_name"], made["why"]) == (0, "True", "/dev/vda", "because")
    mapping = json.loads(made["block_device_mapping"])
    taken = await snapshots(running)
    assert {each["snapshot_id"] for each in mapping} == {each["id"] for each in taken}
    assert [(each["source_type"], each["boot_index"], each["device_name"]) for each in mapping] == [
        ("snapshot", 0, "/dev/vda"),
        ("snapshot", -1, "/dev/vdb"),
    ]
    assert {each["status"] for each in taken} == {"available"}
    assert ("createImage", None) in await actions(running, server["id"])
    second = await running.admin.active("second", imageRef=id)
    rows = await attached(running, second["id"])
    assert [row["device"] for row in rows] == ["/dev/vda", "/dev/vdb"]
    assert disks(running, second) == [row["volumeId"] for row in rows]
    roots = [(await running.admin.volume("GET", f"/volumes/{row['volumeId']}")).json()["volume"] for row in rows]
    assert {each["snapshot_id"] for each in roots} == {each["id"] for each in taken}
    for each in (second, server):
        await running.admin.gone(each["id"])
    for each in taken:
        assert (await running.admin.volume("DELETE", f"/snapshots/{each['id']}")).status_code == 202
    await until(lambda: snapshots(running), lambda seen: not seen)
    assert await held(running) == []


async def test_a_quota_of_snapshots_leaves_no_image_and_no_snapshot(running: Running) -> None:
    server = await backed(running)
    project = running.admin.project
    before = [each["id"] for each in await images(running)]
    path = f"/os-quota-sets/{project}"
    assert (await running.admin.volume("PUT", path, {"quota_set": {"snapshots": 1}})).status_code == 200
    reply = await act(running, server["id"], {"createImage": {"name": "copy"}})
    assert reply.status_code == 403, reply.text
    left = [each["id"] for each in await images(running) if each["status"] == "active"]
    assert left == before
    backup = await act(running, server["id"], {"createBackup": {"name": "b", "backup_type": "daily", "rotation": 1}})
    assert backup.status_code == 400
    assert (await running.admin.volume("PUT", path, {"quota_set": {"snapshots": 10}})).status_code == 200
    await running.admin.gone(server["id"])


async def shelved(running: Running, server: str) -> dict[str, Any]:
    assert (await act(running, server, {"shelve": None})).status_code == 202
    seen = await running.admin.settled(server)
    assert seen["status"] == "SHELVED_OFFLOADED"
    return dict(seen)


async def attachments(running: Running, server: str) -> list[tuple[str, str]]:
    return [(each["id"], each["status"]) for each in await held(running) if each["instance"] == server]


async def test_a_shelved_server_keeps_its_volumes_reserved_without_an_image(running: Running) -> None:
    server = await backed(running)
    rows = await attached(running, server["id"])
    before = [each["id"] for each in await images(running)]
    await shelved(running, server["id"])
    assert [each["id"] for each in await images(running)] == before
    now = await attachments(running, server["id"])
    assert {state for _, state in now} == {"reserved"}
    reserved = await attached(running, server["id"])
    assert {row["attachment_id"] for row in reserved} == {id for id, _ in now}
    assert {row["attachment_id"] for row in rows}.isdisjoint(id for id, _ in now)
    assert {await status(running, row["volumeId"]) for row in rows} == {"reserved"}
    assert (await act(running, server["id"], {"unshelve": None})).status_code == 202
    again = await running.admin.settled(server["id"])
    assert again["status"] == "ACTIVE"
    assert disks(running, again) == [row["volumeId"] for row in rows]
    now = await attachments(running, server["id"])
    assert {state for _, state in now} == {"attached"}
    assert {row["attachment_id"] for row in await attached(running, server["id"])} == {id for id, _ in now}
    await running.admin.gone(server["id"])
    for row in rows:
        await becomes(running, row["volumeId"], "gone")
    assert await held(running) == []


async def test_a_failed_unshelve_releases_its_volumes(running: Running) -> None:
    server = await backed(running)
    rows = await attached(running, server["id"])
    await shelved(running, server["id"])
    running.set_faults_everywhere(start_guest=VerbDial(fail_chance=1.0, fail_when="after", says="no memory"))
    assert (await act(running, server["id"], {"unshelve": None})).status_code == 202
    assert (await running.admin.settled(server["id"]))["status"] == "SHELVED_OFFLOADED"
    now = await attachments(running, server["id"])
    assert {state for _, state in now} == {"reserved"}
    assert {row["attachment_id"] for row in await attached(running, server["id"])} == {id for id, _ in now}
    await running.admin.gone(server["id"])
    for row in rows:
        await becomes(running, row["volumeId"], "gone")
    assert await held(running) == []


async def test_attached_volumes_are_reserved_while_their_server_is_shelved(running: Running) -> None:
    server = await running.admin.active("plain")
    data = await volume(running)
    path = f"/servers/{server['id']}/os-volume_attachments"
    assert (await running.admin.compute("POST", path, {"volumeAttachment": {"volumeId": data}})).is_success
    await running.admin.settled(server["id"])
    await becomes(running, data, "in-use")
    await shelved(running, server["id"])
    assert await status(running, data) == "reserved"
    assert (await act(running, server["id"], {"unshelve": None})).status_code == 202
    again = await running.admin.settled(server["id"])
    assert (again["status"], disks(running, again)) == ("ACTIVE", [data])
    assert await status(running, data) == "in-use"
    await running.admin.gone(server["id"])
    await becomes(running, data, "available")


async def rescue_image(running: Running, **properties: str) -> str:
    url = f"{running.config.api.image.url}/v2/images"
    made = {"name": "rescue", "disk_format": "raw", "container_format": "bare", **properties}
    id = str((await running.admin.http.post(url, json=made)).json()["id"])
    headers = {"Content-Type": "application/octet-stream"}
    assert (await running.admin.http.put(f"{url}/{id}/file", content=b"rescue", headers=headers)).is_success
    return id


async def test_a_rescue_from_a_stable_device_since_2_87(running: Running) -> None:
    server = await backed(running)
    stable = await rescue_image(running, hw_rescue_device="disk", hw_rescue_bus="virtio")
    half = await rescue_image(running, hw_rescue_device="disk")
    for image_ref, at in ((stable, "2.86"), (half, "2.87"), (None, "2.87")):
        named = {} if image_ref is None else {"rescue_image_ref": image_ref}
        refused = await act(running, server["id"], {"rescue": named}, at)
        assert (refused.status_code, "Cannot rescue a volume-backed instance" in refused.text) == (400, True)
    assert (await act(running, server["id"], {"rescue": {"rescue_image_ref": stable}}, "2.87")).status_code == 200
    seen = await running.admin.settled(server["id"])
    rows = await attached(running, server["id"])
    assert (seen["status"], disks(running, seen)) == ("RESCUE", [row["volumeId"] for row in rows])
    assert (await act(running, server["id"], {"unrescue": None})).status_code == 202
    assert (await running.admin.settled(server["id"]))["status"] == "ACTIVE"
    await running.admin.gone(server["id"])


async def other_image(running: Running) -> str:
    url = f"{running.config.api.image.url}/v2/images"
    id = str(
        (
            await running.admin.http.post(url, json={"name": "other", "disk_format": "raw", "container_format": "bare"})
        ).json()["id"]
    )
    headers = {"Content-Type": "application/octet-stream"}
    assert (await running.admin.http.put(f"{url}/{id}/file", content=b"another letter", headers=headers)).is_success
    return id


async def test_its_root_is_rewritten_from_2_93(running: Running) -> None:
    server = await backed(running)
    rows = await attached(running, server["id"])
    other = await other_image(running)
    refused = await act(running, server["id"], {"rebuild": {"imageRef": other}}, "2.92")
    assert (refused.status_code, "different image for a volume-backed server" in refused.text) == (400, True)
    reply = await act(running, server["id"], {"rebuild": {"imageRef": other, "name": "anew"}}, "2.93")
    assert reply.status_code == 202, reply.text
    seen = await running.admin.settled(server["id"])
    assert (seen["status"], seen["name"], seen["image"]) == ("ACTIVE", "anew", "")
    shown = (await running.admin.volume("GET", f"/volumes/{rows[0]['volumeId']}")).json()["volume"]
    assert (shown["status"], shown["volume_image_metadata"]["image_id"]) == ("in-use", other)
    now = await attached(running, server["id"])
    assert disks(running, seen) == [row["volumeId"] for row in rows]
    assert now[0]["attachment_id"] != rows[0]["attachment_id"]
    assert now[1]["attachment_id"] == rows[1]["attachment_id"]
    assert {each["attachment_id"] for each in now} == {id for id, _ in await attachments(running, server["id"])}
    same = await act(running, server["id"], {"rebuild": {"imageRef": other}}, "2.92")
    assert same.status_code == 202, same.text
    assert (await running.admin.settled(server["id"]))["status"] == "ACTIVE"
    assert [row["attachment_id"] for row in await attached(running, server["id"])] == [
        row["attachment_id"] for row in now
    ]
    await running.admin.gone(server["id"])
    assert await held(running) == []


async def test_a_root_that_cannot_be_written_leaves_an_error_and_may_be_rebuilt(running: Running) -> None:
    server = await backed(running)
    other = await other_image(running)
    running.set_faults_everywhere(rebuild_guest=VerbDial(fail_chance=1.0, says="no memory"))
    assert (await act(running, server["id"], {"rebuild": {"imageRef": other}}, "2.93")).status_code == 202
    assert (await running.admin.settled(server["id"]))["status"] == "ERROR"
    now = await attachments(running, server["id"])
    assert {state for _, state in now} == {"attached"}
    assert {each["attachment_id"] for each in await attached(running, server["id"])} == {id for id, _ in now}
    running.set_faults_everywhere(rebuild_guest=VerbDial())
    assert (await act(running, server["id"], {"rebuild": {"imageRef": other}}, "2.93")).status_code == 202
    assert (await running.admin.settled(server["id"]))["status"] == "ACTIVE"
    await running.admin.gone(server["id"])
    assert await held(running) == []


async def backed_by(running: Running, **properties: str) -> dict[str, Any]:
    """A server that boots from a volume made of an image with these properties."""
    url = f"{running.config.api.image.url}/v2/images"
    made = {"name": "agent", "disk_format": "raw", "container_format": "bare", **properties}
    id = str((await running.admin.http.post(url, json=made)).json()["id"])
    headers = {"Content-Type": "application/octet-stream"}
    assert (await running.admin.http.put(f"{url}/{id}/file", content=b"agent", headers=headers)).is_success
    root = {"source_type": "image", "destination_type": "volume", "uuid": id, "boot_index": 0, "volume_size": 1}
    devices = [{**root, "delete_on_termination": True}]
    return dict(await running.admin.active("agent", imageRef="", block_device_mapping_v2=devices))


async def test_its_guest_is_still_while_its_volumes_are_copied(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tried with an agent, needed with `os_require_quiesce`; whatever fails, no guest stays still and nothing stays behind."""
    server = await backed_by(running, hw_qemu_guest_agent="yes", os_require_quiesce="yes")
    driver = running.cloud.fleet.drivers[server["OS-EXT-SRV-ATTR:host"]]
    volumes = running.cloud.region.context.volumes
    assert volumes is not None
    make, still_then = volumes.make_snapshot, list[bool]()

    async def making(*given: Any) -> Any:
        still_then.append(driver.is_frozen(server["id"]))
        return await make(*given)

    monkeypatch.setattr(volumes, "make_snapshot", making)
    create = {"createImage": {"name": "copy"}}
    reply = await act(running, server["id"], create)
    assert reply.status_code == 202, reply.text
    copy = reply.json()["image_id"]
    made = await until(lambda: image(running, copy), lambda seen: seen is None or seen["status"] == "active")
    assert made is not None
    await running.admin.settled(server["id"])
    assert (still_then, driver.is_frozen(server["id"])) == ([True], False)
    monkeypatch.undo()

    before = [len(await images(running)), len(await snapshots(running))]
    for dial, status_, word in (
        (VerbDial(fail_times=1), 409, "Failed to quiesce instance"),
        (VerbDial(fail_times=1, code="not_supported"), 400, "Quiescing is not supported in instance"),
    ):
        running.set_faults_everywhere(quiesce=dial)
        reply = await act(running, server["id"], create)
        assert (reply.status_code, word in reply.text) == (status_, True), reply.text
    running.set_faults_everywhere()
    await running.admin.gone(server["id"])
    assert [len(await images(running)), len(await snapshots(running))] == before

    server = await backed_by(running, os_require_quiesce="yes")
    reply = await act(running, server["id"], create)
    assert (reply.status_code, "agent is not enabled" in reply.text) == (400, True)
    await running.admin.gone(server["id"])

    server = await backed_by(running, hw_qemu_guest_agent="yes")
    running.set_faults_everywhere(quiesce=VerbDial(fail_times=1), thaw_guest=VerbDial(fail_times=9))
    for frozen in (False, True):  # who has no need to be still is copied all the same; who cannot be told thaws in time
        id = (await act(running, server["id"], create)).json()["image_id"]
        made = await until(lambda id=id: image(running, id), lambda seen: seen is None or seen["status"] == "active")
        assert made is not None
        await running.admin.settled(server["id"])
        driver = running.cloud.fleet.drivers[server["OS-EXT-SRV-ATTR:host"]]
        assert driver.is_frozen(server["id"]) is frozen
    await running.admin.gone(server["id"])
