"""Actions on a server: from which states, by whom, and the parts of a server that they change."""

import socket
from typing import Any

import pytest

from moorage.model.action import Action, ActionEvent
from moorage.model.errors import HostFailed, NotFound
from moorage.model.ids import ConductorId, OperationId
from moorage.model.operation import Accepted
from moorage.model.server import TaskState, VmState
from moorage.store.cell import actions as cell_actions
from moorage.store.region import inbox
from moorage.store.region import operations as region_operations
from moorage_testing.compute_app import ADMIN, MEMBER, READER, STRANGER
from moorage_testing.fake_server_service import NETWORK, a_server

ID = a_server().id
PATH = f"/servers/{ID}"
SERVICE = ADMIN.__class__("s" * 32, project="9" * 32, roles=("service",))


async def act(servers: Any, body: Any, at: str = "latest", by: Any = MEMBER, number: int = 1) -> Any:
    return await servers.ask("POST", f"/servers/{a_server(number).id}/action", body, at=at, by=by)


POWER = [
    ({"os-stop": None}, VmState.ACTIVE, "stop"),
    ({"os-start": None}, VmState.STOPPED, "start"),
    ({"reboot": {"type": "soft"}}, VmState.ACTIVE, "reboot"),
    ({"reboot": {"type": "HARD"}}, VmState.STOPPED, "hard_reboot"),
    ({"pause": None}, VmState.ACTIVE, "pause"),
    ({"unpause": None}, VmState.PAUSED, "unpause"),
    ({"suspend": None}, VmState.ACTIVE, "suspend"),
    ({"resume": None}, VmState.SUSPENDED, "resume"),
]


@pytest.mark.parametrize(("body", "state", "verb"), POWER)
async def test_power(servers: Any, body: Any, state: VmState, verb: str) -> None:
    await servers.keep(
        a_server(1, vm_state=state),
        a_server(2, vm_state=VmState.BUILDING),
        a_server(3, vm_state=state, locked=True),
        a_server(4, vm_state=state, task_state=TaskState.POWERING_OFF),
        a_server(5, vm_state=state, task_state=TaskState.REBOOTING_HARD),
    )
    answer = await act(servers, body)
    assert (answer.status_code, answer.content) == (202, b"")
    assert servers.book.powered == [(ID, verb)]
    refused = await act(servers, body, number=2)
    assert refused.status_code == 409
    assert "while it is in vm_state building" in refused.json()["conflictingRequest"]["message"]
    assert (await act(servers, body, number=3)).status_code == 409
    assert (await act(servers, body, number=4)).status_code == 409
    assert (await act(servers, body, number=5)).status_code == (202 if verb == "hard_reboot" else 409)
    assert (await act(servers, body, by=READER)).status_code == 403
    assert (await act(servers, body, by=STRANGER)).status_code == 404
    assert (await act(servers, body, by=ADMIN, number=3)).status_code == 202


async def test_unknown_and_malformed_actions(servers: Any) -> None:
    await servers.keep(a_server())
    answer = await act(servers, {"dance": None})
    assert (answer.status_code, answer.json()["badRequest"]["message"]) == (400, "There is no such action: dance")
    assert (await act(servers, {"reboot": {"type": "gently"}})).status_code == 400
    assert (await act(servers, {"os-start": None, "os-stop": None})).status_code == 400


LATER = [
    ("latest", {"os-migrateLive": {"host": None, "block_migration": "auto"}}, MEMBER, 403),
    ("latest", {"migrate": None}, MEMBER, 403),
    ("2.44", {"addFixedIp": {"networkId": "x"}}, MEMBER, 404),
    ("2.16", {"trigger_crash_dump": None}, MEMBER, 404),
    ("2.17", {"trigger_crash_dump": None}, MEMBER, 202),
    ("2.5", {"os-getVNCConsole": {"type": "novnc"}}, MEMBER, 200),
    ("2.6", {"os-getVNCConsole": {"type": "novnc"}}, MEMBER, 404),
    ("2.5", {"os-getRDPConsole": {"type": "rdp-html5"}}, MEMBER, 400),
    ("2.6", {"os-getRDPConsole": {"type": "rdp-html5"}}, MEMBER, 404),
    ("latest", {"resetNetwork": None}, ADMIN, 410),
    ("latest", {"restore": None}, MEMBER, 409),
]


@pytest.mark.parametrize(("at", "body", "by", "status"), LATER)
async def test_policy_and_version_are_checked_before_the_body(
    servers: Any, at: str, body: Any, by: Any, status: int
) -> None:
    await servers.keep(a_server())
    answer = await act(servers, body, at=at, by=by)
    assert answer.status_code == status, answer.text


async def test_locks(servers: Any) -> None:
    await servers.keep(a_server())
    assert (await act(servers, {"lock": {"locked_reason": "x"}}, at="2.72")).status_code == 202
    assert (await servers.shown())["locked_reason"] is None
    assert (await act(servers, {"lock": {"locked_reason": "upgrade"}}, at="2.73")).status_code == 202
    assert (await servers.shown())["locked_reason"] is None  # it was locked already
    assert (await act(servers, {"unlock": None})).status_code == 202
    assert (await act(servers, {"lock": {"locked_reason": "upgrade"}}, at="2.73")).status_code == 202
    shown = await servers.shown()
    assert (shown["locked"], shown["locked_reason"]) == (True, "upgrade")
    assert (await act(servers, {"lock": None}, by=ADMIN)).status_code == 202
    assert (await servers.shown())["locked_reason"] == "upgrade"  # until it is unlocked
    assert (await act(servers, {"unlock": None}, by=ADMIN)).status_code == 202
    assert (await act(servers, {"lock": {"locked_reason": "upgrade"}}, at="2.73")).status_code == 202
    assert (await act(servers, {"os-stop": None})).status_code == 409
    assert (await act(servers, {"unlock": None})).status_code == 202
    assert (await act(servers, {"lock": None}, at="2.1", by=ADMIN)).status_code == 202
    assert (await act(servers, {"unlock": None})).status_code == 403
    assert (await act(servers, {"unlock": None}, by=ADMIN)).status_code == 202
    assert (await servers.shown())["locked_reason"] is None


async def test_locks_and_resets_are_actions(servers: Any) -> None:
    await servers.keep(a_server())
    locked = await act(servers, {"lock": None})
    await act(servers, {"lock": None})  # nothing: it is locked already
    await act(servers, {"unlock": None})
    reset = await act(servers, {"os-resetState": {"state": "error"}}, by=ADMIN)
    path = f"/servers/{ID}/os-instance-actions"
    rows = (await servers.get(path, by=MEMBER, at="latest")).json()["instanceActions"]
    assert sorted(row["action"] for row in rows) == ["lock", "resetState", "unlock"]
    who = {row["action"]: (row["user_id"], row["project_id"]) for row in rows}
    assert who["resetState"] == (ADMIN.user, MEMBER.project)
    shown = await servers.get(f"{path}/{reset.headers['x-compute-request-id']}", by=ADMIN, at="latest")
    assert shown.json()["instanceAction"]["action"] == "resetState"
    shown = await servers.get(f"{path}/{locked.headers['x-compute-request-id']}", by=ADMIN, at="latest")
    (event,) = shown.json()["instanceAction"]["events"]
    assert (event["event"], event["host"]) == ("api_lock", socket.gethostname())  # a string, as Nova's schema has it


async def test_reset_force_delete_console(servers: Any) -> None:
    await servers.keep(a_server(1, task_state=TaskState.POWERING_OFF))
    assert (await act(servers, {"os-resetState": {"state": "error"}})).status_code == 403
    assert (await act(servers, {"os-resetState": {"state": "error"}}, by=ADMIN)).status_code == 202
    shown = await servers.shown()
    assert (shown["status"], shown["OS-EXT-STS:task_state"]) == ("ERROR", None)
    assert (await act(servers, {"forceDelete": None})).status_code == 202
    assert servers.book.deleted == [(ID, True)]
    answer = await act(servers, {"os-getConsoleOutput": {"length": "10"}})
    assert answer.json() == {"output": "[0mlogin:"}  # what moves a cursor is left out
    servers.book.silent = True
    assert (await act(servers, {"os-getConsoleOutput": {}})).status_code == 409
    servers.book.silent, servers.book.host_says = False, HostFailed("x", code="not_supported")
    assert (await act(servers, {"os-getConsoleOutput": {}})).status_code == 501


async def test_metadata(servers: Any) -> None:
    await servers.keep(a_server(), a_server(2, locked=True))
    path = f"{PATH}/metadata"
    assert (await servers.get(path, by=MEMBER)).json() == {"metadata": {"role": "web"}}
    answer = await servers.ask("POST", path, {"metadata": {"a": "1"}}, by=MEMBER)
    assert answer.json() == {"metadata": {"role": "web", "a": "1"}}
    assert (await servers.ask("PUT", path, {"metadata": {"b": "2"}}, by=MEMBER)).json() == {"metadata": {"b": "2"}}
    assert (await servers.ask("PUT", f"{path}/c", {"meta": {"c": "3"}}, by=MEMBER)).json() == {"meta": {"c": "3"}}
    assert (await servers.ask("PUT", f"{path}/c", {"meta": {"d": "3"}}, by=MEMBER)).status_code == 400
    assert (await servers.get(f"{path}/c", by=MEMBER)).json() == {"meta": {"c": "3"}}
    assert (await servers.ask("DELETE", f"{path}/c", by=MEMBER)).status_code == 204
    assert (await servers.ask("DELETE", f"{path}/c", by=MEMBER)).status_code == 404
    many = {"metadata": {str(n): "" for n in range(200)}}
    assert (await servers.ask("POST", path, many, by=MEMBER)).status_code == 403
    locked = f"/servers/{a_server(2).id}/metadata"
    assert (await servers.ask("POST", locked, {"metadata": {"a": "1"}}, by=MEMBER)).status_code == 409
    assert (await servers.ask("DELETE", f"{locked}/role", by=MEMBER)).status_code == 409
    assert (await servers.ask("DELETE", f"{locked}/other", by=MEMBER)).status_code == 404
    assert (await servers.ask("PUT", f"{locked}/c", {"meta": {"d": "3"}}, by=MEMBER)).status_code == 400
    assert (await servers.ask("PUT", f"{path}/c", {"meta": {"d": "3"}}, by=STRANGER)).status_code == 404


@pytest.mark.parametrize("task", [TaskState.IMAGE_UPLOADING, TaskState.REBOOTING, TaskState.DELETING])
async def test_metadata_can_be_written_during_any_task(servers: Any, task: TaskState) -> None:
    await servers.keep(a_server(task_state=task))
    path = f"{PATH}/metadata"
    assert (await servers.ask("POST", path, {"metadata": {"a": "1"}}, by=MEMBER)).status_code == 200
    assert (await servers.ask("PUT", f"{path}/b", {"meta": {"b": "2"}}, by=MEMBER)).status_code == 200
    assert (await servers.ask("DELETE", f"{path}/role", by=MEMBER)).status_code == 204
    assert (await servers.get(path, by=MEMBER)).json() == {"metadata": {"a": "1", "b": "2"}}


async def test_tags(servers: Any) -> None:
    await servers.keep(a_server())
    path = f"{PATH}/tags"
    assert (await servers.get(path, at="2.25", by=MEMBER)).status_code == 404
    assert (await servers.get(path, at="2.26", by=MEMBER)).json() == {"tags": ["blue"]}
    added = await servers.ask("PUT", f"{path}/red", at="2.26", by=MEMBER)
    assert (added.status_code, added.headers["location"]) == (201, f"http://cloud/v2.1{path}/red")
    assert (await servers.ask("PUT", f"{path}/red", at="2.26", by=MEMBER)).status_code == 204
    assert (await servers.get(f"{path}/red", at="2.26", by=MEMBER)).status_code == 204
    assert (await servers.ask("DELETE", f"{path}/red", at="2.26", by=MEMBER)).status_code == 204
    assert (await servers.get(f"{path}/red", at="2.26", by=MEMBER)).status_code == 404
    assert (await servers.ask("PUT", path, {"tags": ["x", "y"]}, at="2.26", by=MEMBER)).json() == {"tags": ["x", "y"]}
    assert (await servers.ask("PUT", path, {"tags": ["a,b"]}, at="2.26", by=MEMBER)).status_code == 400
    assert (await servers.ask("PUT", f"{path}/a,b", at="2.26", by=MEMBER)).status_code == 400
    assert (await servers.ask("PUT", f"{path}/a,b", at="2.26", by=STRANGER)).status_code == 404
    assert (await servers.names("?tags=x,y")) == ["web1"]
    assert (await servers.ask("DELETE", path, at="2.26", by=MEMBER)).status_code == 204
    assert (await servers.shown())["tags"] == []
    many = {"tags": [str(number) for number in range(50)]}
    assert (await servers.ask("PUT", path, many, at="2.26", by=MEMBER)).status_code == 200
    for tag in ("0", "new"):  # the one it has, too
        assert (await servers.ask("PUT", f"{path}/{tag}", at="2.26", by=MEMBER)).status_code == 400


async def test_parts_read_from_the_record(servers: Any) -> None:
    await servers.keep(a_server())
    addresses = {"private": [{"version": 4, "addr": "10.0.0.5"}]}
    assert (await servers.get(f"{PATH}/ips", by=MEMBER)).json() == {"addresses": addresses}
    assert (await servers.get(f"{PATH}/ips/private", by=MEMBER)).json() == addresses
    assert (await servers.get(f"{PATH}/ips/other", by=MEMBER)).status_code == 404
    rows = (await servers.get(f"{PATH}/os-interface", at="2.70", by=MEMBER)).json()["interfaceAttachments"]
    assert rows[0]["tag"] is None
    port = rows[0]["port_id"]
    row = (await servers.get(f"{PATH}/os-interface/{port}", at="2.69", by=MEMBER)).json()["interfaceAttachment"]
    assert row["fixed_ips"] == [{"subnet_id": "s", "ip_address": "10.0.0.5"}]
    assert "tag" not in row
    assert (await servers.get(f"{PATH}/os-interface/other", by=MEMBER)).status_code == 404
    assert (await servers.get(f"{PATH}/os-volume_attachments", by=MEMBER)).json() == {"volumeAttachments": []}
    assert (await servers.get(f"{PATH}/migrations", at="2.23", by=ADMIN)).json() == {"migrations": []}
    assert (await servers.get(f"{PATH}/migrations", at="2.22", by=ADMIN)).status_code == 404
    assert (await servers.get(f"{PATH}/os-server-password", by=MEMBER)).json() == {"password": ""}
    assert (await servers.get(f"{PATH}/diagnostics", by=ADMIN)).status_code == 200


class OneNetwork:
    """A network service where only one network is seen."""

    async def show_as(self, token: str, things: str, thing: str) -> dict[str, Any]:
        if (things, thing) != ("networks", NETWORK):
            raise NotFound("no such thing")
        return {"id": thing}


async def test_addresses_are_added_and_removed_below_2_44(servers: Any) -> None:
    await servers.keep(a_server(), a_server(2, locked=True), a_server(3, host=None))
    servers.context.network = OneNetwork()
    assert (await act(servers, {"addFixedIp": {"networkId": NETWORK}}, at="2.43")).status_code == 202
    assert (await act(servers, {"removeFixedIp": {"address": "10.0.0.5"}}, at="2.1")).status_code == 202
    assert servers.book.addressed == [(ID, NETWORK), (ID, "10.0.0.5")]
    for body, status in (
        ({"addFixedIp": {"networkId": "nowhere"}}, 404),
        ({"addFixedIp": {"networkId": ""}}, 400),
        ({"addFixedIp": {"networkId": NETWORK, "wings": 2}}, 400),
        ({"removeFixedIp": {"address": "10.0.0.6"}}, 400),
        ({"removeFixedIp": {"address": "x"}}, 400),
    ):
        assert (await act(servers, body, at="2.43")).status_code == status, body
    for number in (2, 3):
        path = f"/servers/{a_server(number).id}/action"
        answer = await servers.ask("POST", path, {"addFixedIp": {"networkId": NETWORK}}, at="2.43", by=MEMBER)
        assert answer.status_code == 409
    assert (await act(servers, {"removeFixedIp": {"address": "10.0.0.5"}}, at="2.44")).status_code == 404
    stranger = await act(servers, {"removeFixedIp": {"address": "10.0.0.5"}}, at="2.43", by=STRANGER)
    assert stranger.status_code == 404


class Groups:
    """A network service that knows one group."""

    async def security_groups_of(self, server: str, token: str) -> list[dict[str, Any]]:
        rule = {"id": "r", "direction": "ingress", "ethertype": "IPv4", "protocol": "tcp", "security_group_id": "g"}
        out = {**rule, "direction": "egress"}
        return [{"id": "g", "name": "default", "project_id": "p", "security_group_rules": [rule, out]}]


async def test_security_groups_are_read_from_the_ports(servers: Any) -> None:
    await servers.keep(a_server())
    servers.context.network = Groups()
    found = (await servers.get(f"{PATH}/os-security-groups", by=MEMBER)).json()["security_groups"]
    assert [(group["id"], group["name"], group["tenant_id"]) for group in found] == [("g", "default", "p")]
    rule = found[0]["rules"]
    assert [(each["from_port"], each["to_port"], each["ip_range"]) for each in rule] == [
        (1, 65535, {"cidr": "0.0.0.0/0"})
    ]
    assert (await servers.get(f"{PATH}/os-security-groups", by=STRANGER)).status_code == 404


async def test_instance_actions(servers: Any) -> None:
    await servers.keep(a_server(), a_server(2, deleted_at=5, vm_state=VmState.DELETED))
    event = ActionEvent("compute__do_build_and_run_instance", 1_000_000, 2_000_000, "Success", "host1", "fine", None)

    def write(tx: Any) -> None:
        for number, name in ((1, "create"), (2, "stop"), (3, "start")):
            at = 1_767_225_600_400_000 + number * 1_000_000  # shown as whole seconds
            cell_actions.write(
                tx, Action(ID, name, f"req-{number}", "u", MEMBER.project or "", at, at, at, None, (event,))
            )

    await servers.cell.write(write)
    path = f"{PATH}/os-instance-actions"
    rows = (await servers.get(path, at="2.1", by=MEMBER)).json()["instanceActions"]
    assert [row["action"] for row in rows] == ["start", "stop", "create"]
    assert "updated_at" not in rows[0]
    page = (await servers.get(f"{path}?limit=2", at="2.58", by=MEMBER)).json()
    assert [row["request_id"] for row in page["instanceActions"]] == ["req-3", "req-2"]
    rest = (await servers.get(page["links"][0]["href"], at="2.58", by=MEMBER)).json()
    assert [row["request_id"] for row in rest["instanceActions"]] == ["req-1"]
    assert (await servers.get(f"{path}?marker=x", at="2.58", by=MEMBER)).status_code == 400
    assert (await servers.get(f"{path}?nonsense=1", at="2.58", by=MEMBER)).status_code == 400
    changed = await servers.get(f"{path}?changes-before=2026-01-01T00:00:02Z", at="2.66", by=MEMBER)
    assert [row["action"] for row in changed.json()["instanceActions"]] == ["stop", "create"]
    one = f"{path}/req-1"
    assert "events" not in (await servers.get(one, at="2.50", by=MEMBER)).json()["instanceAction"]
    mine = (await servers.get(one, at="latest", by=MEMBER)).json()["instanceAction"]["events"][0]
    assert sorted(mine) == ["event", "finish_time", "hostId", "result", "start_time"]
    every = (await servers.get(one, at="latest", by=ADMIN)).json()["instanceAction"]["events"][0]
    assert sorted(set(every) - set(mine)) == ["details", "host", "traceback"]
    before = (await servers.get(one, at="2.61", by=ADMIN)).json()["instanceAction"]["events"][0]
    assert sorted(before) == ["event", "finish_time", "result", "start_time", "traceback"]
    assert (await servers.get(f"{path}/req-9", by=MEMBER)).status_code == 404
    gone = f"/servers/{a_server(2).id}/os-instance-actions"
    assert (await servers.get(gone, at="2.20", by=MEMBER)).status_code == 404
    assert (await servers.get(gone, at="2.21", by=MEMBER)).status_code == 200


async def test_actions_of_a_server_without_a_cell_come_from_its_operations(servers: Any) -> None:
    await servers.keep(a_server(1, cell=None, vm_state=VmState.ERROR))
    accepted = Accepted(
        OperationId("op-1"), "boot/1", ID, MEMBER.project or "", MEMBER.user, ConductorId("c1"), b"{}", b"", 0,
        request_id="req-7", created_at=1_767_225_600_000_000,
    )  # fmt: skip
    await servers.context.region.write(lambda tx: region_operations.accept(tx, [accepted]))
    rows = (await servers.get(f"{PATH}/os-instance-actions", by=MEMBER)).json()["instanceActions"]
    assert [(row["action"], row["request_id"], row["message"]) for row in rows] == [("create", "req-7", None)]
    one = (await servers.get(f"{PATH}/os-instance-actions/req-7", at="latest", by=MEMBER)).json()["instanceAction"]
    assert one["events"] == []


async def test_external_events_are_stored_before_they_are_answered(servers: Any) -> None:
    await servers.keep(a_server(), a_server(2, cell=None, vm_state=VmState.BUILDING))
    other = a_server(3).id
    plugged = {"name": "network-vif-plugged", "server_uuid": ID, "tag": "port", "status": "completed"}
    answer = await servers.ask("POST", "/os-server-external-events", {"events": [plugged]}, at="2.1", by=SERVICE)
    assert (answer.status_code, answer.json()) == (200, {"events": [{**plugged, "code": 200}]})
    kept = await servers.context.region.read(lambda tx: inbox.of_server(tx, ID))
    assert [(each.name, each.tag, each.status) for each in kept] == [("network-vif-plugged", "port", "completed")]
    assert servers.book.hinted == [(ID, "network-vif-plugged", "port")]
    mixed = [
        plugged,
        {"name": "network-changed", "server_uuid": other},
        {"name": "network-changed", "server_uuid": a_server(2).id},
        {"name": "volume-extended", "server_uuid": ID},
    ]
    answer = await servers.ask("POST", "/os-server-external-events", {"events": mixed}, at="2.51", by=SERVICE)
    assert answer.status_code == 207
    assert [event["code"] for event in answer.json()["events"]] == [200, 404, 422, 400]
    assert [event["status"] for event in answer.json()["events"]] == ["completed", "failed", "failed", "failed"]
    assert (
        await servers.ask("POST", "/os-server-external-events", {"events": [plugged]}, by=MEMBER)
    ).status_code == 403
    for name, since in (("volume-extended", 51), ("power-update", 76), ("accelerator-request-bound", 82)):
        body = {"events": [{"name": name, "server_uuid": ID, "tag": "x"}]}
        for minor, status in ((since - 1, 400), (since, 200)):
            answer = await servers.ask("POST", "/os-server-external-events", body, at=f"2.{minor}", by=SERVICE)
            assert answer.status_code == status, (name, minor)


@pytest.mark.parametrize(
    "body",
    [
        {"events": []},
        {"events": [{"name": "network-changed", "server_uuid": ID, "tag": None}]},
        {"events": [{"name": "network-changed", "server_uuid": ID, "tag": "x" * 256}]},
        {"events": [{"name": "network-changed", "server_uuid": ID, "status": None}]},
    ],
)
async def test_malformed_external_events_are_refused(servers: Any, body: dict[str, Any]) -> None:
    await servers.keep(a_server())
    answer = await servers.ask("POST", "/os-server-external-events", body, by=SERVICE)
    assert answer.status_code == 400


async def test_operations_and_explain(servers: Any) -> None:
    await servers.keep(a_server())
    accepted = Accepted(
        OperationId("op-1"), "boot/1", ID, MEMBER.project or "", MEMBER.user, ConductorId("c1"), b"{}", b"", 0,
        created_at=1_767_225_600_000_000,
    )  # fmt: skip
    await servers.context.region.write(lambda tx: region_operations.accept(tx, [accepted]))
    mine = (await servers.get("/ext/operations", by=MEMBER)).json()["operations"]
    assert [(row["id"], row["name"], row["status"]) for row in mine] == [("op-1", "boot", "open")]
    assert "owner" not in mine[0]
    assert (await servers.get("/ext/operations", by=STRANGER)).json() == {"operations": []}
    every = (await servers.get("/ext/operations?all_projects=1&status=open", by=ADMIN)).json()["operations"]
    assert every[0]["owner"] == "c1"
    assert (await servers.get("/ext/operations?all_projects=1", by=MEMBER)).status_code == 403
    assert (await servers.get("/ext/operations?status=odd", by=MEMBER)).status_code == 400
    assert (await servers.get("/ext/operations/op-1", by=STRANGER)).status_code == 404
    assert (await servers.get("/ext/operations/op-1", by=ADMIN)).json()["operation"]["lines"] == []
    answer = (await servers.get(f"/ext{PATH}/explain", by=MEMBER)).json()["explain"]
    assert (answer["server"], [each["name"] for each in answer["operations"]]) == (ID, ["boot"])
    assert (await servers.get(f"/ext{PATH}/explain", by=STRANGER)).status_code == 404
