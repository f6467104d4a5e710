"""Groups of volumes in the embedded volume service: what a real Cinder cannot be asked for, or answers otherwise."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from moorage.sql import open_database
from moorage.sql.migrate import migrate, upgrade
from moorage_embedded.volume.store import TABLES, VolumeStore
from moorage_testing.volume_app import VolumeApp, ask_volume, gone, made, shown, until, volume_service


@pytest.fixture
async def cloud(tmp_path: Path) -> AsyncIterator[VolumeApp]:
    async with volume_service(tmp_path) as opened:
        yield opened


async def group_type(cloud: VolumeApp, **specs: str) -> str:
    said = {"name": f"type {sorted(specs.items())}", "group_specs": specs}
    answer = await cloud.open_as("admin").post("/group_types", json={"group_type": said})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["group_type"]["id"])


async def group(client: httpx.AsyncClient, type: str, status: str = "available") -> str:
    said = {"group_type": type, "volume_types": ["__DEFAULT__"]}
    answer = await client.post("/groups", json={"group": said})
    assert answer.status_code == 202, answer.text
    found = await until(client, answer.json()["group"]["id"], status, "group")
    return str(found["id"])


async def act(client: httpx.AsyncClient, id: str, action: str, said: Any) -> httpx.Response:
    return await client.post(f"/groups/{id}/action", json={action: said})


async def member(client: httpx.AsyncClient, group: str) -> dict[str, Any]:
    return await made(client, volume_type="__DEFAULT__", group_id=group)


@pytest.mark.parametrize("spec", ["consistent_group_snapshot_enabled", "group_replication_enabled"])
async def test_a_group_that_is_promised_what_the_back_end_has_not_is_in_error(cloud: VolumeApp, spec: str) -> None:
    alice, admin = cloud.open_as("alice"), cloud.open_as("admin")
    id = await group(alice, await group_type(cloud, **{spec: "<is> True"}), "error")
    answer = await alice.post("/groups/action", json={"create-from-src": {"source_group_id": id}})
    assert answer.status_code == 400
    assert "No valid host to create group" in answer.text
    assert (await act(admin, id, "reset_status", {"status": "available"})).status_code == 202
    assert (await alice.delete(f"/groups/{id}")).status_code == 404, "it is an action that deletes"
    assert (await act(alice, id, "delete", {})).status_code == 202
    await gone(alice, id, "group")
    await group(alice, await group_type(cloud, colour="blue"))


async def test_replication_ends_in_error(cloud: VolumeApp) -> None:
    alice, admin = cloud.open_as("alice"), cloud.open_as("admin")
    specs = {"name": "replicated", "extra_specs": {"replication_enabled": "<is> True"}}
    of = (await admin.post("/types", json={"volume_type": specs})).json()["volume_type"]["id"]
    type = await group_type(cloud, group_replication_enabled="<is> True")
    answer = await alice.post("/groups", json={"group": {"group_type": type, "volume_types": [of]}})
    id = answer.json()["group"]["id"]
    await until(alice, id, "error", "group")
    answer = await act(alice, id, "enable_replication", {})
    assert answer.status_code == 400
    assert "status must be ['available'], but current status is: error. Cannot enable replication." in answer.text
    await act(admin, id, "reset_status", {"status": "available"})
    assert (await act(alice, id, "disable_replication", {})).status_code == 400
    assert (await act(alice, id, "enable_replication", {})).status_code == 202
    assert (await shown(alice, id, "group"))["replication_status"] == "error"
    assert (await act(alice, id, "failover_replication", {"allow_attached_volume": True})).status_code == 400
    assert (await act(alice, id, "list_replication_targets", {})).json() == {"replication_targets": []}
    assert (await act(alice, id, "disable_replication", {})).status_code == 202


async def test_a_volume_of_a_group_is_not_accepted_by_another_project(cloud: VolumeApp) -> None:
    alice, bob = cloud.open_as("alice"), cloud.open_as("bob")
    id = await group(alice, await group_type(cloud))
    volume = (await member(alice, id))["id"]
    offer = (await alice.post("/volume-transfers", json={"transfer": {"volume_id": volume}})).json()["transfer"]
    body = {"accept": {"auth_key": offer["auth_key"]}}
    answer = await bob.post(f"/volume-transfers/{offer['id']}/accept", json=body)
    assert answer.status_code == 400
    assert "must not be part of a consistency group" in answer.text
    assert (await bob.get(f"/volumes/{volume}")).status_code == 404


async def test_a_snapshot_of_a_group_snapshot_keeps_a_volume_that_left_the_group(cloud: VolumeApp) -> None:
    alice = cloud.open_as("alice")
    id = await group(alice, await group_type(cloud))
    volume = (await member(alice, id))["id"]
    answer = await alice.post("/group_snapshots", json={"group_snapshot": {"group_id": id}})
    whole = answer.json()["group_snapshot"]["id"]
    await until(alice, whole, "available", "group_snapshot")
    assert (await alice.put(f"/groups/{id}", json={"group": {"remove_volumes": volume}})).status_code == 202
    assert (await alice.delete(f"/volumes/{volume}?cascade=true")).status_code == 400
    assert (await shown(alice, volume))["status"] == "available"
    assert (await alice.delete(f"/group_snapshots/{whole}")).status_code == 202
    await gone(alice, whole, "group_snapshot")
    assert (await alice.delete(f"/volumes/{volume}")).status_code == 202
    await gone(alice, volume)


async def test_a_group_that_is_deleted_takes_no_volumes_whatever_its_status(cloud: VolumeApp) -> None:
    alice = cloud.open_as("alice")
    id = await group(alice, await group_type(cloud))

    def as_if_reset(store: VolumeStore) -> None:
        doc = store.get("group", id, hold=True)
        assert doc is not None
        store.put("group", doc | {"work": {"kind": "delete", "turn": "t"}})

    await cloud.database.write(lambda tx: as_if_reset(VolumeStore(tx)))
    assert (await ask_volume(alice, volume_type="__DEFAULT__", group_id=id)).status_code == 400
    assert (await alice.put(f"/groups/{id}", json={"group": {"name": "n"}})).status_code == 400


async def test_a_deletion_is_gone_on_with_by_the_next_process(tmp_path: Path) -> None:
    async with volume_service(tmp_path) as cloud:
        alice = cloud.open_as("alice")
        id = await group(alice, await group_type(cloud))
        volume = (await member(alice, id))["id"]
        await cloud.service.stop()

        def delete(store: VolumeStore) -> None:
            for noun, each in (("volume", volume), ("group", id)):
                doc = store.get(noun, each, hold=True)
                assert doc is not None
                store.put(noun, doc | {"status": "deleting", "work": {"kind": "delete", "turn": "t"}})

        await cloud.database.write(lambda tx: delete(VolumeStore(tx)))
    async with volume_service(tmp_path) as cloud:
        alice = cloud.open_as("alice")
        await gone(alice, id, "group")
        assert (await alice.get(f"/volumes/{volume}")).status_code == 404
        assert not (cloud.files / f"volume-{volume}").exists()


async def test_a_volume_of_the_release_before_groups_is_in_none(tmp_path: Path) -> None:
    row = {
        "noun": "volume", "id": "v", "project": "p", "parent": "", "key": "", "status": "available", "type": "", "size": 1,
        "born": "2026-01-01", "busy": False, "doc": '{"id": "v", "work": null}',
    }  # fmt: skip
    database = await open_database(f"sqlite:///{tmp_path}/old.db", name="volume", durability="process")
    await database.alter(lambda connection: upgrade(connection, TABLES, "0001"))
    said = f"INSERT INTO volume_records ({', '.join(row)}) VALUES ({', '.join(f':{name}' for name in row)})"
    await database.alter(lambda connection: connection.execute(sa.text(said), row))
    assert await migrate(database, TABLES) == "0001"
    ungrouped = {"member_of": ""}
    found = await database.read(lambda tx: VolumeStore(tx).many("volume", where=ungrouped))
    assert [doc["id"] for doc in found] == ["v"]
    await database.close()
