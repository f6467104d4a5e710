"""The volume service's contract for volumes and attachments: the embedded service answers as a real Cinder does."""

import uuid
from typing import Any

import pytest
from tests.helpers.contract_volume_service import VolumeGround
from tests.helpers.volume_ground import NOTHING, eventually, server_id


@pytest.fixture
def ground(volume_ground: VolumeGround) -> VolumeGround:
    return volume_ground


def keys(shown: dict[str, Any]) -> set[str]:
    """Members that both show; what only one back end has is left out."""
    return set(shown) - {"encryption_key_id"}


ALWAYS = {
    "attachments", "availability_zone", "bootable", "consistencygroup_id", "created_at", "description", "encrypted", "id",
    "links", "metadata", "multiattach", "name", "replication_status", "size", "snapshot_id", "source_volid", "status",
    "updated_at", "user_id", "volume_type",
}  # fmt: skip
SHOWN = ALWAYS | {"os-vol-tenant-attr:tenant_id"}
ADMINS = {
    "migration_status", "os-vol-host-attr:host", "os-vol-mig-status-attr:migstat", "os-vol-mig-status-attr:name_id"
}  # fmt: skip


async def test_versions(ground: VolumeGround) -> None:
    answer = await ground.client.get("/")
    assert answer.status_code == 300
    (version,) = answer.json()["versions"]
    assert (version["id"], version["version"], version["min_version"]) == ("v3.0", "3.71", "3.0")
    assert (await ground.client.get(f"/v3/{ground.admin.project}/volumes")).status_code == 401
    who = await ground.person()
    for version, status in (("3.0", 200), ("3.71", 200), ("latest", 200), ("3.72", 406), ("x", 400)):
        assert (await ground.ask(who, "GET", "/volumes", version=version)).status_code == status, version


async def test_a_volume_and_its_members_by_microversion(ground: VolumeGround) -> None:
    who = await ground.person()
    volume = await ground.volume(who, name="v", metadata={"a": "b"})
    for version, more in (
        ("3.0", set[str]()),
        ("3.13", {"group_id"}),
        ("3.48", {"group_id", "shared_targets", "service_uuid"}),
        ("3.63", {"group_id", "shared_targets", "service_uuid", "volume_type_id"}),
        ("3.65", {"group_id", "shared_targets", "service_uuid", "volume_type_id", "consumes_quota"}),
    ):
        shown = await ground.shown(who, volume["id"], version=version)
        assert keys(shown) == SHOWN | more, version
    full = SHOWN | ADMINS | more | {"provider_id", "cluster_name"}
    admins = await ground.ask(ground.admin, "GET", "/volumes/detail?all_tenants=1&name=v")
    assert {frozenset(keys(row)) for row in admins.json()["volumes"]} == {frozenset(full)}
    rows = (await ground.ask(who, "GET", "/volumes")).json()["volumes"]
    assert [set(row) for row in rows] == [{"id", "name", "links"}]
    assert (volume["volume_type"], volume["bootable"], volume["metadata"]) == ("__DEFAULT__", "false", {"a": "b"})
    made = await ground.ask(who, "POST", "/volumes", {"volume": {"size": 1}})
    assert keys(made.json()["volume"]) == ALWAYS | more
    assert made.json()["volume"]["status"] == "creating"


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ({}, 400),
        ({"size": 0}, 400),
        ({"size": "many"}, 400),
        ({"size": 1, "colour": "red"}, 400),
        ({"size": 1, "name": "n" * 256}, 400),
        ({"size": 1, "volume_type": "none"}, 404),
        ({"size": 1, "snapshot_id": NOTHING}, 404),
        ({"size": 1, "source_volid": NOTHING}, 404),
        ({"size": 1, "imageRef": NOTHING}, 400),
        ({"size": 1, "multiattach": True}, 400),
        ({"size": 5000}, 413),
        ({"size": 1, "availability_zone": "mars"}, 400),
    ],
    ids=str,
)
async def test_refused_volumes(ground: VolumeGround, said: dict[str, Any], status: int) -> None:
    who = await ground.person()
    answer = await ground.ask(who, "POST", "/volumes", {"volume": said})
    assert answer.status_code == status, answer.text
    (fault,) = answer.json().values()
    assert fault["code"] == status
    assert fault["message"]


async def test_permissions_on_volumes(ground: VolumeGround) -> None:
    who, other = await ground.person(), await ground.person()
    id = (await ground.volume(who))["id"]
    assert (await ground.ask(other, "GET", f"/volumes/{id}")).status_code == 404
    assert (await ground.ask(other, "DELETE", f"/volumes/{id}")).status_code == 404
    assert (await ground.ask(ground.admin, "GET", f"/volumes/{id}")).status_code == 200
    for path in ("/os-services", "/scheduler-stats/get_pools", "/qos-specs"):
        assert (await ground.ask(who, "GET", path)).status_code == 403, path
    assert (await ground.act(who, id, "os-reset_status", {"status": "error"})).status_code == 403
    assert (await ground.act(who, id, "os-force_delete", {})).status_code == 403
    answer = await ground.client.get(f"/v3/{other.project}/volumes", headers={"X-Auth-Token": who.token})
    assert answer.status_code == 400


async def test_attachments_step_by_step(ground: VolumeGround) -> None:
    who, server, other = await ground.person(), server_id(), server_id()
    id = (await ground.volume(who))["id"]
    body = {"volume_uuid": id, "instance_uuid": server}
    assert (await ground.ask(who, "POST", "/attachments", {"attachment": body}, version="3.26")).status_code == 404
    answer = await ground.ask(who, "POST", "/attachments", {"attachment": body})
    made = answer.json()["attachment"]
    assert answer.status_code == 200
    assert made.items() >= {
        "status": "reserved", "instance": server, "volume_id": id, "attach_mode": "null", "connection_info": {}
    }.items()  # fmt: skip
    assert (await ground.shown(who, id))["status"] == "reserved"
    twice = {"volume_uuid": id, "instance_uuid": other}
    assert (await ground.ask(who, "POST", "/attachments", {"attachment": twice})).status_code == 400
    path = f"/attachments/{made['id']}"
    assert (await ground.ask(who, "PUT", path, {"attachment": {"connector": {}}})).status_code == 400
    answer = await ground.ask(who, "PUT", path, {"attachment": {"connector": {"host": "h1"}}})
    connected = answer.json()["attachment"]
    assert (connected["status"], connected["attach_mode"]) == ("reserved", "null"), "as it was before"
    info = connected["connection_info"]
    assert info["attachment_id"] == made["id"]
    assert (info["driver_volume_type"], info["volume_id"], info["access_mode"]) == ("local", id, "rw")
    assert (await ground.shown(who, id))["status"] == "attaching"
    assert (await ground.shown(who, id))["attachments"] == []
    connected = (await ground.ask(who, "GET", path)).json()["attachment"]
    assert (connected["status"], connected["attach_mode"]) == ("attaching", "rw")
    assert (await ground.ask(who, "POST", path + "/action", {"os-complete": None}, version="3.43")).status_code == 404
    assert (await ground.ask(who, "POST", path + "/action", {"os-complete": None})).status_code == 204
    volume = await ground.shown(who, id)
    assert volume["status"] == "in-use"
    (row,) = volume["attachments"]
    assert row.items() >= {
        "id": id, "volume_id": id, "attachment_id": made["id"], "server_id": server, "host_name": None, "device": "na"
    }.items()  # fmt: skip
    rows = (await ground.ask(who, "GET", f"/attachments?instance_id={server}")).json()["attachments"]
    assert rows == [{"id": made["id"], "status": "attached", "instance": server, "volume_id": id}]
    ended = await ground.ask(who, "DELETE", path, service=True)
    assert (ended.status_code, ended.json()) == (200, {"attachments": []})
    assert (await ground.shown(who, id))["status"] == "available"
    assert (await ground.ask(who, "GET", path)).status_code == 404


async def test_only_a_service_may_end_the_attachment_of_a_server(ground: VolumeGround) -> None:
    who, server = await ground.person(), server_id()
    id = (await ground.volume(who))["id"]
    attachment = await ground.attached(who, id, server)
    connector = {"connector": {"host": "h1"}}
    for principal, method, path, body in (
        (who, "DELETE", f"/attachments/{attachment}", None),
        (who, "POST", f"/volumes/{id}/action", {"os-detach": {"attachment_id": attachment}}),
        (who, "POST", f"/volumes/{id}/action", {"os-terminate_connection": connector}),
        (ground.admin, "POST", f"/volumes/{id}/action", {"os-force_detach": connector}),
    ):
        answer = await ground.ask(principal, method, path, body)
        assert answer.status_code == 409, (path, body, answer.text)
    assert (await ground.shown(who, id))["status"] == "in-use"
    assert (await ground.ask(who, "DELETE", f"/volumes/{id}")).status_code == 400
    assert (await ground.ask(who, "DELETE", f"/attachments/{attachment}", service=True)).status_code == 200


async def test_an_owner_may_end_an_attachment_that_compute_does_not_know(ground: VolumeGround) -> None:
    who, server = await ground.person(), server_id()
    id = (await ground.volume(who))["id"]
    attachment = await ground.attached(who, id, server)
    ground.compute.holds.clear()
    assert (await ground.ask(who, "DELETE", f"/attachments/{attachment}")).status_code == 200
    body = {"volume_uuid": id, "instance_uuid": server}
    reserved = (await ground.ask(who, "POST", "/attachments", {"attachment": body})).json()["attachment"]["id"]
    ground.compute.holds[server, id] = reserved
    assert (await ground.ask(who, "DELETE", f"/attachments/{reserved}")).status_code == 200, "it was not connected"
    assert (await ground.shown(who, id))["status"] == "available"


async def test_a_server_that_moves(ground: VolumeGround) -> None:
    who, server = await ground.person(), server_id()
    id = (await ground.volume(who))["id"]
    first = await ground.attached(who, id, server)
    said = {"volume_uuid": id, "instance_uuid": server}
    empty = (await ground.ask(who, "POST", "/attachments", {"attachment": said})).json()["attachment"]["id"]
    assert (await ground.shown(who, id))["status"] == "in-use"
    body = {"attachment": {"connector": {"host": "h2"}}}
    assert (await ground.ask(who, "PUT", f"/attachments/{empty}", body)).status_code == 409
    fields = {"attachment": said | {"connector": {"host": "h2"}}}
    second = await ground.ask(who, "POST", "/attachments", fields)
    assert (second.status_code, second.json()["attachment"]["status"]) == (200, "reserved")
    assert (await ground.shown(who, id))["status"] == "attaching"
    await ground.ask(who, "DELETE", f"/attachments/{empty}", service=True)
    assert (await ground.shown(who, id))["status"] == "in-use"
    path = f"/attachments/{second.json()['attachment']['id']}"
    assert (await ground.ask(who, "POST", path + "/action", {"os-complete": None})).status_code == 204
    await ground.ask(who, "DELETE", f"/attachments/{first}", service=True)
    volume = await ground.shown(who, id)
    assert (volume["status"], len(volume["attachments"])) == ("in-use", 1)


async def test_multiattach_by_type(ground: VolumeGround) -> None:
    who = await ground.person()
    name = f"many-{uuid.uuid4().hex[:6]}"
    made = {"volume_type": {"name": name, "extra_specs": {"multiattach": "<is> True"}}}
    assert (await ground.ask(ground.admin, "POST", "/types", made)).status_code == 200
    volume = await ground.volume(who, volume_type=name)
    assert volume["multiattach"] is True
    one, two = server_id(), server_id()
    first = await ground.attached(who, volume["id"], one, "h1")
    second = await ground.attached(who, volume["id"], two, "h2")
    assert len((await ground.shown(who, volume["id"]))["attachments"]) == 2
    left = await ground.ask(who, "DELETE", f"/attachments/{first}", service=True)
    assert [each["id"] for each in left.json()["attachments"]] == [second]
    assert (await ground.shown(who, volume["id"]))["status"] == "in-use"


async def test_extend(ground: VolumeGround) -> None:
    who, server = await ground.person(), server_id()
    id = (await ground.volume(who))["id"]
    assert (await ground.act(who, id, "os-extend", {"new_size": 1})).status_code == 400
    assert (await ground.act(who, id, "os-extend", {"new_size": 2})).status_code == 202
    assert (await ground.until(who, id, "available"))["size"] == 2
    await ground.attached(who, id, server)
    assert (await ground.act(who, id, "os-extend", {"new_size": 3}, version="3.41")).status_code == 400
    assert (await ground.act(who, id, "os-extend", {"new_size": 3})).status_code == 202
    assert (await ground.until(who, id, "in-use"))["size"] == 3
    await eventually(lambda: ("volume-extended", server, id) in ground.compute.events)
    assert (await ground.act(who, id, "os-extend", {"new_size": 3000})).status_code == 413
    assert (await ground.shown(who, id))["status"] == "in-use"
    answer = await ground.act(ground.admin, id, "os-extend_volume_completion", {"error": False})
    assert answer.status_code == 400
