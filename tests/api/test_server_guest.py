"""Calls to a running guest: password, crash dump, diagnostics, topology; files below 2.57; `adminPass` and disk config."""

import base64
from dataclasses import replace
from typing import Any

import pytest

from moorage.model.errors import HostFailed
from moorage.model.ids import ImageId
from moorage.model.server import BlockDevice, Shelved, TaskState, VmState
from moorage.operations.volumes.assisted_snapshot import SnapshotWish
from moorage_testing.compute_app import ADMIN, MEMBER, READER, STRANGER
from moorage_testing.fake_server_service import a_server

ID = a_server().id
ACTION = f"/servers/{ID}/action"


async def act(servers: Any, body: Any, at: str = "latest", by: Any = MEMBER, number: int = 1) -> Any:
    return await servers.ask("POST", f"/servers/{a_server(number).id}/action", body, at=at, by=by)


async def test_a_password_is_set_before_the_answer(servers: Any) -> None:
    await servers.keep(a_server(), a_server(2, vm_state=VmState.STOPPED), a_server(3, locked=True))
    body = {"changePassword": {"adminPass": "hush"}}
    answer = await act(servers, body, at="2.1")
    assert (answer.status_code, answer.content) == (202, b"")
    assert servers.book.passwords == [(ID, "hush")]
    assert (await act(servers, body, number=2)).status_code == 409
    assert (await act(servers, body, number=3)).status_code == 409
    assert (await act(servers, body, by=READER)).status_code == 403
    assert (await act(servers, body, by=STRANGER)).status_code == 404
    assert (await act(servers, {"changePassword": {}})).status_code == 400
    assert (await act(servers, {"changePassword": {"adminPass": 5}})).status_code == 400
    servers.book.host_says = HostFailed("the guest has no agent", code="no_guest_agent")
    refused = await act(servers, body)
    assert refused.status_code == 409
    assert refused.json()["conflictingRequest"]["message"].endswith("the guest has no agent.")
    servers.book.host_says = HostFailed("x", code="not_supported")
    assert "no way to do that" in (await act(servers, body)).text


async def test_a_crash_dump(servers: Any) -> None:
    await servers.keep(
        a_server(),
        a_server(2, vm_state=VmState.STOPPED),
        a_server(3, locked=True),
        a_server(4, task_state=TaskState.PAUSING),
        a_server(5, vm_state=VmState.ERROR),
    )
    body = {"trigger_crash_dump": None}
    assert (await act(servers, body, at="2.16")).status_code == 404
    assert (await act(servers, body, at="2.17")).status_code == 202
    assert (await act(servers, body, number=5)).status_code == 202
    assert servers.book.dumped == [ID, a_server(5).id]
    for number in (2, 3, 4):
        assert (await act(servers, body, number=number)).status_code == 409


async def test_diagnostics_in_both_forms(servers: Any) -> None:
    await servers.keep(a_server(), a_server(2, host=None))
    path = f"/servers/{ID}/diagnostics"
    free = (await servers.get(path, by=ADMIN, at="2.47")).json()
    assert free == {
        "cpu0_time": 17_300_000_000,
        "memory": 524_288,
        "vda_errors": 1,
        "vda_read": 262_144,
        "vda_read_req": 112,
        "vda_write": 5_778_432,
        "vda_write_req": 488,
        "vnet0_rx": 2_070_139,
        "vnet0_rx_drop": 200,
        "vnet0_rx_errors": 100,
        "vnet0_rx_packets": 26_701,
        "vnet0_tx": 140_208,
        "vnet0_tx_drop": 500,
        "vnet0_tx_errors": 400,
        "vnet0_tx_packets": 662,
    }
    fixed = (await servers.get(path, by=ADMIN, at="2.48")).json()
    assert fixed["memory_details"] == {"maximum": 512, "used": 128}
    assert (fixed["num_cpus"], fixed["num_nics"], fixed["num_disks"]) == (1, 1, 1)
    assert (fixed["state"], fixed["uptime"], fixed["config_drive"]) == ("running", 46664, True)
    assert set(fixed["nic_details"][0]) == {
        "mac_address",
        *(f"{way}_{what}" for way in ("rx", "tx") for what in ("octets", "errors", "drop", "packets", "rate")),
    }
    assert (await servers.get(path, by=MEMBER, at="2.48")).status_code == 403
    assert (await servers.get(f"/servers/{a_server(2).id}/diagnostics", by=ADMIN)).status_code == 409
    servers.book.host_says = HostFailed("the guest is not running", code="guest_not_running")
    assert (await servers.get(path, by=ADMIN)).status_code == 409
    servers.book.host_says = HostFailed("x", code="not_supported")
    assert (await servers.get(path, by=ADMIN)).status_code == 501


async def test_topology(servers: Any) -> None:
    two = {"hw:numa_nodes": "2", "hw:numa_cpus.0": "0", "hw:numa_cpus.1": "1-3", "hw:numa_mem.0": "200"}
    flavor = a_server().flavor
    await servers.keep(
        a_server(1, flavor=replace_flavor(flavor, {**two, "hw:mem_page_size": "large"}, vcpus=4)),
        a_server(2, flavor=replace_flavor(flavor, {})),
    )
    path = f"/servers/{ID}/topology"
    assert (await servers.get(path, by=MEMBER, at="2.77")).status_code == 404
    for by, version in ((MEMBER, "2.78"), (ADMIN, "latest")):  # no driver makes them, whatever its flavor says
        assert (await servers.get(path, by=by, at=version)).json() == {"nodes": [], "pagesize_kb": None}
    none = await servers.get(f"/servers/{a_server(2).id}/topology", by=MEMBER, at="latest")
    assert none.json() == {"nodes": [], "pagesize_kb": None}


def replace_flavor(flavor: Any, specs: dict[str, str], **changes: Any) -> Any:
    import msgspec

    return msgspec.structs.replace(flavor, extra_specs=specs, **changes)


CONTENTS = base64.b64encode(b"hello").decode()


async def test_files_are_put_into_guests_below_2_57(servers: Any) -> None:
    made = await servers.make("2.56", personality=[{"path": "/etc/motd", "contents": CONTENTS}])
    assert made.status_code == 202, made.text
    ((request, _),) = servers.book.booted
    assert [(each.path, each.contents) for each in request.files] == [("/etc/motd", CONTENTS)]
    assert (await servers.make("2.57", personality=[])).status_code == 400


@pytest.mark.parametrize(
    ("files", "status"),
    [
        ([{"path": "/a", "contents": "not base64!"}], 400),
        ([{"path": "/a"}], 400),
        ([{"path": "/a", "contents": CONTENTS, "mode": "0644"}], 400),
        ([{"path": "/a", "contents": CONTENTS}] * 6, 403),
        ([{"path": "/a", "contents": "A" * 12_000}], 403),
    ],
)
async def test_files_that_are_refused(servers: Any, files: Any, status: int) -> None:
    assert (await servers.make("2.56", personality=files)).status_code == status
    assert not servers.book.booted


async def test_answers_contain_no_password_when_disabled(servers: Any) -> None:
    given = (await servers.make(adminPass="mine")).json()["server"]
    assert given["adminPass"] == "mine"
    assert (await servers.make()).json()["server"]["adminPass"]
    servers.context.config = replace(servers.context.config, enable_instance_password=False)
    assert "adminPass" not in (await servers.make(adminPass="mine")).json()["server"]


async def test_disk_config_is_shown_and_changed(servers: Any) -> None:
    await servers.keep(a_server())
    assert (await servers.shown())["OS-DCF:diskConfig"] == "MANUAL"
    path, body = f"/servers/{ID}", {"server": {"OS-DCF:diskConfig": "AUTO"}}
    assert (await servers.ask("PUT", path, body, by=MEMBER)).json()["server"]["OS-DCF:diskConfig"] == "AUTO"
    wrong = {"server": {"OS-DCF:diskConfig": "SOME"}}
    assert (await servers.ask("PUT", path, wrong, by=MEMBER)).status_code == 400


@pytest.mark.parametrize("state", [each for each in VmState if each is not VmState.DELETED])
@pytest.mark.parametrize("wanted", ["active", "error"])
async def test_states_can_be_reset_from_every_state(servers: Any, state: VmState, wanted: str) -> None:
    await servers.keep(a_server(vm_state=state, task_state=TaskState.DELETING))
    answer = await act(servers, {"os-resetState": {"state": wanted}}, by=ADMIN)
    assert answer.status_code == 202, answer.text
    shown = await servers.shown(by=ADMIN)
    assert (shown["OS-EXT-STS:vm_state"], shown["OS-EXT-STS:task_state"]) == (wanted, None)


@pytest.mark.parametrize(("host", "shown_as"), [("host1", "shelved"), (None, "shelved_offloaded")])
async def test_a_shelved_server_is_reset_to_shelved(servers: Any, host: str | None, shown_as: str) -> None:
    """Its disk is an image, and only an unshelve makes it a guest again: also after it was reset to an error."""
    image = Shelved(at=1, image=ImageId("1" * 32), host="host1")
    await servers.keep(a_server(vm_state=VmState.SHELVED, shelved=image, host=host))
    for wanted, shown in (("active", shown_as), ("error", "error"), ("active", shown_as)):
        assert (await act(servers, {"os-resetState": {"state": wanted}}, by=ADMIN)).status_code == 202
        assert (await servers.shown(by=ADMIN))["OS-EXT-STS:vm_state"] == shown


SERVICE = ADMIN.__class__("s" * 32, project="9" * 32, roles=("service",))
VOLUME = "7d2f3f3e-4d6f-4a07-9dd1-3f1e8f7a2f60"
OTHER = "8e2f3f3e-4d6f-4a07-9dd1-3f1e8f7a2f61"
INFO = {"snapshot_id": "s-1", "type": "qcow2", "new_file": "volume.s-1"}


async def test_assisted_snapshots(servers: Any) -> None:
    device = BlockDevice("volume", "volume", uuid=VOLUME, volume=VOLUME)
    await servers.keep(a_server(block_devices=(device,)), a_server(2))
    path = "/os-assisted-volume-snapshots"

    async def ask(volume: str, by: Any = SERVICE, **info: Any) -> int:
        body = {"snapshot": {"volume_id": volume, "create_info": {**INFO, **info}}}
        return int((await servers.ask("POST", path, body, by=by)).status_code)

    assert await ask("another") == 400
    assert await ask(VOLUME) == 200
    assert await ask(VOLUME, by=MEMBER) == 403
    assert await ask(VOLUME, type="raw") == 400
    gone = f"{path}/s-1?delete_info="

    async def drop(info: str) -> int:
        return int((await servers.ask("DELETE", gone + info, by=SERVICE)).status_code)

    assert await drop('{"volume_id": "another"}') == 400
    assert await drop(f'{{"volume_id": "{VOLUME}"}}') == 204
    merge = f'{{"volume_id": "{VOLUME}", "type": "qcow2", "file_to_merge": "a", "merge_target_file": "b"}}'
    assert await drop(merge) == 204
    wishes = [wish for _, wish in servers.context.operations.assisted]
    assert wishes == [
        SnapshotWish(VOLUME, "s-1", new_file="volume.s-1"),
        SnapshotWish(VOLUME, "s-1", drop=True),
        SnapshotWish(VOLUME, "s-1", drop=True, merge_file="a", merge_target="b"),
    ]
    for wrong in ("x", "[]", "{}", f'{{"volume_id": "{VOLUME}", "file_to_merge": 1}}'):
        assert await drop(wrong) == 400, wrong
    assert (await servers.ask("DELETE", f"{path}/s-1", by=SERVICE)).status_code == 400


@pytest.mark.parametrize(
    ("state", "task", "takes", "merges"),
    [
        (VmState.STOPPED, None, 200, 400),
        (VmState.ACTIVE, TaskState.REBOOTING, 400, 400),
        (VmState.ACTIVE, None, 200, 204),
    ],
)
async def test_a_snapshot_for_the_volume_service_by_state(
    servers: Any, state: VmState, task: TaskState | None, takes: int, merges: int
) -> None:
    device = BlockDevice("volume", "volume", uuid=VOLUME, volume=VOLUME)
    await servers.keep(a_server(block_devices=(device,), vm_state=state, task_state=task))
    path, body = "/os-assisted-volume-snapshots", {"snapshot": {"volume_id": VOLUME, "create_info": INFO}}
    assert (await servers.ask("POST", path, body, by=SERVICE)).status_code == takes
    merge = f'{{"volume_id": "{VOLUME}", "file_to_merge": "a", "merge_target_file": "b"}}'
    assert (await servers.ask("DELETE", f"{path}/s-1?delete_info={merge}", by=SERVICE)).status_code == merges


async def test_the_body_of_an_assisted_snapshot(servers: Any) -> None:
    await servers.keep(a_server(block_devices=(BlockDevice("volume", "volume", uuid=VOLUME, volume=VOLUME),)))
    for more, named in (({}, None), ({"id": OTHER}, OTHER)):
        body = {"snapshot": {"volume_id": VOLUME, "create_info": {**INFO, **more}}}
        answer = await servers.ask("POST", "/os-assisted-volume-snapshots", body, by=SERVICE)
        assert answer.json() == {"snapshot": {"id": named, "volumeId": VOLUME}}
