"""What the embedded volume service reports about itself: services, hosts, extensions, types without a back end, and messages of failures."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from moorage_embedded.volume.matching import unmet
from moorage_testing.volume_app import VolumeApp, act, gone, made, shown, until, volume_service

HOST = "moorage@files"


@pytest.fixture
async def cloud(tmp_path: Path) -> AsyncIterator[VolumeApp]:
    async with volume_service(tmp_path) as opened:
        yield opened


async def messages(client: httpx.AsyncClient, **said: str) -> list[dict[str, Any]]:
    answer = await client.get("/messages", params=said)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["messages"])


async def new_type(admin: httpx.AsyncClient, name: str, **specs: str) -> str:
    answer = await admin.post("/types", json={"volume_type": {"name": name, "extra_specs": specs}})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["volume_type"]["id"])


async def test_services_are_found_by_host_with_and_without_back_end(cloud: VolumeApp) -> None:
    admin = cloud.open_as("admin")

    async def found(**said: str) -> list[str]:
        return [each["binary"] for each in (await admin.get("/os-services", params=said)).json()["services"]]

    assert await found(host="moorage") == ["cinder-scheduler", "cinder-volume"]
    assert await found(host=HOST) == ["cinder-volume"]
    assert await found(host="moorage", binary="cinder-volume") == ["cinder-volume"]
    assert await found(host="files") == []


async def test_a_host_reports_its_volumes_by_project(cloud: VolumeApp) -> None:
    alice, bob, admin = cloud.open_as("alice"), cloud.open_as("bob"), cloud.open_as("admin")
    mine = await made(alice, size=2)
    await made(bob, size=3)
    taken = await alice.post("/snapshots", json={"snapshot": {"volume_id": mine["id"]}})
    await until(alice, taken.json()["snapshot"]["id"], "available", "snapshot")
    rows = [each["resource"] for each in (await admin.get(f"/os-hosts/{HOST}")).json()["host"]]
    counted = ("volume_count", "total_volume_gb", "snapshot_count", "total_snapshot_gb")
    assert {row["project"]: tuple(row[name] for name in counted) for row in rows} == {
        "(total)": ("2", "5", "1", "2"),
        "1" * 32: ("1", "2", "1", "2"),
        "2" * 32: ("1", "3", "0", "0"),
    }
    assert {row["host"] for row in rows} == {HOST}
    assert (await admin.get("/os-hosts/moorage")).status_code == 404  # the scheduler's
    assert (await alice.get(f"/os-hosts/{HOST}")).status_code == 403


async def test_a_frozen_back_end_deletes_nothing_until_it_is_thawed(cloud: VolumeApp) -> None:
    alice, admin = cloud.open_as("alice"), cloud.open_as("admin")
    id = (await made(alice))["id"]
    for verb in ("freeze", "thaw"):
        assert (await admin.put(f"/os-services/{verb}", json={"host": "elsewhere"})).status_code == 400
        assert (await alice.put(f"/os-services/{verb}", json={"host": HOST})).status_code == 403
    assert (await admin.put("/os-services/thaw", json={"host": HOST})).status_code == 400
    assert (await admin.put("/os-services/freeze", json={"host": HOST})).status_code == 200
    (service,) = (await admin.get("/os-services", params={"host": HOST})).json()["services"]
    assert (service["frozen"], service["status"], service["disabled_reason"]) == (True, "disabled", "frozen")
    assert (await alice.delete(f"/volumes/{id}")).status_code == 400
    assert (await alice.post("/snapshots", json={"snapshot": {"volume_id": id}})).status_code == 400
    assert (await admin.put("/os-services/thaw", json={"host": HOST})).status_code == 200
    (service,) = (await admin.get("/os-services", params={"host": HOST})).json()["services"]
    assert (service["frozen"], service["status"]) == (False, "enabled")
    assert (await alice.delete(f"/volumes/{id}")).status_code == 202
    await gone(alice, id)


async def test_extensions_have_their_names(cloud: VolumeApp) -> None:
    rows = (await cloud.open_as("alice").get("/extensions")).json()["extensions"]
    assert {"os-hosts": "Hosts", "os-services": "Services"}.items() <= {
        row["alias"]: row["name"] for row in rows
    }.items()


async def test_encryption_of_a_type_is_answered_with_its_ids(cloud: VolumeApp) -> None:
    admin = cloud.open_as("admin")
    type = await new_type(admin, "locked")
    body = {"provider": "luks", "control_location": "front-end"}
    answer = await admin.post(f"/types/{type}/encryption", json={"encryption": body})
    held = (await admin.get(f"/types/{type}/encryption")).json()
    ids = {"volume_type_id": type, "encryption_id": held["encryption_id"]}
    assert (answer.status_code, answer.json()["encryption"]) == (200, body | ids)


async def test_a_type_without_a_back_end_ends_in_error_with_a_message(cloud: VolumeApp) -> None:
    alice, bob, admin = cloud.open_as("alice"), cloud.open_as("bob"), cloud.open_as("admin")
    type = await new_type(admin, "elsewhere", vendor_name="somebody else")
    asked = await alice.post("/volumes", json={"volume": {"size": 1, "volume_type": type}})
    id = asked.json()["volume"]["id"]
    await until(alice, id, "error")
    (message,) = await messages(alice, resource_uuid=id)
    assert message["event_id"] == "VOLUME_VOLUME_001_003"
    assert message["request_id"] == asked.headers["x-openstack-request-id"]
    assert (message["resource_type"], message["message_level"]) == ("VOLUME", "ERROR")
    assert message["user_message"] == "schedule allocate volume:Could not find any available weighted backend."
    assert (await shown(alice, message["id"], "message")) == message
    assert await messages(bob) == []
    assert await messages(admin) == [message]
    assert (await bob.get(f"/messages/{message['id']}")).status_code == 404
    assert (await cloud.open_as("reader").delete(f"/messages/{message['id']}")).status_code == 403
    old = {"OpenStack-API-Version": "volume 3.2"}
    assert (await alice.get("/messages", headers=old)).status_code == 404
    assert (await alice.delete(f"/messages/{message['id']}")).status_code == 204
    assert await messages(alice) == []
    assert (await alice.delete(f"/volumes/{id}")).status_code == 202
    await gone(alice, id)


async def test_a_type_with_a_matching_back_end_is_created(cloud: VolumeApp) -> None:
    type = await new_type(
        cloud.open_as("admin"),
        "here",
        **{"volume_backend_name": "files", "capabilities:thin_provisioning_support": "<is> True", "other:x": "y"},
    )
    await made(cloud.open_as("alice"), volume_type=type)


async def test_an_image_that_cannot_be_written_leaves_a_message(cloud: VolumeApp) -> None:
    alice = cloud.open_as("alice")
    image = "1a6e0000-0000-4000-8000-00000000000e"
    cloud.images.put(image, b"x", disk_format="vmdk")
    volume = await made(alice, status="error", imageRef=image)
    (message,) = await messages(alice)
    assert (message["resource_uuid"], message["event_id"]) == (volume["id"], "VOLUME_VOLUME_008_001")


async def test_messages_of_one_volume_are_limited(cloud: VolumeApp) -> None:
    alice = cloud.open_as("alice")
    image = "1a6e0000-0000-4000-8000-00000000000e"
    cloud.images.put(image, b"x", disk_format="vmdk")
    id = (await made(alice, status="error", imageRef=image))["id"]
    for _ in range(22):
        assert (await act(alice, id, "os-reimage", {"image_id": image})).status_code == 202
        await until(alice, id, "error")
    assert len(await messages(alice)) == 20


@pytest.mark.parametrize(("asked", "met"), [
    ("<is> True", True), ("<is> false", False), ("<in> u", True), ("s== True", False), ("= 1", True), ("True", True),
    ("<or> a <or> True", True), ("<or> a", False), (">= much", False), ("<is>", False), ("", False), (None, False),
])  # fmt: skip
def test_operators_of_specs(asked: str | None, met: bool) -> None:
    assert (unmet({"x": asked}, {"x": True}) is None) is met


def test_capabilities_in_lists_and_nested_names_are_compared() -> None:
    assert unmet({"a:b": "1", "capabilities:a:b": "2"}, {"a": {"b": [1, 2]}}) is None
    assert unmet({"capabilities:a:c": "2"}, {"a": {"b": 2}}) == "capabilities:a:c=2"
    assert unmet({"none": "x"}, {}) == "none=x"


async def test_types_are_filtered_sorted_and_paged(cloud: VolumeApp) -> None:
    alice, admin = cloud.open_as("alice"), cloud.open_as("admin")
    for name in ("b", "c", "a"):
        await new_type(admin, name, **({"multiattach": "<is> True"} if name == "c" else {"hidden": "yes"}))
    private = {"name": "z", "os-volume-type-access:is_public": False}
    assert (await admin.post("/types", json={"volume_type": private})).status_code == 200

    async def names(client: httpx.AsyncClient, **said: str) -> list[str]:
        answer = await client.get("/types", params=said, headers={"OpenStack-API-Version": "volume 3.52"})
        assert answer.status_code == 200, answer.text
        return [each["name"] for each in answer.json()["volume_types"]]

    assert await names(alice, sort="name:asc") == ["__DEFAULT__", "a", "b", "c"]
    assert await names(alice) == ["a", "c", "b", "__DEFAULT__"]
    assert await names(alice, extra_specs="{'multiattach': '<is> True'}") == ["c"]
    assert await names(alice, extra_specs="{'hidden': 'yes'}") == []
    assert await names(admin, extra_specs="{'hidden': 'yes'}", sort_key="name") == ["b", "a"]
    assert await names(admin, name="c") == ["c"]
    assert await names(admin, is_public="False") == ["z"]
    assert "z" in await names(admin, is_public="None")
    first = (await alice.get("/types", params={"limit": 3, "sort": "name:asc"})).json()
    (link,) = first["volume_type_links"]
    rest = (await alice.get(link["href"])).json()
    assert [each["name"] for page in (first, rest) for each in page["volume_types"]] == ["__DEFAULT__", "a", "b", "c"]
    for client, said in ((alice, {"name": "c"}), (admin, {"is_public": "perhaps"}), (alice, {"sort": "size"})):
        answer = await client.get("/types", params=said, headers={"OpenStack-API-Version": "volume 3.52"})
        assert answer.status_code == 400, said


async def test_qos_specs_are_listed_in_pages(cloud: VolumeApp) -> None:
    admin = cloud.open_as("admin")
    ids = []
    for name, consumer in (("b", "both"), ("a", "both"), ("c", "front-end")):
        answer = await admin.post("/qos-specs", json={"qos_specs": {"name": name, "consumer": consumer}})
        assert answer.status_code == 200, answer.text
        ids.append(answer.json()["qos_specs"]["id"])

    async def page(**said: Any) -> tuple[list[str], bool]:
        answer = await admin.get("/qos-specs", params=said)
        assert answer.status_code == 200, answer.text
        return [each["name"] for each in answer.json()["qos_specs"]], "qos_specs_links" in answer.json()

    assert await page(sort="name:asc") == (["a", "b", "c"], False)
    assert await page(sort="name:asc", limit=2) == (["a", "b"], True)
    assert await page(sort_key="name", sort_dir="asc", marker=ids[0]) == (["c"], False)
    assert await page(sort="name:desc", limit=1, offset=1) == (["b"], True)
    assert await page(consumer="both", sort="name:asc") == (["a", "b"], False)
    link = (await admin.get("/qos-specs?limit=1&sort=name:asc")).json()["qos_specs_links"][0]["href"]
    assert link.endswith(f"/qos-specs?limit=1&sort=name%3Aasc&marker={ids[1]}")
    for query, status in (("limit=x", 400), ("sort=specs", 400), ("sort=name:up", 400), ("marker=none", 404)):
        assert (await admin.get(f"/qos-specs?{query}")).status_code == status, query
