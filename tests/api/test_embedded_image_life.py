"""The life of an image in the embedded image service: created, filled, shown, changed, downloaded, deleted."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from moorage_embedded.image.request import ImageSettings
from moorage_testing.image_app import STREAM, ImageApp, fill, image_service, made, make, patch, qcow2
from moorage_testing.images import WICKED


@pytest.fixture
async def cloud(tmp_path: Path) -> AsyncIterator[ImageApp]:
    async with image_service(tmp_path) as opened:
        yield opened


async def test_made_filled_fetched_deleted(cloud: ImageApp) -> None:
    alice = cloud.open_as("alice")
    id, data = str(uuid4()), bytes(range(256)) * 9000
    answer = await alice.post(
        "/v2/images",
        json={"id": id, "name": "jammy", "disk_format": "raw", "container_format": "bare", "os_distro": "ubuntu"},
    )
    assert answer.status_code == 201
    assert answer.headers["location"] == f"http://image/v2/images/{id}"
    assert answer.headers["x-openstack-request-id"].startswith("req-")
    queued = answer.json()
    assert (queued["status"], queued["visibility"], queued["owner"], queued["size"]) == (
        "queued",
        "shared",
        "red",
        None,
    )
    assert (await alice.get(f"/v2/images/{id}/file")).status_code == 204

    assert (await fill(alice, id, data)).status_code == 204
    shown = (await alice.get(f"/v2/images/{id}")).json()
    assert shown["status"] == "active"
    assert shown["size"] == shown["virtual_size"] == len(data)
    assert shown["checksum"] == hashlib.md5(data, usedforsecurity=False).hexdigest()
    assert shown["os_hash_algo"] == "sha512"
    assert shown["os_hash_value"] == hashlib.sha512(data).hexdigest()
    assert shown["os_distro"] == "ubuntu"
    assert shown["file"] == f"/v2/images/{id}/file"

    fetched = await alice.get(f"/v2/images/{id}/file")
    assert fetched.content == data
    assert fetched.headers["content-md5"] == shown["checksum"]
    assert fetched.headers["content-length"] == str(len(data))
    again = await fill(alice, id, b"other")
    assert again.status_code == 409
    assert (await alice.get(f"/v2/images/{id}/file")).content == data

    assert (await alice.delete(f"/v2/images/{id}")).status_code == 204
    assert (await alice.get(f"/v2/images/{id}")).status_code == 404
    assert (await alice.delete(f"/v2/images/{id}")).status_code == 404
    assert list(cloud.files.iterdir()) == []
    spent = await alice.post("/v2/images", json={"id": id})
    assert spent.status_code == 409


async def test_an_image_id_is_unique(cloud: ImageApp) -> None:
    alice = cloud.open_as("alice")
    first = await made(alice)
    answer = await alice.post("/v2/images", json={"id": first["id"]})
    assert answer.status_code == 409
    assert answer.json()["message"] == f"Image ID {first['id']} already exists!"
    assert (await alice.post("/v2/images", json={"id": "jammy"})).status_code == 400


async def test_a_name_is_not_an_id(cloud: ImageApp) -> None:
    alice = cloud.open_as("alice")
    await made(alice, name="jammy")
    answer = await alice.get("/v2/images/jammy")
    assert answer.status_code == 404
    assert answer.json() == {"message": "No image found with ID jammy", "code": "404 Not Found", "title": "Not Found"}


@pytest.mark.parametrize(
    ("asked", "status", "at"),
    [
        ("bytes=0-4", 206, slice(0, 5)),
        ("bytes=5-", 206, slice(5, None)),
        ("bytes=-3", 206, slice(-3, None)),
        ("bytes=3-999", 206, slice(3, None)),
        ("bytes=10-", 416, None),
        ("bytes=-0", 416, None),
        ("bytes=\xb2-", 416, None),
        (f"bytes={'9' * 5000}-", 416, None),
        ("bytes=4-2", 416, None),
        ("bytes=0-1,3-4", 416, None),
    ],
)
async def test_a_range_of_the_data(cloud: ImageApp, asked: str, status: int, at: slice | None) -> None:
    alice, data = cloud.open_as("alice"), b"0123456789"
    image = await made(alice)
    await fill(alice, image["id"], data)
    answer = await alice.get(image["file"], headers={"Range": asked.encode("latin-1")})
    assert answer.status_code == status
    if at is not None:
        assert answer.content == data[at]
        first = data.index(data[at])
        assert answer.headers["content-range"] == f"bytes {first}-{first + len(data[at]) - 1}/10"


async def test_uploads_that_are_refused_leave_the_image_queued(cloud: ImageApp) -> None:
    alice = cloud.open_as("alice")
    bare = await made(alice, disk_format=None)
    assert (await fill(alice, bare["id"], b"x")).status_code == 400

    image = await made(alice)
    plain = await alice.put(image["file"], content=b"x", headers={"Content-Type": "text/plain"})
    assert plain.status_code == 415
    assert (await fill(alice, image["id"], bytes(5 * 1024 * 1024))).status_code == 413

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(6):
            yield bytes(1024 * 1024)

    streamed = await alice.put(image["file"], content=chunks(), headers={"Content-Type": STREAM})
    assert streamed.status_code == 413
    wrong = {"Content-Type": STREAM, "X-OpenStack-Image-Size": "7"}
    assert (await alice.put(image["file"], content=chunks(), headers=wrong)).status_code in {400, 413}
    assert (await alice.put(image["file"], content=b"12345", headers=wrong)).status_code == 400
    odd = {"Content-Type": STREAM, "X-OpenStack-Image-Size": "many"}
    assert (await alice.put(image["file"], content=b"12345", headers=odd)).status_code == 400

    async def breaks() -> AsyncIterator[bytes]:
        yield b"half"
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError):
        await alice.put(image["file"], content=breaks(), headers={"Content-Type": STREAM})

    assert (await alice.get(image["self"])).json()["status"] == "queued"
    assert list(cloud.files.iterdir()) == []
    assert (await fill(alice, image["id"], b"whole")).status_code == 204


@pytest.mark.parametrize(
    ("declared", "data", "status"),
    [
        ("qcow2", qcow2(), 204),
        ("qcow2", qcow2(backing=400), 415),
        ("qcow2", qcow2(features=4), 415),
        ("qcow2", b"not at all", 415),
        ("raw", qcow2(), 415),
        ("raw", b"KDMV" + bytes(600), 415),
        ("raw", b"", 204),
    ],
)
async def test_uploaded_data_must_match_the_declared_format(
    cloud: ImageApp, declared: str, data: bytes, status: int
) -> None:
    alice = cloud.open_as("alice")
    image = await made(alice, disk_format=declared)
    assert (await fill(alice, image["id"], data)).status_code == status
    shown = (await alice.get(image["self"])).json()
    assert shown["status"] == ("active" if status == 204 else "queued")
    if status == 204 and declared == "qcow2":
        assert shown["virtual_size"] == 1 << 30


async def test_an_image_is_deleted_during_its_upload(cloud: ImageApp) -> None:
    alice = cloud.open_as("alice")
    image = await made(alice)

    async def chunks() -> AsyncIterator[bytes]:
        yield b"first"
        assert (await alice.get(image["self"])).json()["status"] == "saving"
        assert (await fill(alice, image["id"], b"rival")).status_code == 409
        assert (await alice.delete(image["self"])).status_code == 204
        yield b"second"

    answer = await alice.put(image["file"], content=chunks(), headers={"Content-Type": STREAM})
    assert answer.status_code == 410
    assert list(cloud.files.iterdir()) == []


async def test_a_restart_removes_partial_uploads(cloud: ImageApp, tmp_path: Path) -> None:
    alice = cloud.open_as("alice")
    whole, half = await made(alice), await made(alice)
    await fill(alice, whole["id"], b"whole")

    async def chunks() -> AsyncIterator[bytes]:
        yield b"first"
        (cloud.files / "stray").write_bytes(b"left behind")
        await make(cloud.database, cloud.files).start()
        assert sorted(path.name for path in cloud.files.iterdir()) == [whole["id"]]
        assert (await alice.get(half["self"])).json()["status"] == "queued"
        yield b"second"

    answer = await alice.put(half["file"], content=chunks(), headers={"Content-Type": STREAM})
    assert answer.status_code == 410
    assert (await alice.get(whole["file"])).content == b"whole"


async def test_protected(cloud: ImageApp) -> None:
    alice = cloud.open_as("alice")
    image = await made(alice, protected=True)
    answer = await alice.delete(image["self"])
    assert answer.status_code == 403
    assert "protected" in answer.json()["message"]
    assert (await patch(alice, image["id"], {"op": "replace", "path": "/protected", "value": False})).status_code == 200
    assert (await alice.delete(image["self"])).status_code == 204


async def test_deactivated(cloud: ImageApp) -> None:
    alice, admin = cloud.open_as("alice"), cloud.open_as("admin")
    image = await made(alice)
    deactivate, reactivate = (f"{image['self']}/actions/{word}" for word in ("deactivate", "reactivate"))
    assert (await admin.post(deactivate)).status_code == 403  # there is no data yet
    await fill(alice, image["id"], b"data")
    assert (await admin.post(deactivate)).status_code == 204
    assert (await alice.get(image["file"])).status_code == 403
    assert (await admin.get(image["file"])).content == b"data"
    assert (await alice.get(image["self"])).json()["status"] == "deactivated"
    assert (await admin.post(reactivate)).status_code == 204
    assert (await alice.get(image["file"])).content == b"data"


async def test_seeding_twice_creates_one_image(cloud: ImageApp) -> None:
    await made(cloud.open_as("alice"), name="cirros")
    first = await cloud.service.seed_image("cirros", qcow2(), os_distro="cirros")
    again = await cloud.service.seed_image("cirros", b"other")
    assert first["id"] == again["id"]
    assert (first["status"], first["visibility"], first["disk_format"]) == ("active", "public", "qcow2")
    bob = cloud.open_as("bob")
    assert (await bob.get(f"/v2/images/{first['id']}/file")).content == qcow2()


async def test_each_version_that_is_listed_may_stand_in_the_path(cloud: ImageApp) -> None:
    alice = cloud.open_as("alice")
    image = await made(alice)
    listed = [each["id"] for each in (await alice.get("/versions")).json()["versions"]]
    for version in ("v2", *listed):
        assert (await alice.get(f"/{version}/images/{image['id']}")).json()["id"] == image["id"], version
    for version in ("v1", "v2.14", "v2.99", "v3"):
        assert (await alice.get(f"/{version}/images")).status_code == 404, version


async def test_versions_and_discovery(cloud: ImageApp) -> None:
    alice = cloud.open_as("alice")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(cloud.service.app), base_url="http://image") as anybody:
        root, explicit = await anybody.get("/"), await anybody.get("/versions")
        assert (root.status_code, explicit.status_code) == (300, 200)
        assert root.json() == explicit.json()
        current = [each for each in root.json()["versions"] if each["status"] == "CURRENT"]
        assert [each["links"][0]["href"] for each in current] == ["http://image/v2/"]
        refused = await anybody.get("/v2/images")
        assert refused.status_code == 401
        assert refused.json()["error"]["code"] == 401
        assert "www-authenticate" in refused.headers
    assert (await cloud.open_as("stranger").get("/v2/images")).status_code == 401
    for name in ("image", "images", "member", "members"):
        assert (await alice.get(f"/v2/schemas/{name}")).json()["name"] == name
    assert (await alice.get("/v2/schemas/nothing")).status_code == 404
    assert (await alice.get("/v2/info/import")).json()["import-methods"]["value"] == ["glance-direct"]
    assert (await alice.get("/v2/info/stores")).json()["stores"][0]["default"] == "true"
    assert (await cloud.open_as("admin").get("/v2/tasks")).json()["tasks"] == []
    assert (await alice.get("/v2/tasks")).status_code == 403
    wrong = await alice.put("/v2/images")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, POST")


async def test_staged_data_is_imported_and_nothing_is_downloaded(cloud: ImageApp) -> None:
    alice, bob = cloud.open_as("alice"), cloud.open_as("bob")
    image = await made(alice)
    staging, importing = f"{image['self']}/stage", f"{image['self']}/import"
    fetch = {"method": {"name": "web-download", "uri": "http://169.254.169.254/"}}
    answer = await alice.post(importing, json=fetch)
    assert answer.status_code == 400
    assert "Unknown import method name 'web-download'" in answer.json()["message"]
    direct = {"method": {"name": "glance-direct"}}
    assert (await alice.post(importing, json=direct)).status_code == 409, "nothing is staged"
    data, stream = bytes(range(256)) * 5000, {"Content-Type": STREAM}
    assert (await alice.put(staging, content=data)).status_code == 415
    assert (await bob.put(staging, content=data, headers=stream)).status_code == 404
    short = await alice.put(staging, content=data, headers={**stream, "X-OpenStack-Image-Size": "3"})
    assert short.status_code == 400
    assert (await alice.put(staging, content=data, headers=stream)).status_code == 204
    shown = (await alice.get(image["self"])).json()
    assert (shown["status"], shown["size"], shown["checksum"]) == ("uploading", len(data), None)
    for again in (alice.put(staging, content=data, headers=stream), fill(alice, image["id"], data)):
        assert (await again).status_code == 409
    await make(cloud.database, cloud.files).start()  # what is staged outlives the process
    assert (await bob.post(importing, json=direct)).status_code == 404
    assert (await alice.post(importing, json=direct | {"stores": ["elsewhere"]})).status_code == 409
    assert (await alice.post(importing, json=direct)).status_code == 202
    shown = (await alice.get(image["self"])).json()
    assert (shown["status"], shown["checksum"]) == ("active", hashlib.md5(data, usedforsecurity=False).hexdigest())
    assert (await alice.get(shown["file"])).content == data
    assert (await alice.post(importing, json=direct)).status_code == 409
    assert [path.name for path in cloud.files.iterdir()] == [image["id"]]
    gone = await made(alice, disk_format="qcow2")
    assert (await alice.put(f"{gone['self']}/stage", content=data, headers=stream)).status_code == 204
    assert (await alice.post(f"{gone['self']}/import", json=direct)).status_code == 415, "it is no qcow2"
    assert (await alice.get(gone["self"])).json()["status"] == "queued"
    assert (await alice.put(f"{gone['self']}/stage", content=data, headers=stream)).status_code == 204
    (cloud.files / f"{gone['id']}.staged").unlink()  # as a delete does, in the moment in which the import begins
    assert (await alice.post(f"{gone['self']}/import", json=direct)).status_code == 410
    assert (await alice.get(gone["self"])).json()["status"] == "queued"
    assert (await alice.put(f"{gone['self']}/stage", content=data, headers=stream)).status_code == 204
    assert (await alice.delete(gone["self"])).status_code == 204
    assert [path.name for path in cloud.files.iterdir()] == [image["id"]]


@pytest.mark.parametrize(
    ("accept", "media"), [("*/*", "text/html"), ("application/json", "application/json"), ("text/plain", "text/plain")]
)
async def test_a_refusal_in_the_shape_that_is_accepted(cloud: ImageApp, accept: str, media: str) -> None:
    answer = await cloud.open_as("alice").get("/v2/images/<none>", headers={"Accept": accept})
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith(media)
    assert "No image found with ID" in answer.text
    if media == "text/html":
        assert "<none>" not in answer.text


@pytest.mark.parametrize("container", ["bare", "ovf", "docker"])
@pytest.mark.parametrize("why", WICKED)
async def test_images_that_reference_other_files_are_refused_in_every_container(
    cloud: ImageApp, why: str, container: str
) -> None:
    declared, data = WICKED[why]
    alice = cloud.open_as("alice")
    image = await made(alice, disk_format=declared, container_format=container)
    refused = await fill(alice, image["id"], data)
    assert refused.status_code == 415, refused.text
    assert (await alice.get(image["self"])).json()["status"] == "queued"
    assert list(cloud.files.iterdir()) == []


# -------------------------------------------------------------------------------------------------------- quotas


@pytest.fixture
async def tight(tmp_path: Path) -> AsyncIterator[ImageApp]:
    """100 bytes for the images of one project, 60 for one image."""
    async with image_service(tmp_path, settings=ImageSettings(image_max_bytes=60, project_max_bytes=100)) as opened:
        yield opened


async def test_a_project_has_a_storage_quota(tight: ImageApp) -> None:
    alice, bob = tight.open_as("alice"), tight.open_as("bob")
    one, two, three, bobs = [await made(each) for each in (alice, alice, alice, bob)]
    assert (await fill(alice, one["id"], bytes(61))).status_code == 413
    assert (await fill(alice, one["id"], bytes(60))).status_code == 204
    refused = await fill(alice, two["id"], bytes(41))
    assert refused.status_code == 413
    assert "may have 100 bytes together, and 40 are left" in refused.text

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield bytes(10)

    streamed = await alice.put(two["file"], content=chunks(), headers={"Content-Type": STREAM})
    assert streamed.status_code == 413, "also without a word of its size"
    assert "storage quota" in streamed.text
    assert (await fill(alice, two["id"], bytes(40))).status_code == 204
    assert (await fill(alice, three["id"], b"x")).status_code == 413
    staged = await alice.put(f"{three['self']}/stage", content=b"x", headers={"Content-Type": STREAM})
    assert staged.status_code == 413, "nor by another door"
    assert (await alice.get(three["self"])).json()["status"] == "queued"
    assert (await fill(bob, bobs["id"], bytes(60))).status_code == 204, "another project has its own"
    assert (await alice.delete(one["self"])).status_code == 204
    assert (
        await alice.put(f"{three['self']}/stage", content=bytes(60), headers={"Content-Type": STREAM})
    ).status_code == 204
    assert (await fill(alice, (await made(alice))["id"], b"x")).status_code == 413, "what is staged counts"
    imported = await alice.post(f"{three['self']}/import", json={"method": {"name": "glance-direct"}})
    assert imported.status_code == 202, "and not twice"


async def test_concurrent_uploads_do_not_exceed_the_quota(tight: ImageApp) -> None:
    alice = tight.open_as("alice")
    many = [await made(alice) for _ in range(4)]
    codes = sorted(each.status_code for each in await asyncio.gather(*(fill(alice, m["id"], bytes(50)) for m in many)))
    assert codes == [204, 204, 413, 413]
