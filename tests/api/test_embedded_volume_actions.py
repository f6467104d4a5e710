"""Actions on volumes of the embedded volume service: extend, copy, upload, reimage, retype, transfer."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from moorage_testing.volume_app import (
    OTHER_SERVER,
    SERVER,
    VolumeApp,
    act,
    ask_volume,
    attached,
    gone,
    made,
    reserved,
    shown,
    until,
    volume_service,
)
from moorage_testing.waiting import until as eventually

IMAGE, OTHER = "1a6e0000-0000-4000-8000-0000000000aa", "1a6e0000-0000-4000-8000-0000000000bb"
DATA = bytes(range(256)) * 100
SERVICE_TOKEN = {"X-Service-Token": "nova"}


@pytest.fixture
async def cloud(tmp_path: Path) -> AsyncIterator[VolumeApp]:
    async with volume_service(tmp_path) as opened:
        opened.images.put(IMAGE, DATA, name="jammy", os_distro="ubuntu")
        opened.images.put(OTHER, DATA[::-1], name="noble")
        yield opened


def _begins(cloud: VolumeApp, id: str, data: bytes, noun: str = "volume") -> bool:
    with (cloud.files / f"{noun}-{id}").open("rb") as file:
        return file.read(len(data)) == data


async def snapshotted(client: httpx.AsyncClient, volume: str, **said: object) -> dict[str, object]:
    answer = await client.post("/snapshots", json={"snapshot": {"volume_id": volume} | said})
    assert answer.status_code == 202, answer.text
    return await until(client, answer.json()["snapshot"]["id"], "available", "snapshot")


# ---------------------------------------------------------------------------------------------------- sources


async def test_a_volume_of_an_image_has_its_data_and_metadata(cloud: VolumeApp) -> None:
    alice = cloud.open_as("alice")
    volume = await made(alice, imageRef=IMAGE)
    assert volume["bootable"] == "true"
    assert volume["volume_image_metadata"] == {
        "image_id": IMAGE, "image_name": "jammy", "checksum": "c", "container_format": "bare", "disk_format": "raw",
        "min_disk": "0", "min_ram": "0", "size": str(len(DATA)), "os_distro": "ubuntu",
    }  # fmt: skip
    assert _begins(cloud, volume["id"], DATA)
    by_name = await made(alice, imageRef="noble")
    assert _begins(cloud, by_name["id"], DATA[::-1])
    for said, status in (
        ({"imageRef": "none"}, 400),
        ({"imageRef": IMAGE, "source_volid": volume["id"]}, 400),
    ):
        assert (await ask_volume(alice, **said)).status_code == status
    cloud.images.docs[OTHER]["min_disk"] = 2
    assert "minDisk" in (await ask_volume(alice, imageRef=OTHER)).text
    cloud.images.docs[OTHER] |= {"min_disk": 0, "status": "queued"}
    assert "not active" in (await ask_volume(alice, imageRef=OTHER)).text


async def test_an_image_that_cannot_be_read_leaves_the_volume_in_error(cloud: VolumeApp) -> None:
    cloud.images.broken = True
    alice = cloud.open_as("alice")
    volume = await made(alice, "error", imageRef=IMAGE)
    assert (await alice.delete(f"/volumes/{volume['id']}")).status_code == 202
    await gone(alice, volume["id"])


async def test_snapshots_and_clones_are_copies(cloud: VolumeApp) -> None:
    alice = cloud.open_as("alice")
    volume = await made(alice, imageRef=IMAGE, size=2)
    snapshot = await snapshotted(alice, volume["id"], name="s", metadata={"k": "v"})
    assert (snapshot["size"], snapshot["os-extended-snapshot-attributes:progress"]) == (2, "100%")
    assert (await alice.delete(f"/volumes/{volume['id']}")).status_code == 400, "it has a snapshot"
    clone = await made(alice, source_volid=volume["id"], size=None)
    copy = await made(alice, snapshot_id=snapshot["id"], size=3)
    for each, size in ((clone, 2), (copy, 3)):
        assert (each["size"], each["bootable"]) == (size, "true")
        assert each["volume_image_metadata"]["image_name"] == "jammy"
        assert _begins(cloud, each["id"], DATA)
    assert (cloud.files / f"volume-{copy['id']}").stat().st_size == 3 * 1024**3
    assert (await ask_volume(alice, snapshot_id=snapshot["id"], size=1)).status_code == 400
    rows = (await alice.get(f"/snapshots/detail?volume_id={volume['id']}")).json()["snapshots"]
    assert [row["id"] for row in rows] == [snapshot["id"]]
    assert (await alice.delete(f"/volumes/{volume['id']}?cascade=true")).status_code == 202
    await gone(alice, volume["id"])
    await gone(alice, str(snapshot["id"]), "snapshot")
    assert not (cloud.files / f"snapshot-{snapshot['id']}").exists()


async def test_an_image_of_a_server_on_a_volume_is_its_snapshot(cloud: VolumeApp) -> None:
    alice = cloud.open_as("alice")
    volume = await made(alice, imageRef=IMAGE)
    snapshot = await snapshotted(alice, volume["id"])
    bdm = f'[{{"source_type": "snapshot", "boot_index": 0, "snapshot_id": "{snapshot["id"]}", "volume_size": 1}}]'
    cloud.images.put(OTHER, b"", block_device_mapping=bdm)
    copy = await made(alice, imageRef=OTHER)
    assert copy["snapshot_id"] == snapshot["id"]
    assert _begins(cloud, copy["id"], DATA)


async def test_a_snapshot_of_a_used_volume_needs_force_below_3_66(cloud: VolumeApp) -> None:
    alice = cloud.open_as("alice")
    id = (await made(alice))["id"]
    await attached(alice, id)
    old = {"OpenStack-API-Version": "volume 3.65"}
    body = {"snapshot": {"volume_id": id}}
    assert (await alice.post("/snapshots", json=body, headers=old)).status_code == 400
    assert (await alice.post("/snapshots", json=body)).status_code == 202
    body["snapshot"]["force"] = False
    assert (await alice.post("/snapshots", json=body)).status_code == 400
    body["snapshot"]["force"] = True
    assert (await alice.post("/snapshots", json=body, headers=old)).status_code == 202


async def test_revert_to_the_latest_snapshot(cloud: VolumeApp) -> None:
    alice = cloud.open_as("alice")
    id = (await made(alice, imageRef=IMAGE))["id"]
    first = await snapshotted(alice, id)
    with (cloud.files / f"volume-{id}").open("r+b") as file:
        file.write(b"changed")
    assert (await act(alice, id, "revert", {"snapshot_id": str(first["id"])})).status_code == 202
    await until(alice, id, "available")
    assert _begins(cloud, id, DATA)
    second = await snapshotted(alice, id)
    assert (await act(alice, id, "revert", {"snapshot_id": str(first["id"])})).status_code == 400
    assert (await alice.delete(f"/snapshots/{second['id']}")).status_code == 202


# ---------------------------------------------------------------------------------------------------- growing


async def test_extend_a_free_and_a_used_volume(cloud: VolumeApp) -> None:
    alice = cloud.open_as("alice")
    id = (await made(alice))["id"]
    assert (await act(alice, id, "os-extend", {"new_size": 1})).status_code == 400
    assert (await act(alice, id, "os-extend", {"new_size": 2})).status_code == 202
    assert (await until(alice, id, "available"))["size"] == 2
    assert cloud.events == []
    await attached(alice, id)
    old = {"OpenStack-API-Version": "volume 3.41"}
    assert (await act(alice, id, "os-extend", {"new_size": 3}, **old)).status_code == 400
    assert (await act(alice, id, "os-extend", {"new_size": 3})).status_code == 202
    assert (await until(alice, id, "in-use"))["size"] == 3
    await eventually(lambda: cloud.events)
    assert cloud.events == [{"name": "volume-extended", "server_uuid": SERVER, "tag": id, "status": "completed"}]
    assert (cloud.files / f"volume-{id}").stat().st_size == 3 * 1024**3
    assert (await act(alice, id, "os-extend", {"new_size": 2000})).status_code == 413
    assert (await shown(alice, id))["status"] == "in-use"


async def test_extend_completion_is_refused_when_nothing_is_extended(cloud: VolumeApp) -> None:
    alice, admin = cloud.open_as("alice"), cloud.open_as("admin")
    id = (await made(alice))["id"]
    assert (await act(alice, id, "os-extend_volume_completion", {})).status_code == 403
    answer = await act(admin, id, "os-extend_volume_completion", {})
    assert (answer.status_code, "not being extended" in answer.text) == (400, True)


# ---------------------------------------------------------------------------------------------------- images


async def test_a_volume_is_uploaded_as_an_image(cloud: VolumeApp) -> None:
    alice = cloud.open_as("alice")
    id = (await made(alice, imageRef=IMAGE))["id"]
    answer = await act(alice, id, "os-volume_upload_image", {"image_name": "mine", "visibility": "shared"})
    assert answer.status_code == 202, answer.text
    result = answer.json()["os-volume_upload_image"]
    assert (result["status"], result["image_name"], result["visibility"]) == ("uploading", "mine", "shared")
    await until(alice, id, "available")
    image = cloud.images.docs[result["image_id"]]
    assert (image["size"], image["min_disk"], image["os_distro"]) == (1024**3, 1, "ubuntu")
    assert cloud.images.data[result["image_id"]].startswith(DATA)
    await attached(alice, id)
    assert (await act(alice, id, "os-volume_upload_image", {"image_name": "m"})).status_code == 400
    assert (await act(alice, id, "os-volume_upload_image", {"image_name": "m", "force": True})).status_code == 202
    await until(alice, id, "in-use")
    public = {"image_name": "m", "force": True, "visibility": "public"}
    assert (await act(alice, id, "os-volume_upload_image", public)).status_code == 403


async def test_reimage_of_a_reserved_volume_sends_an_event_to_compute(cloud: VolumeApp) -> None:
    alice = cloud.open_as("alice")
    id = (await made(alice, imageRef=IMAGE))["id"]
    await reserved(alice, id)
    assert (await act(alice, id, "os-reimage", {"image_id": OTHER})).status_code == 400
    body = {"image_id": OTHER, "reimage_reserved": True}
    assert (await act(alice, id, "os-reimage", body)).status_code == 202
    volume = await until(alice, id, "reserved")
    await eventually(lambda: cloud.events)
    assert cloud.events == [{"name": "volume-reimaged", "server_uuid": SERVER, "tag": id, "status": "completed"}]
    volume = await shown(alice, id)
    assert volume["volume_image_metadata"]["image_name"] == "noble"
    assert _begins(cloud, id, DATA[::-1])
    old = {"OpenStack-API-Version": "volume 3.67"}
    assert (await act(alice, id, "os-reimage", body, **old)).status_code == 404


async def test_image_metadata_is_set_shown_and_unset(cloud: VolumeApp) -> None:
    alice = cloud.open_as("alice")
    id = (await made(alice))["id"]
    answer = await act(alice, id, "os-set_image_metadata", {"metadata": {"hw_disk_bus": "scsi", "a": "b"}})
    assert answer.json() == {"metadata": {"hw_disk_bus": "scsi", "a": "b"}}
    assert (await act(alice, id, "os-unset_image_metadata", {"key": "a"})).status_code == 200
    assert (await act(alice, id, "os-unset_image_metadata", {"key": "a"})).status_code == 404
    assert (await act(alice, id, "os-show_image_metadata")).json() == {"metadata": {"hw_disk_bus": "scsi"}}
    assert (await shown(alice, id))["volume_image_metadata"] == {"hw_disk_bus": "scsi"}


# ---------------------------------------------------------------------------------------------------- attaching


async def test_a_multiattach_volume_has_several_servers(cloud: VolumeApp) -> None:
    alice, admin = cloud.open_as("alice"), cloud.open_as("admin")
    made_type = {"volume_type": {"name": "many", "extra_specs": {"multiattach": "<is> True"}}}
    assert (await admin.post("/types", json=made_type)).status_code == 200
    id = (await made(alice, volume_type="many"))["id"]
    first = await attached(alice, id, SERVER, "h1")
    second = await attached(alice, id, OTHER_SERVER, "h2")
    volume = await shown(alice, id)
    assert volume["multiattach"] is True
    assert {each["server_id"] for each in volume["attachments"]} == {SERVER, OTHER_SERVER}
    answer = await alice.delete(f"/attachments/{first['id']}", headers=SERVICE_TOKEN)
    assert [each["id"] for each in answer.json()["attachments"]] == [second["id"]]
    assert (await shown(alice, id))["status"] == "in-use"


async def test_a_moving_server_may_have_two_attachments_of_a_volume(cloud: VolumeApp) -> None:
    alice = cloud.open_as("alice")
    id = (await made(alice))["id"]
    first = await attached(alice, id, SERVER, "h1")
    second = await reserved(alice, id, SERVER, connector={"host": "h2"})
    answer = await alice.put(f"/attachments/{second['id']}", json={"attachment": {"connector": {"host": "h3"}}})
    assert answer.status_code == 409, "Cinder connects a second host of such a volume in the creation alone"
    assert (await shown(alice, id))["status"] == "attaching"
    assert (await alice.post(f"/attachments/{second['id']}/action", json={"os-complete": None})).status_code == 204
    await alice.delete(f"/attachments/{first['id']}", headers=SERVICE_TOKEN)
    (row,) = (await shown(alice, id))["attachments"]
    assert row["attachment_id"] == second["id"]
    refused = await alice.post("/attachments", json={"attachment": {"volume_uuid": id, "instance_uuid": OTHER_SERVER}})
    assert refused.status_code == 400


async def test_the_older_attach_calls(cloud: VolumeApp) -> None:
    alice = cloud.open_as("alice")
    id = (await made(alice))["id"]
    assert (await act(alice, id, "os-reserve")).status_code == 202
    assert (await act(alice, id, "os-reserve")).status_code == 400
    assert (await act(alice, id, "os-unreserve")).status_code == 202
    assert (await shown(alice, id))["status"] == "available"
    await act(alice, id, "os-reserve")
    answer = await act(alice, id, "os-initialize_connection", {"connector": {"host": "h1"}})
    assert answer.json()["connection_info"]["data"]["device_path"].endswith(id)
    body = {"instance_uuid": SERVER, "mountpoint": "/dev/vdb", "mode": "rw"}
    assert (await act(alice, id, "os-attach", body)).status_code == 202
    volume = await shown(alice, id)
    assert (volume["status"], volume["metadata"]) == ("in-use", {"readonly": "False", "attached_mode": "rw"})
    (row,) = volume["attachments"]
    assert (await act(alice, id, "os-begin_detaching")).status_code == 202
    assert (await shown(alice, id))["status"] == "detaching"
    assert (await act(alice, id, "os-roll_detaching")).status_code == 202
    assert (await act(alice, id, "os-begin_detaching")).status_code == 202
    assert (await act(alice, id, "os-terminate_connection", {"connector": {"host": "h1"}})).status_code == 202
    assert (await act(alice, id, "os-detach", {"attachment_id": row["attachment_id"]})).status_code == 202
    volume = await shown(alice, id)
    assert (volume["status"], volume["attachments"]) == ("available", [])


async def test_no_user_ends_a_connection_that_compute_uses(cloud: VolumeApp) -> None:
    alice, admin = cloud.open_as("alice"), cloud.open_as("admin")
    id = (await made(alice))["id"]
    found = await attached(alice, id)
    cloud.held[SERVER, id] = found["id"]
    connector = {"connector": {"host": "h1"}}
    for who, action, said in (
        (alice, "os-detach", {"attachment_id": found["id"]}),
        (alice, "os-detach", None),
        (alice, "os-terminate_connection", connector),
        (admin, "os-force_detach", connector | {"attachment_id": found["id"]}),
    ):
        answer = await act(who, id, action, said)
        assert answer.status_code == 409, (action, answer.text)
    assert (await shown(alice, id))["status"] == "in-use"
    said = connector | {"attachment_id": found["id"]}
    assert (await act(admin, id, "os-force_detach", said, **SERVICE_TOKEN)).status_code == 202
    assert (await shown(alice, id))["status"] == "available"


async def test_a_read_only_volume_is_attached_read_only(cloud: VolumeApp) -> None:
    alice = cloud.open_as("alice")
    id = (await made(alice))["id"]
    assert (await act(alice, id, "os-update_readonly_flag", {"readonly": True})).status_code == 202
    assert (await shown(alice, id))["metadata"] == {"readonly": "True"}
    found = await reserved(alice, id, connector={"host": "h1"})
    answer = await alice.get(f"/attachments/{found['id']}")
    shown_now = answer.json()["attachment"]
    assert (shown_now["attach_mode"], shown_now["connection_info"]["access_mode"]) == ("ro", "ro")


async def test_a_swap_by_compute_moves_the_uses(cloud: VolumeApp) -> None:
    alice, admin = cloud.open_as("alice"), cloud.open_as("admin")
    old, new = (await made(alice))["id"], (await made(alice))["id"]
    await attached(alice, old)
    body = {"new_volume": new}
    answer = await act(admin, old, "os-migrate_volume_completion", body, **SERVICE_TOKEN)
    assert (answer.status_code, answer.json()) == (200, {"save_volume_id": new})
    assert ((await shown(alice, old))["status"], (await shown(alice, new))["status"]) == ("available", "in-use")
    assert (await act(alice, old, "os-migrate_volume_completion", body)).status_code == 403


# ---------------------------------------------------------------------------------------------------- the rest


async def test_retype_and_its_refusals(cloud: VolumeApp) -> None:
    alice, admin = cloud.open_as("alice"), cloud.open_as("admin")
    await admin.post("/types", json={"volume_type": {"name": "fast"}})
    many = {"volume_type": {"name": "many", "extra_specs": {"multiattach": "<is> True"}}}
    await admin.post("/types", json=many)
    id = (await made(alice))["id"]
    assert (await act(alice, id, "os-retype", {"new_type": "none"})).status_code == 404
    assert (await act(alice, id, "os-retype", {"new_type": "__DEFAULT__"})).status_code == 400
    assert (await act(alice, id, "os-retype", {"new_type": "fast", "migration_policy": "never"})).status_code == 202
    assert (await until(alice, id, "available"))["volume_type"] == "fast"
    await attached(alice, id)
    assert (await act(alice, id, "os-retype", {"new_type": "many"})).status_code == 400


async def test_a_volume_that_is_moving_is_not_shown_as_detaching(cloud: VolumeApp) -> None:
    """As in Cinder: compute begins to detach it for the swap, and its migration is mark enough."""
    alice, admin = cloud.open_as("alice"), cloud.open_as("admin")
    id = (await made(alice))["id"]
    await attached(alice, id)
    assert (await act(admin, id, "os-reset_status", {"migration_status": "migrating"})).status_code == 202
    assert (await act(alice, id, "os-begin_detaching")).status_code == 202
    assert (await shown(alice, id))["status"] == "in-use"


async def test_administrators_reset_and_force(cloud: VolumeApp) -> None:
    alice, admin = cloud.open_as("alice"), cloud.open_as("admin")
    id = (await made(alice))["id"]
    assert (await act(alice, id, "os-reset_status", {"status": "error"})).status_code == 403
    assert (await act(admin, id, "os-reset_status", {"status": "odd"})).status_code == 400
    assert (await act(admin, id, "os-reset_status", {})).status_code == 400
    assert (await act(admin, id, "os-reset_status", {"status": "in-use"})).status_code == 400
    assert (await act(admin, id, "os-reset_status", {"status": "extending"})).status_code == 202
    assert (await alice.delete(f"/volumes/{id}")).status_code == 400
    assert (await alice.delete(f"/volumes/{id}?force=true")).status_code == 403
    assert (await act(admin, id, "os-force_delete")).status_code == 202
    await gone(alice, id)
    assert (await act(alice, id, "no-such-action")).status_code == 400


async def test_a_transfer_changes_the_owner_of_a_volume(cloud: VolumeApp) -> None:
    alice, bob = cloud.open_as("alice"), cloud.open_as("bob")
    id = (await made(alice))["id"]
    taken = (await alice.post("/snapshots", json={"snapshot": {"volume_id": id}})).json()["snapshot"]["id"]
    await until(alice, taken, "available", "snapshot")
    plain = {"transfer": {"volume_id": id, "name": "gift"}}
    answer = await alice.post("/volume-transfers", json=plain, headers={"OpenStack-API-Version": "volume 3.0"})
    assert answer.status_code == 202, answer.text
    offered = answer.json()["transfer"]
    assert (await shown(alice, id))["status"] == "awaiting-transfer"
    assert (await bob.get(f"/volume-transfers/{offered['id']}")).status_code == 404
    path = f"/volume-transfers/{offered['id']}/accept"
    wrong = await bob.post(path, json={"accept": {"auth_key": "wrong"}})
    assert (wrong.status_code, wrong.json()["badRequest"]["message"][:17]) == (400, "Invalid auth key:")
    assert (await bob.post(path, json={"accept": {"auth_key": offered["auth_key"]}})).status_code == 202
    assert (await alice.get(f"/volumes/{id}")).status_code == 404
    assert (await shown(bob, id))["status"] == "available"
    assert (await bob.get(f"/snapshots/{taken}")).status_code == 200


async def test_begun_work_continues_after_a_restart(tmp_path: Path) -> None:
    async with volume_service(tmp_path) as cloud:
        alice = cloud.open_as("alice")
        cloud.service._context.jobs._run = _never  # the process is killed before anything is done
        ids = [(await ask_volume(alice, name=str(number))).json()["volume"]["id"] for number in range(3)]
        (cloud.files / "volume-of-nobody").write_bytes(b"")
    async with volume_service(tmp_path) as cloud:
        alice = cloud.open_as("alice")
        for id in ids:
            await until(alice, id, "available")
        assert {path.name for path in cloud.files.iterdir()} == {f"volume-{id}" for id in ids}


async def _never(noun: str, id: str) -> None:
    del noun, id
