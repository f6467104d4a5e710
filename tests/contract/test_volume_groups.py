"""The volume service's contract for groups of volumes: the embedded service answers as a real Cinder does."""

from typing import Any

import httpx
import pytest
from tests.helpers.contract_volume_groups import (
    act,
    ask_group,
    drop,
    group,
    group_type,
    members,
    message,
    new_name,
    volume_type,
)
from tests.helpers.contract_volume_service import Person, VolumeGround
from tests.helpers.volume_ground import NOTHING, server_id


@pytest.fixture
def ground(volume_ground: VolumeGround) -> VolumeGround:
    return volume_ground


# ---------------------------------------------------------------------------------------------------- types


async def test_group_types_and_their_specs(ground: VolumeGround) -> None:
    admin, who = ground.admin, await ground.person()
    assert (await ground.ask(who, "GET", "/group_types", version="3.10")).status_code == 404
    made = await group_type(ground, description="d", group_specs={"a b": "c"})
    assert (made["description"], made["is_public"], made["group_specs"]) == ("d", True, {"a b": "c"})
    path = f"/group_types/{made['id']}"
    shown = (await ground.ask(who, "GET", path)).json()["group_type"]
    assert set(shown) == {"id", "name", "description", "is_public"}
    answer = await ground.ask(admin, "POST", f"{path}/group_specs", {"group_specs": {"k": "v", "n": None}})
    assert (answer.status_code, answer.json()) == (202, {"group_specs": {"k": "v", "n": None}})
    answer = await ground.ask(admin, "PUT", f"{path}/group_specs/k", {"k": "w"})
    assert (answer.status_code, answer.json()) == (200, {"k": "w"})
    assert (await ground.ask(admin, "GET", f"{path}/group_specs/k")).json() == {"k": "w"}
    assert (await ground.ask(admin, "PUT", f"{path}/group_specs/k", {"l": "w"})).status_code == 400
    assert (await ground.ask(admin, "PUT", f"{path}/group_specs/k", {"k": "w", "l": "w"})).status_code == 400
    assert (await ground.ask(admin, "POST", f"{path}/group_specs", {"group_specs": {"k k": "v"}})).status_code == 400
    assert (await ground.ask(admin, "DELETE", f"{path}/group_specs/n")).status_code == 202
    for method in ("GET", "DELETE"):
        answer = await ground.ask(admin, method, f"{path}/group_specs/n")
        assert answer.status_code == 404
        assert message(answer).startswith(f"Group Type {made['id']} has no "), method
    specs = (await ground.ask(admin, "GET", f"{path}/group_specs")).json()
    assert specs == {"group_specs": {"a b": "c", "k": "w"}}
    for path_of in ("", "/k"):
        assert (await ground.ask(who, "GET", f"{path}/group_specs{path_of}")).status_code == 403
    answer = await ground.ask(admin, "PUT", path, {"group_type": {"name": made["name"] + "2", "is_public": False}})
    assert (answer.status_code, answer.json()["group_type"]["is_public"]) == (200, False)
    answer = await ground.ask(who, "GET", path)
    assert (answer.status_code, message(answer)) == (404, f"Group type {made['id']} could not be found.")
    assert (await ground.ask(admin, "DELETE", path)).status_code == 202
    assert (await ground.ask(admin, "DELETE", path)).status_code == 404
    assert (await ground.ask(admin, "GET", f"{path}/group_specs")).status_code == 404


async def test_refused_group_types(ground: VolumeGround) -> None:
    admin, who = ground.admin, await ground.person()
    made = await group_type(ground)
    answer = await ground.ask(admin, "POST", "/group_types", {"group_type": {"name": made["name"]}})
    assert (answer.status_code, message(answer)) == (409, f"Group Type {made['name']} already exists.")
    for said in ({}, {"name": ""}, {"name": "n" * 256}, {"name": "n", "is_public": "maybe"}, {"name": "n", "x": "y"}):
        answer = await ground.ask(admin, "POST", "/group_types", {"group_type": said})
        assert answer.status_code == 400, said
    path = f"/group_types/{made['id']}"
    for change in ({}, {"name": None}, {"name": " "}, {"colour": "red"}):
        assert (await ground.ask(admin, "PUT", path, {"group_type": change})).status_code == 400, change
    other = await group_type(ground)
    answer = await ground.ask(admin, "PUT", path, {"group_type": {"name": other["name"]}})
    assert answer.status_code == 409
    assert (await ground.ask(admin, "GET", f"/group_types/{NOTHING}")).status_code == 404
    answer = await ground.ask(admin, "GET", "/group_types/default")
    assert (answer.status_code, message(answer)) == (404, "Default group type can not be found.")
    for method, of in (("POST", ""), ("PUT", f"/{made['id']}"), ("DELETE", f"/{made['id']}")):
        body = None if method == "DELETE" else {"group_type": {"name": new_name("type")}}
        answer = await ground.ask(who, method, f"/group_types{of}", body)
        assert answer.status_code == 403, method


async def test_lists_of_group_types(ground: VolumeGround) -> None:
    admin, who = ground.admin, await ground.person()
    public, private = await group_type(ground), await group_type(ground, is_public=False)

    async def listed(asker: Person, query: str) -> set[str]:
        return {row["id"] for row in (await ground.ask(asker, "GET", f"/group_types{query}")).json()["group_types"]}

    both = {public["id"], private["id"]}
    assert await listed(admin, "") & both == {public["id"]}
    assert await listed(admin, "?is_public=none") & both == both
    assert await listed(admin, "?is_public=false") & both == {private["id"]}
    assert await listed(who, "?is_public=none") & both == {public["id"]}
    assert (await ground.ask(admin, "GET", "/group_types?is_public=x")).status_code == 400
    names = [row["name"] for row in (await ground.ask(who, "GET", "/group_types")).json()["group_types"]]
    assert "default_cgsnapshot_type" in names
    answer = (await ground.ask(who, "GET", "/group_types?limit=1&sort=name:asc")).json()
    assert [row["name"] for row in answer["group_types"]] == [min(names)]
    (link,) = answer["group_type_links"]
    assert link["rel"] == "next"
    rest = f"/group_types?sort=name:asc&marker={answer['group_types'][0]['id']}"
    rows = (await ground.ask(who, "GET", rest)).json()["group_types"]
    assert [row["name"] for row in rows] == sorted(names)[1:]
    assert (await ground.ask(who, "GET", "/group_types?sort=colour:asc")).status_code == 400


# ---------------------------------------------------------------------------------------------------- groups

ALWAYS = {"id", "status", "availability_zone", "created_at", "name", "description", "group_type", "volume_types"}


async def test_a_group_and_its_members_by_microversion(ground: VolumeGround) -> None:
    who, type, of = await ground.person(), await group_type(ground), await volume_type(ground)
    made = await group(ground, who, type, of, name=" g ", description="d")
    assert (made["name"], made["description"], made["group_type"]) == ("g", "d", type["id"])
    assert (made["volume_types"], made["availability_zone"]) == ([of["id"]], "nova")
    answer = await ground.ask(who, "GET", f"/groups/{made['id']}", version="3.12")
    assert answer.status_code == 404
    for version, more in (
        ("3.13", set[str]()),
        ("3.14", {"group_snapshot_id", "source_group_id"}),
        ("3.38", {"group_snapshot_id", "source_group_id", "replication_status"}),
    ):
        assert set(await ground.shown(who, made["id"], "group", version=version)) == ALWAYS | more, version
    assert set(await ground.shown(who, made["id"], "group")) == ALWAYS | more
    assert set(await ground.shown(ground.admin, made["id"], "group")) == ALWAYS | more | {"project_id"}
    assert made["replication_status"] == "disabled"
    lists = f"{made['id']}?list_volume=True"
    assert "volumes" not in await ground.shown(who, lists, "group", version="3.24")
    assert (await ground.shown(who, lists, "group", version="3.25"))["volumes"] == []
    answer = await ground.ask(who, "GET", f"/groups/{made['id']}?list_volume=perhaps")
    assert answer.status_code == 400
    await drop(ground, who, made["id"])


async def test_refused_groups(ground: VolumeGround) -> None:
    who, reader = await ground.person(), await ground.person("reader")
    type, of = await group_type(ground), await volume_type(ground)
    for said, status in (
        ({"group_type": NOTHING}, 404),
        ({"group_type": "none"}, 404),
        ({"group_type": "default_cgsnapshot_type"}, 400),
        ({"group_type": ""}, 400),
        ({"volume_types": []}, 400),
        ({"volume_types": ["none"]}, 404),
        ({"volume_types": [of["id"], of["id"]]}, 400),
        ({"availability_zone": "mars"}, 400),
        ({"name": "n" * 256}, 400),
        ({"colour": "red"}, 400),
    ):
        answer = await ask_group(ground, who, type, of, **said)
        assert answer.status_code == status, (said, answer.text)
        assert message(answer)
    assert (await ask_group(ground, reader, type, of)).status_code == 403
    assert (await ground.ask(who, "GET", f"/groups/{NOTHING}")).status_code == 404
    path = f"/os-quota-sets/{who.project}"
    answer = await ground.ask(ground.admin, "PUT", path, {"quota_set": {"groups": 1}})
    assert answer.status_code == 200, answer.text
    made = await group(ground, who, type, of)
    answer = await ask_group(ground, who, type, of)
    assert (answer.status_code, message(answer)) == (
        413,
        "GroupLimitExceeded: Maximum number of groups allowed (1) exceeded",
    )
    answer = await ground.ask(who, "GET", f"{path}?usage=True")
    assert answer.json()["quota_set"]["groups"] == {"limit": 1, "in_use": 1, "reserved": 0}
    answer = await ground.ask(ground.admin, "DELETE", f"/group_types/{type['id']}")
    assert answer.status_code == 400
    assert message(answer).startswith("Target group type is still in use.")
    answer = await ground.ask(ground.admin, "DELETE", f"/types/{of['id']}")
    assert (answer.status_code, message(answer)) == (400, "Target volume type is still in use.")
    stranger = await ground.person()
    assert (await ground.ask(stranger, "GET", f"/groups/{made['id']}")).status_code == 404
    await drop(ground, who, made["id"])
    await drop(ground, who, (await group(ground, who, type, of))["id"])


async def test_a_group_whose_volumes_type_asks_for_what_the_back_end_has_not_is_in_error(ground: VolumeGround) -> None:
    who, type = await ground.person(), await group_type(ground)
    answer = await ask_group(ground, who, type, await volume_type(ground, vendor_name="somebody else"))
    await ground.until(who, answer.json()["group"]["id"], "error", "group")
    await drop(ground, who, answer.json()["group"]["id"])


async def test_lists_of_groups(ground: VolumeGround) -> None:
    who, type, of = await ground.person(), await group_type(ground), await volume_type(ground)
    one, two = [await group(ground, who, type, of, name=name) for name in ("one", "two")]
    assert (await ground.ask(who, "GET", "/groups", version="3.12")).status_code == 404
    rows = (await ground.ask(who, "GET", "/groups")).json()["groups"]
    assert [set(row) for row in rows] == [{"id", "name"}] * 2
    rows = (await ground.ask(who, "GET", "/groups/detail?sort=name:asc&list_volume=true")).json()["groups"]
    assert [(row["name"], row["volumes"]) for row in rows] == [("one", []), ("two", [])]

    async def listed(query: str, asker: Person = who, version: str = "3.71") -> list[str]:
        answer = await ground.ask(asker, "GET", f"/groups{query}", version=version)
        assert answer.status_code == 200, answer.text
        return sorted(row["name"] for row in answer.json()["groups"])

    assert await listed("?name=one") == ["one"]
    for query in ("status=available", "group_type_id=" + type["id"], "colour=red"):
        answer = await ground.ask(who, "GET", f"/groups?{query}")
        assert answer.status_code == 400, query
    assert await listed("?status=available", version="3.30") == ["one", "two"]
    assert await listed("?status=error", version="3.30") == []
    assert await listed("?colour=red", version="3.30") == []
    assert await listed(f"?all_tenants=1&group_type_id={type['id']}", ground.admin) == ["one", "two"]
    assert await listed(f"?all_tenants=1&project_id={who.project}&name~=w", ground.admin) == ["two"]
    assert await listed("", ground.admin) == []
    page = (await ground.ask(who, "GET", "/groups?limit=1&sort=name:asc")).json()
    assert [row["id"] for row in page["groups"]] == [one["id"]]
    assert page["group_links"][0]["rel"] == "next"
    assert await listed(f"?sort=name:asc&marker={one['id']}") == ["two"]
    assert (await ground.ask(who, "GET", f"/groups?marker={NOTHING}")).status_code == 404
    for query in ("sort=colour", "limit=-1", "sort=name:up"):
        assert (await ground.ask(who, "GET", f"/groups?{query}")).status_code == 400, query
    for each in (one, two):
        await drop(ground, who, each["id"])


async def test_volumes_are_made_in_a_group_added_and_removed(ground: VolumeGround) -> None:
    who, type = await ground.person(), await group_type(ground)
    of, other = await volume_type(ground), await volume_type(ground)
    id = (await group(ground, who, type, of))["id"]
    first = await ground.volume(who, volume_type=of["id"], group_id=id)
    assert (first["group_id"], first["consistencygroup_id"]) == (id, None)
    for said, status in (
        ({}, 400),
        ({"volume_type": other["id"]}, 400),
        ({"volume_type": of["id"], "group_id": NOTHING}, 404),
        ({"volume_type": of["id"], "group_id": ""}, 404),
    ):
        answer = await ground.ask(who, "POST", "/volumes", {"volume": {"size": 1, "group_id": id} | said})
        assert answer.status_code == status, (said, answer.text)
    second, strange = await ground.volume(who, volume_type=of["id"]), await ground.volume(who)
    assert second["group_id"] is None

    async def change(**said: Any) -> httpx.Response:
        return await ground.ask(who, "PUT", f"/groups/{id}", {"group": said})

    for change_said in (
        {},
        {"add_volumes": NOTHING},
        {"add_volumes": strange["id"]},
        {"remove_volumes": second["id"]},
        {"add_volumes": second["id"], "remove_volumes": second["id"]},
        {"add_volumes": first["id"]},
        {"name": None},
    ):
        answer = await change(**change_said)
        assert answer.status_code == 400, change_said
    answer = await change(add_volumes=second["id"], name="new")
    assert (answer.status_code, answer.content) == (202, b"")
    assert (await ground.until(who, id, "available", "group"))["name"] == "new"
    assert set(await members(ground, who, id)) == {first["id"], second["id"]}
    rows = (await ground.ask(who, "GET", f"/volumes?group_id={id}")).json()["volumes"]
    assert {row["id"] for row in rows} == {first["id"], second["id"]}
    another = (await group(ground, who, type, of))["id"]
    answer = await ground.ask(who, "PUT", f"/groups/{another}", {"group": {"add_volumes": second["id"]}})
    assert (answer.status_code, message(answer)) == (
        400,
        f"Invalid volume: Cannot add volume {second['id']} to group {another} because it is already in group {id}.",
    )
    answer = await change(remove_volumes=f"{first['id']},", description="d")
    assert answer.status_code == 202, answer.text
    await ground.until(who, id, "available", "group")
    assert await members(ground, who, id) == [second["id"]]
    assert (await ground.ask(who, "DELETE", f"/volumes/{first['id']}")).status_code == 202
    await ground.gone(who, first["id"])
    answer = await ground.ask(who, "PUT", f"/groups/{NOTHING}", {"group": {"name": "x"}})
    assert answer.status_code == 404
    for each in (id, another):
        await drop(ground, who, each)
    assert (await ground.ask(who, "GET", f"/volumes/{second['id']}")).status_code == 404


async def test_a_volume_of_a_group_is_not_deleted_retyped_or_left_alone(ground: VolumeGround) -> None:
    who, type, of = await ground.person(), await group_type(ground), await volume_type(ground)
    other = await volume_type(ground)
    id = (await group(ground, who, type, of))["id"]
    volume = (await ground.volume(who, volume_type=of["id"], group_id=id))["id"]
    for query in ("", "?cascade=True"):
        answer = await ground.ask(who, "DELETE", f"/volumes/{volume}{query}")
        assert answer.status_code == 400
        assert "belong to a group" in message(answer)
    assert (await ground.act(ground.admin, volume, "os-force_delete", {})).status_code == 400
    assert (await ground.act(who, volume, "os-retype", {"new_type": other["id"]})).status_code == 400
    answer = await ground.act(who, volume, "os-extend", {"new_size": 2})
    assert answer.status_code == 202
    await ground.until(who, volume, "available")
    assert (await act(ground, who, id, "delete", {})).status_code == 400
    assert (await act(ground, who, id, "delete", {"delete-volumes": "maybe"})).status_code == 400
    attachment = await ground.attached(who, volume, server_id())
    answer = await act(ground, who, id, "delete", {"delete-volumes": True})
    assert (answer.status_code, message(answer)) == (
        400,
        f"Invalid Group: Volume in group {id} is attached. Need to detach first.",
    )
    answer = await ground.ask(who, "DELETE", f"/attachments/{attachment}", service=True)
    assert answer.status_code == 200
    await ground.until(who, volume, "available")
    snapshot = (await ground.snapshot(who, volume))["id"]
    answer = await act(ground, who, id, "delete", {"delete-volumes": True})
    assert (answer.status_code, message(answer)) == (
        400,
        "Invalid Group: Volume in group still has dependent snapshots.",
    )
    assert (await ground.ask(who, "DELETE", f"/snapshots/{snapshot}")).status_code == 202
    await ground.gone(who, snapshot, "snapshot")
    stranger = await ground.person()
    assert (await act(ground, stranger, id, "delete", {"delete-volumes": True})).status_code == 404
    await drop(ground, who, id)
    assert (await ground.ask(who, "GET", f"/volumes/{volume}")).status_code == 404


async def test_a_groups_status_is_reset_by_administrators(ground: VolumeGround) -> None:
    who, type, of = await ground.person(), await group_type(ground), await volume_type(ground)
    id = (await group(ground, who, type, of))["id"]
    said = {"status": "ERROR"}
    assert (await act(ground, ground.admin, id, "reset_status", said, version="3.19")).status_code == 404
    assert (await act(ground, who, id, "reset_status", said)).status_code == 403
    assert (await act(ground, ground.admin, id, "reset_status", said)).status_code == 202
    assert (await ground.shown(who, id, "group"))["status"] == "error"
    for status in ("in-use", "strange", ""):
        assert (await act(ground, ground.admin, id, "reset_status", {"status": status})).status_code == 400, status
    assert (await act(ground, ground.admin, NOTHING, "reset_status", said)).status_code == 404
    answer = await ground.ask(who, "POST", "/volumes", {"volume": {"size": 1, "volume_type": of["id"], "group_id": id}})
    assert (answer.status_code, message(answer)) == (
        400,
        "Invalid Group: Originating group status must be one of 'available, creating' values",
    )
    await act(ground, ground.admin, id, "reset_status", {"status": "updating"})
    answer = await act(ground, who, id, "delete", {})
    assert (answer.status_code, message(answer)) == (
        400,
        "Invalid Group: Group status must be available or error, but current status is: updating",
    )
    assert (await act(ground, who, id, "explode", {})).status_code == 400
    assert (await act(ground, who, id, "create-from-src", {"source_group_id": id})).status_code == 400
    await drop(ground, who, id)
