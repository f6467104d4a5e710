"""The volume service's contract for snapshots, copies and replication of groups of volumes: the embedded service answers as a real Cinder does."""

from typing import Any

import httpx
import pytest
from tests.helpers.contract_volume_groups import (
    act,
    copied,
    drop,
    group,
    group_type,
    members,
    message,
    snapshotted,
    volume_type,
)
from tests.helpers.contract_volume_service import Person, VolumeGround
from tests.helpers.volume_ground import NOTHING, server_id


@pytest.fixture
def ground(volume_ground: VolumeGround) -> VolumeGround:
    return volume_ground


# ---------------------------------------------------------------------------------------------------- snapshots


async def test_group_snapshots(ground: VolumeGround) -> None:
    who, type, of = await ground.person(), await group_type(ground), await volume_type(ground)
    id = (await group(ground, who, type, of))["id"]

    async def ask(**said: Any) -> httpx.Response:
        return await ground.ask(who, "POST", "/group_snapshots", {"group_snapshot": {"group_id": id} | said})

    answer = await ask()
    assert (answer.status_code, message(answer)) == (
        400,
        "Invalid Group: Source group cannot be empty or in 'creating' or 'updating' state. No group snapshot will be"
        " created.",
    )
    volumes = [(await ground.volume(who, volume_type=of["id"], group_id=id))["id"] for _ in range(2)]
    assert (await ask(group_id="x")).status_code == 400
    assert (await ask(group_id=NOTHING)).status_code == 404
    made = await snapshotted(ground, who, id, name="s", description="d")
    assert (made["name"], made["description"], made["group_id"]) == ("s", "d", id)
    members = {"id", "group_id", "group_type_id", "status", "created_at", "name", "description"}
    assert set(made) == members
    path = f"/group_snapshots/{made['id']}"
    admins = (await ground.ask(ground.admin, "GET", path)).json()["group_snapshot"]
    assert set(admins) == members | {"project_id"}
    assert (await ground.ask(who, "GET", path, version="3.13")).status_code == 404
    rows = (await ground.ask(who, "GET", "/snapshots/detail")).json()["snapshots"]
    assert {(row["volume_id"], row["group_snapshot_id"], row["name"]) for row in rows} == {
        (volume, made["id"], "s") for volume in volumes
    }
    for row in rows:
        answer = await ground.ask(who, "DELETE", f"/snapshots/{row['id']}")
        assert answer.status_code == 400
        assert "must not be part of a group" in message(answer)
        answer = await ground.ask(ground.admin, "POST", f"/snapshots/{row['id']}/action", {"os-force_delete": {}})
        assert answer.status_code == 400
    answer = await act(ground, who, id, "delete", {"delete-volumes": True})
    assert (answer.status_code, message(answer)) == (400, "Invalid Group: Group has existing snapshots.")
    reset = {"reset_status": {"status": "error"}}
    answer = await ground.ask(ground.admin, "POST", f"{path}/action", reset, version="3.18")
    assert answer.status_code == 404
    assert (await ground.ask(who, "POST", f"{path}/action", reset)).status_code == 403
    assert (await ground.ask(ground.admin, "POST", f"{path}/action", reset)).status_code == 202
    assert (await ground.shown(who, made["id"], "group_snapshot"))["status"] == "error"
    for status in ("in-use", ""):
        answer = await ground.ask(ground.admin, "POST", f"{path}/action", {"reset_status": {"status": status}})
        assert answer.status_code == 400
    await ground.ask(ground.admin, "POST", f"{path}/action", {"reset_status": {"status": "deleting"}})
    assert (await ground.ask(who, "DELETE", path)).status_code == 400
    await ground.ask(ground.admin, "POST", f"{path}/action", {"reset_status": {"status": "available"}})
    stranger = await ground.person()
    assert (await ground.ask(stranger, "DELETE", path)).status_code == 404
    assert (await ground.ask(who, "DELETE", path)).status_code == 202
    await ground.gone(who, made["id"], "group_snapshot")
    assert (await ground.ask(who, "GET", "/snapshots")).json()["snapshots"] == []
    await drop(ground, who, id)


async def test_group_snapshots_are_charged_for(ground: VolumeGround) -> None:
    who, type, of = await ground.person(), await group_type(ground), await volume_type(ground)
    id = (await group(ground, who, type, of))["id"]
    for _ in range(2):
        await ground.volume(who, volume_type=of["id"], group_id=id)
    answer = await ground.ask(ground.admin, "PUT", f"/os-quota-sets/{who.project}", {"quota_set": {"snapshots": 1}})
    assert answer.status_code == 200
    answer = await ground.ask(who, "POST", "/group_snapshots", {"group_snapshot": {"group_id": id}})
    assert answer.status_code == 413
    assert message(answer).endswith("Maximum number of snapshots allowed (1) exceeded")
    assert (await ground.ask(who, "GET", "/group_snapshots")).json() == {"group_snapshots": []}
    assert (await ground.ask(who, "GET", "/snapshots")).json() == {"snapshots": []}
    await drop(ground, who, id)


async def test_lists_of_group_snapshots(ground: VolumeGround) -> None:
    who, type, of = await ground.person(), await group_type(ground), await volume_type(ground)
    id = (await group(ground, who, type, of))["id"]
    await ground.volume(who, volume_type=of["id"], group_id=id)
    one, two = [await snapshotted(ground, who, id, name=name) for name in ("one", "two")]

    async def listed(query: str, asker: Person = who, version: str = "3.71") -> list[str]:
        answer = await ground.ask(asker, "GET", f"/group_snapshots{query}", version=version)
        assert answer.status_code == 200, answer.text
        return [row["name"] for row in answer.json()["group_snapshots"]]

    assert sorted(await listed("")) == ["one", "two"]
    assert await listed("?sort=name:asc&limit=1") == ["one"]
    assert len(await listed("?sort=name:asc&limit=1&name=none", version="3.28")) == 2
    assert await listed("?sort=name:asc", version="3.29") == ["one", "two"]
    assert await listed(f"?sort=name:desc&marker={two['id']}") == ["one"]
    assert await listed("?name=two") == ["two"]
    assert len(await listed(f"?group_id={id}&status=available")) == 2
    assert await listed(f"?group_id={NOTHING}") == []
    assert (await ground.ask(who, "GET", f"/group_snapshots?group_type_id={type['id']}")).status_code == 400
    assert len(await listed(f"?all_tenants=1&group_type_id={type['id']}", ground.admin)) == 2
    rows = (await ground.ask(who, "GET", "/group_snapshots")).json()["group_snapshots"]
    assert [set(row) for row in rows] == [{"id", "name"}] * 2
    page = (await ground.ask(who, "GET", "/group_snapshots/detail?limit=1")).json()
    assert page["group_snapshot_links"][0]["rel"] == "next"
    for each in (one, two):
        assert (await ground.ask(who, "DELETE", f"/group_snapshots/{each['id']}")).status_code == 202
        await ground.gone(who, each["id"], "group_snapshot")
    await drop(ground, who, id)


# ---------------------------------------------------------------------------------------------------- from a source


async def test_groups_are_made_of_groups_and_of_group_snapshots(ground: VolumeGround) -> None:
    who, type, of = await ground.person(), await group_type(ground), await volume_type(ground)
    id = (await group(ground, who, type, of))["id"]
    answer = await copied(ground, who, source_group_id=id)
    assert (answer.status_code, message(answer)) == (
        400,
        "Invalid Group: Source Group is empty. No group will be created.",
    )
    volumes = [await ground.volume(who, volume_type=of["id"], group_id=id, size=size) for size in (1, 2)]
    snapshot = (await snapshotted(ground, who, id))["id"]
    for said, status in (
        ({}, 400),
        ({"source_group_id": id, "group_snapshot_id": snapshot}, 400),
        ({"source_group_id": NOTHING}, 404),
        ({"group_snapshot_id": NOTHING}, 404),
        ({"source_group_id": "x"}, 400),
    ):
        assert (await copied(ground, who, **said)).status_code == status, said
    body = {"create-from-src": {"source_group_id": id}}
    assert (await ground.ask(who, "POST", "/groups/action", body, version="3.13")).status_code == 404
    reader = await ground.person("reader")
    assert (await copied(ground, reader, source_group_id=id)).status_code == 404
    for source, member in (("source_group_id", "source_volid"), ("group_snapshot_id", "snapshot_id")):
        answer = await copied(ground, who, name="copy", **{source: id if member == "source_volid" else snapshot})
        assert answer.status_code == 202, answer.text
        assert set(answer.json()["group"]) == {"id", "name"}
        made = await ground.until(who, answer.json()["group"]["id"], "available", "group")
        assert (made["group_type"], made["volume_types"], made["availability_zone"]) == (type["id"], [of["id"]], "nova")
        assert made[source] is not None
        copies = [await ground.shown(who, each) for each in await members(ground, who, made["id"])]
        assert sorted(each["size"] for each in copies) == [1, 2]
        assert {(each["status"], each["group_id"], each["volume_type"]) for each in copies} == {
            ("available", made["id"], of["name"])
        }
        if member == "source_volid":
            assert {each[member] for each in copies} == {each["id"] for each in volumes}
        await drop(ground, who, made["id"])
    answer = await ground.ask(ground.admin, "PUT", f"/os-quota-sets/{who.project}", {"quota_set": {"volumes": 3}})
    assert answer.status_code == 200
    assert (await copied(ground, who, source_group_id=id)).status_code == 400
    rows = (await ground.ask(who, "GET", "/groups")).json()["groups"]
    assert [row["id"] for row in rows] == [id]
    assert len((await ground.ask(who, "GET", "/volumes")).json()["volumes"]) == 2
    assert (await ground.ask(who, "DELETE", f"/group_snapshots/{snapshot}")).status_code == 202
    await ground.gone(who, snapshot, "group_snapshot")
    await drop(ground, who, id)


async def test_a_group_of_a_volume_in_use_is_in_error(ground: VolumeGround) -> None:
    who, type, of = await ground.person(), await group_type(ground), await volume_type(ground)
    id = (await group(ground, who, type, of))["id"]
    volume = (await ground.volume(who, volume_type=of["id"], group_id=id))["id"]
    attachment = await ground.attached(who, volume, server_id())
    snapshot = (await snapshotted(ground, who, id))["id"]
    answer = await copied(ground, who, source_group_id=id)
    assert answer.status_code == 202
    copy = answer.json()["group"]["id"]
    await ground.until(who, copy, "error", "group")
    (made,) = await members(ground, who, copy)
    assert (await ground.shown(who, made))["status"] == "error"
    await drop(ground, who, copy)
    assert (await ground.ask(who, "DELETE", f"/group_snapshots/{snapshot}")).status_code == 202
    await ground.gone(who, snapshot, "group_snapshot")
    assert (await ground.ask(who, "DELETE", f"/attachments/{attachment}", service=True)).status_code == 200
    await ground.until(who, volume, "available")
    await drop(ground, who, id)


# ---------------------------------------------------------------------------------------------------- replication

REPLICATION = ("enable_replication", "disable_replication", "failover_replication", "list_replication_targets")


@pytest.mark.parametrize("action", REPLICATION)
async def test_replication_is_refused_for_other_types(ground: VolumeGround, action: str) -> None:
    who, type, of = await ground.person(), await group_type(ground), await volume_type(ground)
    id = (await group(ground, who, type, of))["id"]
    assert (await act(ground, who, id, action, {}, version="3.37")).status_code == 404
    answer = await act(ground, who, id, action, {})
    assert (answer.status_code, message(answer)) == (
        400,
        f"Invalid group type: Group {id} is not a replication group type.",
    )
    assert (await act(ground, who, id, action, "x")).status_code == 400
    assert (await act(ground, who, NOTHING, action, {})).status_code == 404
    path = f"/group_types/{type['id']}/group_specs"
    answer = await ground.ask(ground.admin, "POST", path, {"group_specs": {"group_replication_enabled": "<is> True"}})
    assert answer.status_code == 202
    answer = await act(ground, who, id, action, {})
    assert answer.status_code == 400
    assert message(answer).startswith("Invalid volume type: Volume type ")
    await drop(ground, who, id)
