"""Who may see and change which image, what a list shows to whom, and what a patch may change."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from moorage_testing.image_app import OLD_PATCH, ImageApp, fill, image_service, made, patch


@pytest.fixture
async def cloud(tmp_path: Path) -> AsyncIterator[ImageApp]:
    async with image_service(tmp_path) as opened:
        yield opened


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
async def either(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ImageApp]:
    """For what is SQL's to get right: over a database of each kind."""
    url = "" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    async with image_service(tmp_path, url) as opened:
        yield opened


async def names(client: httpx.AsyncClient, query: str = "") -> list[str]:
    answer = await client.get(f"/v2/images?{query}")
    assert answer.status_code == 200, answer.text
    return [each["name"] for each in answer.json()["images"]]


async def test_visibility(either: ImageApp) -> None:
    alice, bob, admin, nova = (either.open_as(name) for name in ("alice", "bob", "admin", "nova"))
    images = {word: await made(alice, name=word, visibility=word) for word in ("private", "shared", "community")}
    refused = await alice.post("/v2/images", json={"visibility": "public"})
    assert refused.status_code == 403
    images["public"] = await made(admin, name="public", visibility="public")

    for word, seen in {"private": 404, "shared": 404, "community": 200, "public": 200}.items():
        assert (await bob.get(images[word]["self"])).status_code == seen, word
        assert (await nova.get(images[word]["self"])).status_code == 200
        assert (await admin.get(images[word]["self"])).status_code == 200
    assert await names(bob) == ["public"]
    assert await names(bob, "visibility=community") == ["community"]
    assert await names(bob, "visibility=all") == ["public", "community"]
    assert await names(alice) == ["public", "community", "shared", "private"]
    assert await names(nova) == ["public", "shared", "private"]

    for word, status in {"private": 404, "community": 403, "public": 403}.items():
        change = {"op": "replace", "path": "/name", "value": "mine"}
        assert (await patch(bob, images[word]["id"], change)).status_code == status, word
        assert (await bob.delete(images[word]["self"])).status_code == status, word
        assert (await fill(bob, images[word]["id"], b"x")).status_code == status, word
    publish = {"op": "replace", "path": "/visibility", "value": "public"}
    assert (await patch(alice, images["private"]["id"], publish)).status_code == 403
    assert (await patch(admin, images["private"]["id"], publish)).status_code == 200


async def test_roles(cloud: ImageApp) -> None:
    alice, reader, nobody = cloud.open_as("alice"), cloud.open_as("reader"), cloud.open_as("nobody")
    image = await made(alice)
    assert (await reader.get(image["self"])).status_code == 200
    assert (await reader.post("/v2/images", json={})).status_code == 403
    assert (await reader.delete(image["self"])).status_code == 403
    assert (await reader.get(image["file"])).status_code == 403
    assert (await nobody.get("/v2/images")).status_code == 403
    assert (await nobody.get(image["self"])).status_code == 404
    stolen = await alice.post("/v2/images", json={"owner": "blue"})
    assert stolen.status_code == 403
    assert "owned by 'blue'" in stolen.json()["message"]


async def test_members(either: ImageApp) -> None:
    alice, bob = either.open_as("alice"), either.open_as("bob")
    image = await made(alice, name="ours")
    members = f"{image['self']}/members"
    answer = await alice.post(members, json={"member": "blue"})
    assert answer.status_code == 200
    assert (answer.json()["member_id"], answer.json()["status"]) == ("blue", "pending")
    assert (await alice.post(members, json={"member": "blue"})).status_code == 409
    assert (await alice.post(members, json={})).status_code == 400

    assert (await bob.get(image["self"])).status_code == 200
    assert await names(bob) == []
    assert await names(bob, "member_status=pending&visibility=shared") == ["ours"]
    assert (await alice.put(f"{members}/blue", json={"status": "accepted"})).status_code == 403
    assert (await bob.put(f"{members}/blue", json={"status": "whatever"})).status_code == 400
    assert (await bob.put(f"{members}/blue", json={"status": "accepted"})).json()["status"] == "accepted"
    assert await names(bob) == ["ours"]

    assert (await bob.post(members, json={"member": "green"})).status_code == 403
    assert (await alice.post(members, json={"member": "green"})).status_code == 200
    assert (await alice.post(members, json={"member": "white"})).status_code == 413
    assert [each["member_id"] for each in (await alice.get(members)).json()["members"]] == ["blue", "green"]
    assert [each["member_id"] for each in (await bob.get(members)).json()["members"]] == ["blue"]
    assert (await bob.get(f"{members}/green")).status_code == 404
    assert (await bob.delete(f"{members}/blue")).status_code == 403
    assert (await alice.delete(f"{members}/blue")).status_code == 204
    assert (await alice.delete(f"{members}/blue")).status_code == 404
    assert (await bob.get(image["self"])).status_code == 404

    private = await made(alice, visibility="private")
    assert (await alice.post(f"{private['self']}/members", json={"member": "blue"})).status_code == 403


async def test_tags(either: ImageApp) -> None:
    alice = either.open_as("alice")
    image = await made(alice, name="tagged", tags=["b", "a", "a"])
    assert image["tags"] == ["a", "b"]
    assert (await alice.put(f"{image['self']}/tags/c%2Fd")).status_code == 204
    assert (await alice.get(image["self"])).json()["tags"] == ["a", "b", "c/d"]
    assert (await alice.put(f"{image['self']}/tags/e")).status_code == 413
    assert await names(alice, "tag=a&tag=c/d") == ["tagged"]
    assert await names(alice, "tag=a&tag=e") == []
    assert (await alice.delete(f"{image['self']}/tags/a")).status_code == 204
    assert (await alice.delete(f"{image['self']}/tags/a")).status_code == 404


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"op": "replace", "path": "/name", "value": "new"}, 200),
        ({"op": "replace", "path": "/name", "value": 5}, 400),
        ({"op": "replace", "path": "/min_ram", "value": -1}, 400),
        ({"op": "replace", "path": "/min_disk", "value": 3}, 200),
        ({"op": "replace", "path": "/tags", "value": ["x"]}, 200),
        ({"op": "replace", "path": "/disk_format", "value": "qcow2"}, 200),
        ({"op": "replace", "path": "/disk_format", "value": "floppy"}, 400),
        ({"op": "replace", "path": "/os_hidden", "value": True}, 200),
        ({"op": "add", "path": "/hw_rng_model", "value": "virtio"}, 200),
        ({"op": "add", "path": "/with~1slash", "value": "x"}, 200),
        ({"op": "add", "path": "/own", "value": 5}, 400),
        ({"op": "replace", "path": "/own", "value": "2"}, 200),
        ({"op": "remove", "path": "/own"}, 200),
        ({"op": "replace", "path": "/missing", "value": "x"}, 409),
        ({"op": "remove", "path": "/missing"}, 409),
        ({"op": "remove", "path": "/name"}, 403),
        ({"op": "replace", "path": "/id", "value": "x"}, 403),
        ({"op": "replace", "path": "/status", "value": "active"}, 403),
        ({"op": "replace", "path": "/size", "value": 1}, 403),
        ({"op": "replace", "path": "/owner", "value": "blue"}, 403),
        ({"op": "add", "path": "/os_glance_import_task", "value": "x"}, 403),
        ({"op": "add", "path": "/deleted", "value": "x"}, 403),
        ({"op": "add", "path": "/locations/-", "value": {"url": "file:///etc/passwd", "metadata": {}}}, 403),
        ({"op": "move", "path": "/name"}, 400),
        ({"op": "add", "path": "name", "value": "x"}, 400),
        ({"op": "add", "path": "/a/b", "value": "x"}, 400),
        ({"op": "add", "path": "/a~2", "value": "x"}, 400),
        ({"op": "add", "path": "/a"}, 400),
        ({"path": "/a", "value": "x"}, 400),
    ],
)
async def test_patch(cloud: ImageApp, change: dict[str, Any], status: int) -> None:
    alice = cloud.open_as("alice")
    image = await made(alice, name="old", own="1")
    answer = await patch(alice, image["id"], {"op": "add", "path": "/first", "value": "x"}, change)
    assert answer.status_code == status, answer.text
    shown = (await alice.get(image["self"])).json()
    if status == 200:
        assert answer.json() == shown
        assert shown["first"] == "x"
        word = change["path"][1:].replace("~1", "/")
        assert shown.get(word) == change.get("value")
    else:
        assert shown == image  # all or nothing


async def test_patch_media_and_limits(either: ImageApp) -> None:
    alice = either.open_as("alice")
    image = await made(alice, own="1")
    wrong = await alice.patch(image["self"], json=[])
    assert wrong.status_code == 415
    assert OLD_PATCH in wrong.headers["accept-patch"]
    assert (await patch(alice, image["id"], {"add": "/old", "value": "x"}, media=OLD_PATCH)).json()["old"] == "x"
    assert (await patch(alice, image["id"], {"add": "/own", "value": "x"}, media=OLD_PATCH)).status_code == 409
    many = [{"op": "add", "path": f"/p{n}", "value": "x"} for n in range(4)]
    assert (await patch(alice, image["id"], *many)).status_code == 413
    await fill(alice, image["id"], b"data")
    late = {"op": "replace", "path": "/disk_format", "value": "qcow2"}
    assert (await patch(alice, image["id"], late)).status_code == 403


async def test_filters(either: ImageApp) -> None:
    alice, admin = either.open_as("alice"), either.open_as("admin")
    small = await made(alice, name="small", os_distro="debian", min_ram=64)
    await made(alice, name="a,b", disk_format="qcow2", protected=True)
    await made(alice, name="hidden", os_hidden=True)
    big = await made(alice, name="big", container_format="ova", os_distro="debian", os_version="12")
    await fill(alice, small["id"], b"12345")
    await fill(alice, big["id"], b"1234567890")
    when = small["created_at"]
    for query, found in {
        "sort=name:asc": ["a,b", "big", "small"],
        "name=small": ["small"],
        'name=in:"a,b",big': ["big", "a,b"],
        "name=no": [],
        f"id=in:{small['id']},{big['id']}": ["big", "small"],
        "status=active": ["big", "small"],
        "status=in:queued,active": ["big", "a,b", "small"],
        "owner=red": ["big", "a,b", "small"],
        "owner=blue": [],
        "size_min=6": ["big"],
        "size_max=6": ["small"],
        "size_min=1&size_max=10": ["big", "small"],
        "container_format=ova": ["big"],
        "disk_format=in:qcow2,iso": ["a,b"],
        "protected=true": ["a,b"],
        "protected=false": ["big", "small"],
        "os_hidden=true": ["hidden"],
        "min_ram=64": ["small"],
        "os_distro=debian": ["big", "small"],
        "os_distro=debian&os_version=12": ["big"],
        "visibility=private": [],
        "created_at=gte:2001-01-01T00:00:00Z": ["big", "a,b", "small"],
        "created_at=lt:2001-01-01T00:00:00Z": [],
        f"created_at=eq:{when}&name=small": ["small"],
        f"updated_at=gte:{when}&sort_key=name&sort_dir=asc": ["a,b", "big", "small"],
        "sort=size:desc,name:asc": ["big", "small", "a,b"],
        "sort_key=size&sort_dir=asc": ["a,b", "small", "big"],
        "limit=0": [],
    }.items():
        assert await names(alice, query) == found, query
    assert await names(admin, "owner=red&name=small") == ["small"]


@pytest.mark.parametrize(
    "query",
    [
        "limit=x",
        "limit=-1",
        "marker=none",
        "sort_key=color",
        "sort=name:up",
        "sort=name&sort_key=name",
        "sort_key=name&sort_dir=asc&sort_dir=desc",
        "visibility=secret",
        "member_status=maybe",
        "protected=perhaps",
        "os_hidden=perhaps",
        "size_min=big",
        "created_at=yesterday",
        "created_at=0001-01-01T00:00:00%2B05:00",
        "name=%00",
        "name=gt:a",
        'name=in:"a',
        "changes-since=2001-01-01T00:00:00Z",
    ],
)
async def test_a_list_that_cannot_be_understood(cloud: ImageApp, query: str) -> None:
    assert (await cloud.open_as("alice").get(f"/v2/images?{query}")).status_code == 400


@pytest.mark.parametrize("sort", ["", "sort=name:asc", "sort=size:desc,name:asc", "sort_key=status&sort_dir=asc"])
async def test_paging_returns_every_image_once(either: ImageApp, sort: str) -> None:
    alice = either.open_as("alice")
    for number in range(7):
        await made(alice, name=f"image{number % 3}", disk_format=None, tags=["t"])
    answer = (await alice.get(f"/v2/images?tag=t&{sort}")).json()
    assert "next" not in answer
    seen, url, pages = [], f"/v2/images?tag=t&limit=3&{sort}", 0
    while url:
        page = (await alice.get(url)).json()
        seen += [each["id"] for each in page["images"]]
        assert page["schema"] == "/v2/schemas/images"
        assert "marker" not in page["first"]
        url, pages = page.get("next", ""), pages + 1
    assert pages == 3
    assert seen == [each["id"] for each in answer["images"]]
    assert len(set(seen)) == 7


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ({"name": "x" * 256}, 400),
        ({"own": 5}, 400),
        ({"own": "x" * 70_000}, 400),
        ({"min_disk": True}, 400),
        ({"disk_format": "floppy"}, 400),
        ({"tags": "no list"}, 400),
        ({"tags": ["a", "b", "c", "d"]}, 413),
        ({f"p{n}": "x" for n in range(6)}, 413),
        ({"size": 4}, 403),
        ({"self": "here"}, 403),
        ({"deleted": "x"}, 403),
        ({"os_glance_x": "x"}, 403),
        ({"locations": []}, 403),
        ({"name": "\0"}, 400),
        ({"\0": "x"}, 400),
        ({"own": "\0"}, 400),
        ({"tags": ["\0"]}, 400),
        ({"id": None}, 400),
        ([], 400),
    ],
)
async def test_creations_that_are_refused(cloud: ImageApp, said: Any, status: int) -> None:
    answer = await cloud.open_as("alice").post("/v2/images", json=said)
    assert answer.status_code == status, answer.text
    assert await names(cloud.open_as("alice")) == []
