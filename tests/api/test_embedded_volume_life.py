"""The life of a volume in the embedded volume service: created, shown, used, deleted."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from moorage_testing.volume_app import (
    OTHER_SERVER,
    RED,
    SERVER,
    VolumeApp,
    ask_volume,
    attached,
    gone,
    made,
    reserved,
    shown,
    volume_service,
)

SERVICE_TOKEN = {"X-Service-Token": "nova"}


@pytest.fixture
async def cloud(tmp_path: Path) -> AsyncIterator[VolumeApp]:
    async with volume_service(tmp_path) as opened:
        yield opened


async def test_versions_are_shown_without_a_token(cloud: VolumeApp) -> None:
    nobody = cloud.open_as("no such token")
    assert (await nobody.get("http://volume/")).status_code == 300
    answer = await nobody.get("/")
    assert answer.status_code == 200
    (version,) = answer.json()["versions"]
    assert (version["id"], version["min_version"], version["version"]) == ("v3.0", "3.0", "3.71")
    assert (await nobody.get("/volumes")).status_code == 401


async def test_microversions_are_read_from_the_header(cloud: VolumeApp) -> None:
    alice = cloud.open_as("alice")
    id = (await made(alice))["id"]
    for header, status, answered in (
        ("volume 3.0", 200, "volume 3.0"),
        ("compute 2.1, volume 3.27", 200, "volume 3.27"),
        ("volume latest", 200, "volume 3.71"),
        ("volume 3.72", 406, None),
        ("volume three", 400, None),
    ):
        answer = await alice.get(f"/volumes/{id}", headers={"OpenStack-API-Version": header})
        assert (answer.status_code, answer.headers.get("OpenStack-API-Version")) == (status, answered), header
    old = await alice.get(f"/volumes/{id}", headers={"OpenStack-API-Version": "volume 3.0"})
    assert "volume_type_id" not in old.json()["volume"]
    assert (await alice.get("/attachments", headers={"OpenStack-API-Version": "volume 3.26"})).status_code == 404


async def test_a_blank_volume_is_a_sparse_file_until_it_is_deleted(cloud: VolumeApp) -> None:
    alice = cloud.open_as("alice")
    volume = await made(alice, name="data", size=900, metadata={"a": "b"})
    assert (volume["size"], volume["volume_type"], volume["bootable"]) == (900, "__DEFAULT__", "false")
    file = cloud.files / f"volume-{volume['id']}"
    assert file.stat().st_size == 900 * 1024**3
    assert file.stat().st_blocks == 0
    assert (await alice.delete(f"/volumes/{volume['id']}")).status_code == 202
    await gone(alice, volume["id"])
    assert not file.exists()


async def test_a_project_in_the_path_is_the_tokens(cloud: VolumeApp) -> None:
    alice = cloud.open_as("alice")
    volume = await made(alice)
    answer = await alice.get(f"/{RED}/volumes/{volume['id']}")
    assert answer.json()["volume"]["links"][0]["href"] == f"http://volume/v3/{RED}/volumes/{volume['id']}"
    wrong = await alice.get(f"/{'4' * 32}/volumes")
    assert (wrong.status_code, wrong.json()) == (400, {"badRequest": {"code": 400, "message": "Malformed request url"}})


async def test_a_volume_is_hidden_from_other_projects(cloud: VolumeApp) -> None:
    alice, bob, reader, admin = (cloud.open_as(who) for who in ("alice", "bob", "reader", "admin"))
    id = (await made(alice))["id"]
    assert (await bob.get(f"/volumes/{id}")).status_code == 404
    assert (await bob.get("/volumes/detail")).json() == {"volumes": []}
    assert (await shown(reader, id))["id"] == id
    assert (await reader.delete(f"/volumes/{id}")).status_code == 403
    assert "os-vol-host-attr:host" in await shown(admin, id)
    assert (await admin.get("/volumes")).json() == {"volumes": []}
    (row,) = (await admin.get("/volumes?all_tenants=1")).json()["volumes"]
    assert row["id"] == id


async def test_an_attachment_goes_from_reserved_to_attached(cloud: VolumeApp) -> None:
    alice = cloud.open_as("alice")
    id = (await made(alice))["id"]
    found = await reserved(alice, id)
    assert (found["status"], found["instance"], found["connection_info"]) == ("reserved", SERVER, {})
    assert (await shown(alice, id))["status"] == "reserved"
    second = await alice.post("/attachments", json={"attachment": {"volume_uuid": id, "instance_uuid": OTHER_SERVER}})
    assert second.status_code == 400
    answer = await alice.put(f"/attachments/{found['id']}", json={"attachment": {"connector": {"host": "h1"}}})
    info = answer.json()["attachment"]["connection_info"]
    assert info["device_path"] == str(cloud.files / f"volume-{id}")
    assert (await shown(alice, id))["status"] == "attaching"
    assert (await alice.post(f"/attachments/{found['id']}/action", json={"os-complete": None})).status_code == 204
    volume = await shown(alice, id)
    assert volume["status"] == "in-use"
    assert [each["attachment_id"] for each in volume["attachments"]] == [found["id"]]


async def test_only_a_service_may_end_the_attachment_of_a_server(cloud: VolumeApp) -> None:
    alice = cloud.open_as("alice")
    id = (await made(alice))["id"]
    found = await attached(alice, id)
    cloud.held[SERVER, id] = found["id"]
    answer = await alice.delete(f"/attachments/{found['id']}")
    assert answer.status_code == 409
    assert SERVER in answer.json()["conflictingRequest"]["message"]
    assert (await shown(alice, id))["status"] == "in-use"
    assert (await alice.delete(f"/volumes/{id}")).status_code == 400
    answer = await alice.delete(f"/attachments/{found['id']}", headers=SERVICE_TOKEN)
    assert (answer.status_code, answer.json()) == (200, {"attachments": []})
    assert (await shown(alice, id))["status"] == "available"


async def test_an_owner_may_end_an_attachment_that_compute_does_not_know(cloud: VolumeApp) -> None:
    alice = cloud.open_as("alice")
    id = (await made(alice))["id"]
    found = await attached(alice, id)
    assert (await alice.delete(f"/attachments/{found['id']}")).status_code == 200
    found = await reserved(alice, id)
    cloud.held[SERVER, id] = found["id"]
    assert (await alice.delete(f"/attachments/{found['id']}")).status_code == 200, "it was not connected yet"


async def test_invalid_bodies_get_400(cloud: VolumeApp) -> None:
    alice = cloud.open_as("alice")
    for said in ({"size": 0}, {"size": "x"}, {"size": 1, "who": "?"}, {"size": None}, {"size": 1, "name": "n" * 256}):
        assert (await ask_volume(alice, **said)).status_code == 400, said
    assert (await ask_volume(alice, snapshot_id="7" * 32)).status_code == 404
    assert (await ask_volume(alice, volume_type="none")).status_code == 404
    assert (await ask_volume(alice, availability_zone="mars")).status_code == 400


async def test_quota_usage_is_computed_from_existing_volumes(cloud: VolumeApp) -> None:
    alice = cloud.open_as("alice")
    first = await made(alice, size=1000)
    answer = await ask_volume(alice, size=1)
    assert answer.status_code == 413
    assert answer.json()["overLimit"]["message"] == (
        "Requested volume or snapshot exceeds allowed gigabytes quota. Requested 1G, quota is 1000G and 1000G has been"
        " consumed."
    )
    await alice.delete(f"/volumes/{first['id']}")
    await gone(alice, first["id"])
    for _ in range(10):
        await made(alice)
    answer = await ask_volume(alice)
    assert "Maximum number of volumes allowed (10) exceeded for quota 'volumes'." in answer.text
