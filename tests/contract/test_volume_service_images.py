"""The volume service's contract for images, snapshots, types, quotas and metadata: the embedded service answers as a real Cinder does."""

import uuid
from typing import Any

import pytest
from tests.helpers.contract_volume_service import VolumeGround
from tests.helpers.volume_ground import NOTHING, eventually, server_id

DATA = bytes(range(256)) * 1000


@pytest.fixture
def ground(volume_ground: VolumeGround) -> VolumeGround:
    return volume_ground


async def test_images_snapshots_and_copies(ground: VolumeGround) -> None:
    who = await ground.person()
    image = await ground.image(who, DATA, os_distro="ubuntu", min_disk=1)
    volume = await ground.volume(who, imageRef=image, size=2)
    assert volume["bootable"] == "true"
    kept = volume["volume_image_metadata"]
    assert kept.items() >= {
        "image_id": image, "image_name": "an image", "disk_format": "raw", "container_format": "bare", "min_disk": "1",
        "min_ram": "0", "size": str(len(DATA)), "os_distro": "ubuntu",
    }.items()  # fmt: skip
    assert await ground.bytes_of(who, volume["id"], len(DATA)) == DATA
    snapshot = await ground.snapshot(who, volume["id"])
    assert (snapshot["size"], snapshot["os-extended-snapshot-attributes:progress"]) == (2, "100%")
    copy = await ground.volume(who, snapshot_id=snapshot["id"], size=3)
    clone = await ground.volume(who, source_volid=volume["id"], size=2)
    for each in (copy, clone):
        assert (each["bootable"], each["volume_image_metadata"]["image_name"]) == ("true", "an image")
        assert await ground.bytes_of(who, each["id"], len(DATA)) == DATA
    assert (
        await ground.ask(who, "POST", "/volumes", {"volume": {"snapshot_id": snapshot["id"], "size": 1}})
    ).status_code == 400
    assert (await ground.ask(who, "DELETE", f"/volumes/{volume['id']}")).status_code == 400
    assert (await ground.ask(who, "DELETE", f"/volumes/{volume['id']}?cascade=true")).status_code == 202
    await ground.gone(who, volume["id"])
    await ground.gone(who, snapshot["id"], "snapshot")


async def test_a_snapshot_of_a_used_volume(ground: VolumeGround) -> None:
    who = await ground.person()
    id = (await ground.volume(who))["id"]
    await ground.attached(who, id, server_id())
    body: dict[str, Any] = {"snapshot": {"volume_id": id}}
    assert (await ground.ask(who, "POST", "/snapshots", body, version="3.65")).status_code == 400
    body["snapshot"]["force"] = False
    assert (await ground.ask(who, "POST", "/snapshots", body)).status_code == 400
    body["snapshot"]["force"] = True
    for version in ("3.65", "3.66"):
        answer = await ground.ask(who, "POST", "/snapshots", body, version=version)
        assert answer.status_code == 202, answer.text
        await ground.until(who, answer.json()["snapshot"]["id"], "available", "snapshot")


async def test_reimage(ground: VolumeGround) -> None:
    who, server = await ground.person(), server_id()
    image, other = await ground.image(who, DATA), await ground.image(who, DATA[::-1], name="other")
    id = (await ground.volume(who, imageRef=image))["id"]
    fields = {"volume_uuid": id, "instance_uuid": server}
    assert (await ground.ask(who, "POST", "/attachments", {"attachment": fields})).status_code == 200
    assert (await ground.act(who, id, "os-reimage", {"image_id": other})).status_code == 400
    body = {"image_id": other, "reimage_reserved": True}
    assert (await ground.act(who, id, "os-reimage", body, version="3.67")).status_code == 404
    assert (await ground.act(who, id, "os-reimage", body)).status_code == 202
    await eventually(lambda: ("volume-reimaged", server, id) in ground.compute.events)
    volume = await ground.shown(who, id)
    assert (volume["status"], volume["volume_image_metadata"]["image_name"]) == ("reserved", "other")
    assert await ground.bytes_of(who, id, len(DATA)) == DATA[::-1]


@pytest.mark.slow  # a gibibyte is digested twice
async def test_a_volume_becomes_an_image(ground: VolumeGround) -> None:
    who = await ground.person()
    id = (await ground.volume(who, imageRef=await ground.image(who, DATA)))["id"]
    answer = await ground.act(who, id, "os-volume_upload_image", {"image_name": "mine", "visibility": "private"})
    assert answer.status_code == 202, answer.text
    result = answer.json()["os-volume_upload_image"]
    assert (result["id"], result["status"], result["image_name"], result["disk_format"]) == (
        id,
        "uploading",
        "mine",
        "raw",
    )
    await ground.until(who, id, "available")
    image = await ground.images.get(f"/v2/images/{result['image_id']}", headers={"X-Auth-Token": who.token})
    assert (image.json()["status"], image.json()["size"]) == ("active", 1024**3)


async def test_swapped_by_compute(ground: VolumeGround) -> None:
    who, server = await ground.person(), server_id()
    old, new = (await ground.volume(who))["id"], (await ground.volume(who))["id"]
    await ground.attached(who, old, server)
    body = {"new_volume": new, "error": False}
    answer = await ground.act(ground.admin, old, "os-migrate_volume_completion", body, service=True)
    assert (answer.status_code, answer.json()) == (200, {"save_volume_id": new})
    assert (await ground.until(who, old, "available"))["attachments"] == []
    volume = await ground.until(who, new, "in-use")
    assert [each["server_id"] for each in volume["attachments"]] == [server]


async def test_quota_sets(ground: VolumeGround) -> None:
    who, path = await ground.person(), ""
    await ground.volume(who, size=3)
    path = f"/os-quota-sets/{who.project}"
    found = (await ground.ask(who, "GET", f"{path}?usage=True")).json()["quota_set"]
    assert found["gigabytes"] == {"limit": 1000, "in_use": 3, "reserved": 0}
    assert found["volumes"] == {"limit": 10, "in_use": 1, "reserved": 0}
    assert found["volumes___DEFAULT__"]["limit"] == -1
    plain = (await ground.ask(who, "GET", path)).json()["quota_set"]
    assert (plain["id"], plain["volumes"], plain["per_volume_gigabytes"]) == (who.project, 10, -1)
    body = {"quota_set": {"volumes": 1}}
    assert (await ground.ask(who, "PUT", path, body)).status_code == 403
    assert (await ground.ask(ground.admin, "PUT", path, body)).json()["quota_set"]["volumes"] == 1
    assert (await ground.ask(who, "POST", "/volumes", {"volume": {"size": 1}})).status_code == 413
    too_small = {"quota_set": {"volumes": 0}}
    assert (await ground.ask(ground.admin, "PUT", path, too_small)).status_code == 400
    assert (await ground.ask(ground.admin, "DELETE", path)).status_code == 200
    limits = (await ground.ask(who, "GET", "/limits")).json()["limits"]["absolute"]
    assert limits.items() >= {"totalVolumesUsed": 1, "totalGigabytesUsed": 3, "maxTotalVolumes": 10}.items()


async def test_lists(ground: VolumeGround) -> None:
    who = await ground.person()
    made = [(await ground.volume(who, name=name, size=size))["id"] for name, size in (("b", 1), ("a", 2), ("c", 1))]

    async def names(query: str, version: str = "3.71") -> list[str]:
        answer = await ground.ask(who, "GET", f"/volumes/detail?{query}", version=version)
        assert answer.status_code == 200, answer.text
        return [row["name"] for row in answer.json()["volumes"]]

    assert await names("") == ["c", "a", "b"]
    assert await names("sort=name:asc") == ["a", "b", "c"]
    assert await names("sort=size:desc,name:asc") == ["a", "b", "c"]
    assert await names("name=a") == ["a"]
    assert await names("size=1&sort=name:asc") == ["b", "c"]
    assert await names("status=error") == []
    assert await names("bootable=false&sort=name:asc") == ["a", "b", "c"]
    assert await names(f"marker={made[1]}") == ["b"]
    assert await names("limit=1&offset=1") == ["a"]
    page = (await ground.ask(who, "GET", "/volumes?limit=2&sort=name:asc&with_count=True")).json()
    assert page["count"] == 3
    (following,) = page["volumes_links"]
    assert f"marker={made[0]}" in following["href"]
    for query, status in (
        ("sort=colour", 400), ("sort=name:up", 400), ("limit=-1", 400), ("limit=x", 400), ("bootable=perhaps", 400),
        ("colour=red", 400), ("name~=a", 400), (f"marker={NOTHING}", 404), ("sort=name&sort_key=size", 400),
    ):  # fmt: skip
        answer = await ground.ask(who, "GET", f"/volumes?{query}")
        assert answer.status_code == status, (query, answer.text)
    assert len(await names("colour=red", "3.30")) == 3


async def test_types_and_access(ground: VolumeGround) -> None:
    who, admin, name = await ground.person(), ground.admin, f"t-{uuid.uuid4().hex[:6]}"
    body = {"volume_type": {"name": name, "os-volume-type-access:is_public": False, "extra_specs": {"shop:x": "y"}}}
    assert (await ground.ask(who, "POST", "/types", body)).status_code == 403
    made = (await ground.ask(admin, "POST", "/types", body)).json()["volume_type"]
    assert made.items() >= {"name": name, "is_public": False, "description": None}.items()
    assert made["extra_specs"] == {"shop:x": "y"}
    assert (await ground.ask(admin, "POST", "/types", body)).status_code == 409
    path = f"/types/{made['id']}"
    assert (await ground.ask(who, "GET", path)).status_code == 404
    access = {"addProjectAccess": {"project": who.project}}
    assert (await ground.ask(admin, "POST", f"{path}/action", access)).status_code == 202
    assert (await ground.ask(admin, "POST", f"{path}/action", access)).status_code == 409
    seen = await ground.ask(who, "GET", path)
    assert (seen.status_code, seen.json()["volume_type"]["extra_specs"]) == (200, {})
    rows = (await ground.ask(admin, "GET", f"{path}/os-volume-type-access")).json()["volume_type_access"]
    assert rows == [{"volume_type_id": made["id"], "project_id": who.project}]
    specs = {"extra_specs": {"a": "b"}}
    assert (await ground.ask(admin, "POST", f"{path}/extra_specs", specs)).json() == specs
    assert (await ground.ask(admin, "PUT", f"{path}/extra_specs/a", {"a": "c"})).json() == {"a": "c"}
    assert (await ground.ask(admin, "DELETE", f"{path}/extra_specs/a")).status_code == 202
    assert (await ground.ask(admin, "GET", f"{path}/extra_specs")).json() == {"extra_specs": {"shop:x": "y"}}
    await ground.volume(who, volume_type=name)
    assert (await ground.ask(admin, "DELETE", path)).status_code == 400
    assert (await ground.ask(who, "GET", "/types/default")).json()["volume_type"]["name"] == "__DEFAULT__"


async def test_metadata_and_its_entity_tag(ground: VolumeGround) -> None:
    who = await ground.person()
    id = (await ground.volume(who, metadata={"a": "b"}))["id"]
    path = f"/volumes/{id}/metadata"
    first = await ground.ask(who, "GET", path)
    assert (first.json(), bool(first.headers.get("ETag"))) == ({"metadata": {"a": "b"}}, True)
    added = await ground.ask(who, "POST", path, {"metadata": {"c": "d"}})
    assert added.json() == {"metadata": {"a": "b", "c": "d"}}
    assert (await ground.ask(who, "PUT", f"{path}/c", {"meta": {"c": "e"}})).json() == {"meta": {"c": "e"}}
    assert (await ground.ask(who, "PUT", f"{path}/c", {"meta": {"x": "e"}})).status_code == 400
    assert (await ground.ask(who, "GET", f"{path}/c")).json() == {"meta": {"c": "e"}}
    assert (await ground.ask(who, "DELETE", f"{path}/c")).status_code == 200
    assert (await ground.ask(who, "DELETE", f"{path}/c")).status_code == 404
    replaced = await ground.ask(who, "PUT", path, {"metadata": {"z": "z"}})
    assert replaced.json() == {"metadata": {"z": "z"}}


async def test_unsupported_features(ground: VolumeGround) -> None:
    who = await ground.person()
    for path, body in (
        ("/backups", {"backups": []}), ("/backups/detail", {"backups": []}), ("/groups", {"groups": []}),
        ("/group_snapshots", {"group_snapshots": []}),
        ("/os-volume-transfer", {"transfers": []}), ("/snapshots", {"snapshots": []}),
        ("/volumes/summary", {"volume-summary": {"total_count": 0, "total_size": 0, "metadata": {}}}),
    ):  # fmt: skip
        answer = await ground.ask(who, "GET", path)
        assert (answer.status_code, answer.json()) == (200, body), path
    assert (await ground.ask(who, "GET", f"/backups/{uuid.uuid4()}")).status_code == 404
    assert (await ground.ask(who, "GET", "/no-such-thing")).status_code == 404
    assert (await ground.ask(who, "GET", "/volumes/")).status_code == 404
    zones = (await ground.ask(who, "GET", "/os-availability-zone")).json()["availabilityZoneInfo"]
    assert zones == [{"zoneName": "nova", "zoneState": {"available": True}}]
    filters = (await ground.ask(who, "GET", "/resource_filters?resource=attachment")).json()["resource_filters"]
    (row,) = filters
    assert set(row["filters"]) == {"volume_id", "status", "instance_id", "attach_status"}
    services = (await ground.ask(ground.admin, "GET", "/os-services")).json()["services"]
    assert {(each["binary"], each["state"], each["status"]) for each in services} == {
        ("cinder-scheduler", "up", "enabled"), ("cinder-volume", "up", "enabled")
    }  # fmt: skip
