"""The action `rebuild`: fields that each version accepts and shows, states, and permissions."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from moorage.api.route_table import TABLE
from moorage.model.server import TaskState, VmState
from moorage_testing.compute_app import ADMIN, MEMBER, READER, STRANGER
from moorage_testing.fake_server_service import a_server

IMAGE = "11111111-2222-4333-8444-555555555555"
ID = a_server().id


async def act(servers: Any, at: str = "latest", by: Any = MEMBER, number: int = 1, **fields: Any) -> Any:
    body = {"rebuild": {"imageRef": IMAGE, **fields}}
    return await servers.ask("POST", f"/servers/{a_server(number).id}/action", body, at=at, by=by)


async def test_the_answer_shows_the_server_after_the_rebuild(servers: Any) -> None:
    await servers.keep(a_server())
    answer = await act(servers, name="anew", metadata={"a": "b"}, adminPass="hush")
    assert answer.status_code == 202, answer.text
    assert answer.headers["location"].endswith(f"/servers/{ID}")
    shown = answer.json()["server"]
    assert (shown["name"], shown["metadata"], shown["adminPass"]) == ("anew", {"a": "b"}, "hush")
    assert (shown["status"], shown["OS-EXT-STS:task_state"], shown["progress"]) == ("REBUILD", "rebuilding", 0)
    assert shown["image"]["id"] == IMAGE
    ((asked, request),) = servers.book.rebuilt
    assert (asked, request.image, request.admin_password) == (ID, IMAGE, "hush")
    assert request.description is msgspec.UNSET
    assert request.user_data is msgspec.UNSET


FIELDS = {
    "2.1": {"accessIPv4", "accessIPv6", "addresses", "adminPass", "created", "flavor", "hostId", "id", "image", "links",
            "metadata", "name", "OS-DCF:diskConfig", "progress", "status", "tenant_id", "updated", "user_id"},
    "2.9": {"locked"},
    "2.19": {"description"},
    "2.26": {"tags"},
    "2.54": {"key_name"},
    "2.57": {"user_data"},
    "2.63": {"trusted_image_certificates"},
    "2.71": {"server_groups"},
    "2.73": {"locked_reason"},
    "2.75": {"OS-EXT-AZ:availability_zone", "config_drive", "OS-SRV-USG:launched_at", "OS-SRV-USG:terminated_at",
             "OS-EXT-STS:task_state", "OS-EXT-STS:vm_state", "OS-EXT-STS:power_state", "security_groups",
             "os-extended-volumes:volumes_attached"},
    "2.90": {"OS-EXT-SRV-ATTR:hostname"},
    "2.96": {"pinned_availability_zone"},
    "2.100": {"scheduler_hints"},
}  # fmt: skip
"""What is shown to members first at each version (Nova's response schemas of `rebuild`)."""


async def test_shown_fields_of_rebuild_by_version(servers: Any) -> None:
    await servers.keep(a_server())
    known: set[str] = set()
    for version, new in FIELDS.items():
        if known:
            before = f"2.{int(version[2:]) - 1}"
            assert set((await act(servers, at=before)).json()["server"]) == known
        known |= new
        assert set((await act(servers, at=version)).json()["server"]) == known, version
    address = (await act(servers, at="2.74")).json()["server"]["addresses"]["private"][0]
    assert set(address) == {"version", "addr"}
    assert "original_name" in (await act(servers, at="2.47")).json()["server"]["flavor"]
    assert "id" in (await act(servers, at="2.46")).json()["server"]["flavor"]
    admins = set((await act(servers, by=ADMIN)).json()["server"])
    assert {"OS-EXT-SRV-ATTR:host", "host_status", "user_data"} <= admins
    assert "OS-EXT-SRV-ATTR:user_data" not in admins


TAKEN = [
    ("description", "words", "2.18", "2.19"),
    ("key_name", None, "2.53", "2.54"),
    ("user_data", "aGVsbG8=", "2.56", "2.57"),
    ("user_data", None, "2.56", "2.57"),
    ("trusted_image_certificates", ["c"], "2.62", "2.63"),
    ("trusted_image_certificates", None, "2.62", "2.63"),
    ("hostname", "web", "2.89", "2.90"),
    ("hostname", "web.example.org", "2.93", "2.94"),
]


@pytest.mark.parametrize(("field", "value", "before", "since"), TAKEN)
async def test_accepted_fields_of_rebuild_by_version(
    servers: Any, field: str, value: Any, before: str, since: str
) -> None:
    await servers.keep(a_server())
    assert (await act(servers, at=before, **{field: value})).status_code == 400
    answer = await act(servers, at=since, **{field: value})
    assert answer.status_code == 202, answer.text


async def test_files_below_2_57(servers: Any) -> None:
    await servers.keep(a_server())
    files = [{"path": "/etc/motd", "contents": "aGVsbG8="}]
    assert (await act(servers, at="2.56", personality=files)).status_code == 202
    assert servers.book.rebuilt[0][1].files[0].path == "/etc/motd"
    assert (await act(servers, at="2.57", personality=files)).status_code == 400


REFUSED = [
    {"imageRef": "not-a-uuid"},
    {"imageRef": None},
    {"name": ""},
    {"metadata": {"k" * 256: "v"}},
    {"user_data": "not base64!"},
    {"OS-DCF:diskConfig": "SOME"},
    {"accessIPv4": "::1"},
    {"preserve_ephemeral": "perhaps"},
    {"trusted_image_certificates": []},
    {"flavorRef": "1"},
]


@pytest.mark.parametrize("fields", REFUSED)
async def test_bodies_that_are_refused(servers: Any, fields: Any) -> None:
    await servers.keep(a_server())
    assert (await act(servers, **fields)).status_code == 400
    assert not servers.book.rebuilt


async def test_states_and_rights(servers: Any) -> None:
    await servers.keep(
        a_server(1),
        a_server(2, vm_state=VmState.PAUSED),
        a_server(3, locked=True),
        a_server(4, task_state=TaskState.POWERING_OFF),
        a_server(5, vm_state=VmState.STOPPED),
        a_server(6, vm_state=VmState.ERROR),
        a_server(7, vm_state=VmState.ERROR, launched_at=None),
        a_server(8, vm_state=VmState.SHELVED_OFFLOADED),
    )
    for number in (1, 5, 6):
        assert (await act(servers, number=number)).status_code == 202
    for number in (2, 3, 4, 7, 8):
        assert (await act(servers, number=number)).status_code == 409
    assert (await act(servers, by=READER)).status_code == 403
    assert (await act(servers, by=STRANGER)).status_code == 404
    assert (await act(servers, metadata={str(each): "v" for each in range(200)})).status_code == 403


async def test_no_password_is_returned_when_disabled(servers: Any) -> None:
    await servers.keep(a_server())
    assert (await act(servers)).json()["server"]["adminPass"]
    servers.context.config = replace(servers.context.config, enable_instance_password=False)
    assert "adminPass" not in (await act(servers)).json()["server"]


def test_the_other_name_of_servers_has_rebuild_too() -> None:
    assert "POST /os-volumes_boot/{id}/action:rebuild" in {route.key for route in TABLE}
