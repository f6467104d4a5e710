"""The client of the image service, and a host's access to image data, with the embedded service and a real Glance: what every saga of images needs."""

import hashlib
import uuid
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.contract_services import Ground, Tenant

from moorage.clients import image as image_client
from moorage.clients.image_data import ImageData
from moorage.model.errors import Conflict, Forbidden, HostFailed, NotFound, Refusal
from moorage.model.ids import ImageId
from moorage.model.image import ImageFile

KEY = "moorage_contract"


def new_id() -> str:
    return str(uuid.uuid4())


async def made(ground: Ground, who: Tenant, **said: Any) -> str:
    """The id of an image without data."""
    record = {"name": "an image", "disk_format": "raw", "container_format": "bare", **said}
    return str((await ground.image.make_as(who.token, record))["id"])


async def test_an_image_is_created_by_its_owner_and_filled_by_the_service(ground: Ground) -> None:
    client, who, stranger = ground.image, await ground.tenant(), await ground.tenant()
    body = {"id": new_id(), "min_disk": 3, "min_ram": 64, "visibility": "private", "hw_rescue_bus": "scsi", KEY: "made"}
    id = await made(ground, who, **body)
    assert id == body["id"]
    with pytest.raises(Conflict):
        await made(ground, who, id=id)
    found = await client.show(id, who.token)
    assert (found.status, found.owner, found.visibility, found.size_bytes) == ("queued", who.project, "private", None)
    assert (found.name, found.disk_format, found.container_format) == ("an image", "raw", "bare")
    assert (found.min_disk_gib, found.min_ram_mib, found.protected, found.hidden) == (3, 64, False, False)
    assert found.properties.items() >= {"hw_rescue_bus": "scsi", KEY: "made"}.items()
    assert await client.show(id) == found
    for absent, token in ((id, stranger.token), (new_id(), who.token), (new_id(), None), ("odd", None)):
        with pytest.raises(NotFound) as missing:
            await client.show(absent, token)
        assert missing.value.public == f"Image {absent} could not be found."
    for _ in range(2):
        await client.fill_with_properties(id, {KEY: "whole", "bdm/v2~": "True"})
    reply = await client.show(id, who.token)
    assert (reply.status, reply.size_bytes, reply.properties[KEY], reply.properties["bdm/v2~"]) == (
        "active",
        0,
        "whole",
        "True",
    )
    with pytest.raises(NotFound):
        await client.fill_with_properties(new_id(), {KEY: "whole"})


async def test_a_service_image_is_ours_and_not_created_again_after_a_delete(ground: Ground, tmp_path: Path) -> None:
    client, stranger, id = ground.image, await ground.tenant(), ImageId(new_id())
    record = {"id": id, "name": "moved", "visibility": "private", KEY: "made-by-us"}
    made_by_us = [await client.make(record) for _ in range(2)]
    assert made_by_us[0] == made_by_us[1] == await client.show(id)
    found = made_by_us[0]
    assert (found.id, found.status, found.visibility, found.properties[KEY]) == (id, "queued", "private", "made-by-us")
    assert found.owner not in {"", stranger.project}
    with pytest.raises(NotFound):
        await client.show(id, stranger.token)
    assert await client.list_as(stranger.token, {KEY: "made-by-us"}, limit=10, marker=None) == []
    assert [each.id for each in await client.every({KEY: "made-by-us", "status": "in:queued,saving"}, at_most=9)] == [
        id
    ]
    (disk := tmp_path / "disk").write_bytes(b"a disk")
    await ImageData(ground.raw_image, tmp_path / "sends").send(id, ImageFile(disk, "raw", "bare"))
    assert (await client.make(record)).status == "active"
    assert await client.delete(id) is True
    with pytest.raises(NotFound):
        await client.make(record)
    assert await client.every({KEY: "made-by-us"}, at_most=9) == []


async def test_an_image_is_shared_with_another_project(ground: Ground) -> None:
    client, who, other = ground.image, await ground.tenant(), await ground.tenant()
    id = await made(ground, who, visibility="shared")
    with pytest.raises(NotFound):
        await client.show(id, other.token)
    for _ in range(2):
        await client.share_as(who.token, id, other.project)
    assert (await client.show(id, other.token)).visibility == "shared"


async def test_only_properties_are_replaced(ground: Ground) -> None:
    client, who = ground.image, await ground.tenant()
    record = await client.show_as(who.token, await made(ground, who, gone="1", kept="2", changed="3"))
    service = {
        name: value
        for name, value in image_client.properties_of(record).items()
        if name not in {"gone", "kept", "changed"}
    }
    wanted = {**service, "kept": "2", "changed": "4", "new/er~": "5"}
    now = await client.change_properties_as(who.token, record, wanted)
    assert image_client.properties_of(now) == wanted
    assert image_client.properties_of(await client.show_as(who.token, record["id"])) == wanted
    assert (now["name"], now["status"]) == ("an image", "queued")
    before = ground.raw_image.calls.copy()
    assert await client.change_properties_as(who.token, now, wanted) == now
    assert ground.raw_image.calls == before, "nothing is asked when nothing changes"


async def test_images_of_a_kind_are_listed_newest_first_with_few_pages(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, who, stranger = ground.image, await ground.tenant(), await ground.tenant()
    kind = {KEY: new_id()}
    ids = [await made(ground, each, **kind) for each in (who, stranger, who)]
    await made(ground, who, **{KEY: "other"})
    before = ground.raw_image.calls["GET images"]
    found = await client.every(kind, at_most=10)
    assert sorted(each.id for each in found) == sorted(ids)
    assert [each.created_at for each in found] == sorted((each.created_at for each in found), reverse=True)
    assert ground.raw_image.calls["GET images"] - before == 1
    assert len(await client.every(kind, at_most=2)) == 2
    own = {ids[0], ids[2]}
    listed = await client.list_as(who.token, kind, limit=10, marker=None)
    assert {each["id"] for each in listed} == own
    (after,) = await client.list_as(who.token, kind, limit=10, marker=listed[0]["id"])
    assert after["id"] == listed[1]["id"]
    monkeypatch.setattr(image_client, "PAGE_SIZE", 1)
    assert [each.id for each in await client.every(kind, at_most=10)] == [each.id for each in found]
    assert [each["id"] for each in await client.list_as(who.token, kind, limit=10, marker=None)] == [
        each["id"] for each in listed
    ]


async def test_an_unprotected_image_is_deleted_by_the_service(ground: Ground) -> None:
    client, who, stranger = ground.image, await ground.tenant(), await ground.tenant()
    kept, gone = await made(ground, who, protected=True), await made(ground, who)
    assert (await client.show(kept)).protected
    assert await client.delete(kept) is False
    assert (await client.show(kept)).id == kept
    with pytest.raises((NotFound, Forbidden)):
        await client.delete_as(stranger.token, gone)
    with pytest.raises(Refusal):
        await client.delete_as(who.token, kept)
    for _ in range(2):
        assert await client.delete(gone) is True
    with pytest.raises(NotFound):
        await client.show(gone, who.token)
    own = await made(ground, who)
    await client.delete_as(who.token, own)
    with pytest.raises(NotFound):
        await client.delete_as(who.token, own)


async def test_a_host_uploads_data_once_and_downloads_it(ground: Ground, tmp_path: Path) -> None:
    who, data = await ground.tenant(), b"a disk " * 1000
    id = ImageId(await made(ground, who, disk_format="qcow2"))
    disk = tmp_path / "disk"
    disk.write_bytes(data)
    sender, reader = (ImageData(ground.raw_image, tmp_path / each) for each in ("sends", "reads"))
    with pytest.raises(HostFailed) as early:
        await reader.fetch(id)
    assert early.value.code == "image_unusable"
    for _ in range(2):
        await sender.send(id, ImageFile(disk, "raw", "bare"))
    assert ground.raw_image.calls["PUT images data"] == 1
    shown = await ground.image.show_as(who.token, id)
    assert (shown["status"], shown["size"], shown["disk_format"]) == ("active", len(data), "raw")
    assert shown["os_hash_value"] == hashlib.sha512(data).hexdigest()
    for _ in range(2):
        read = await reader.fetch(id)
        assert (read.path.read_bytes(), read.disk_format, read.container_format) == (data, "raw", "bare")
    assert ground.raw_image.calls["GET images data"] == 1
    with pytest.raises(HostFailed) as missing:
        await reader.fetch(ImageId(new_id()))
    assert missing.value.code == "image_not_found"
