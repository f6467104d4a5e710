"""`evacuate`: permissions, states, and the fields of each version."""

from typing import Any

import msgspec
import pytest
from tests.api.test_server_actions import ID, act

from moorage.model.server import Moved, TaskState, VmState
from moorage_testing.compute_app import ADMIN, MEMBER, READER
from moorage_testing.fake_server_service import a_server


async def test_fields_of_evacuate_by_version(servers: Any) -> None:
    await servers.keep(a_server())
    for at, asked, status in (
        ("2.1", {"onSharedStorage": "False"}, 200),
        ("2.13", {"onSharedStorage": True}, 200),
        ("2.13", {"onSharedStorage": True, "adminPass": "x"}, 400),
        ("2.13", {}, 400),
        ("2.13", {"onSharedStorage": "perhaps"}, 400),
        ("2.14", {"onSharedStorage": False}, 400),
        ("2.14", {}, 200),
        ("2.28", {"host": "host2", "force": True}, 400),
        ("2.29", {"host": "host2", "force": "true"}, 200),
        ("2.29", {"force": True}, 400),
        ("2.67", {"host": "host2", "force": False}, 200),
        ("2.68", {"host": "host2", "force": False}, 400),
        ("2.94", {"adminPass": "secret"}, 200),
        ("2.95", {"host": "host2"}, 200),
        ("2.95", {"host": "a host"}, 400),
        ("2.95", {"host": None}, 400),
        ("2.95", {"adminPass": None}, 400),
        ("2.95", {"odd": 1}, 400),
    ):
        answer = await act(servers, {"evacuate": asked}, at=at, by=ADMIN)
        assert answer.status_code == status, (at, asked, answer.text)
        if status == 200 and at in ("2.1", "2.13"):
            shown = answer.json()["adminPass"]
            assert (shown is None) is (asked["onSharedStorage"] is True)
        elif status == 200:
            assert answer.content == b""
    assert (await act(servers, {"evacuate": None}, by=ADMIN)).status_code == 400
    wishes = [wish for _, wish in servers.book.evacuated]
    assert [wish.host for wish in wishes] == [None, None, None, "host2", "host2", None, "host2"]
    assert [wish.stopped for wish in wishes] == [False] * 6 + [True]
    assert [wish.shared_storage for wish in wishes] == [False, True] + [False] * 5
    assert wishes[5].password == "secret"
    assert wishes[1].password == ""
    assert all(wish.password for wish in wishes[2:])


@pytest.mark.parametrize(
    ("state", "task", "status"),
    [
        (VmState.ACTIVE, None, 200),
        (VmState.STOPPED, None, 200),
        (VmState.ERROR, None, 200),
        (VmState.PAUSED, None, 409),
        (VmState.RESCUED, None, 409),
        (VmState.RESIZED, None, 409),
        (VmState.SHELVED_OFFLOADED, None, 409),
        (VmState.ACTIVE, TaskState.POWERING_OFF, 409),
    ],
)
async def test_states_from_which_a_server_is_evacuated(
    servers: Any, state: VmState, task: TaskState | None, status: int
) -> None:
    await servers.keep(a_server(vm_state=state, task_state=task, locked=True))
    assert (await act(servers, {"evacuate": {}}, by=ADMIN)).status_code == status
    assert [each for each, _ in servers.book.evacuated] == ([ID] if status == 200 else [])


async def test_only_administrators_evacuate(servers: Any) -> None:
    server = a_server(3, vm_state=VmState.ERROR)
    moved = msgspec.structs.replace(server, moved=Moved(1, "m", VmState.ACTIVE, server.flavor, "host9"))
    await servers.keep(a_server(), moved)
    for by in (MEMBER, READER):
        assert (await act(servers, {"evacuate": {}}, by=by)).status_code == 403
    assert (await act(servers, {"evacuate": {}}, by=ADMIN, number=2)).status_code == 404
    assert (await act(servers, {"evacuate": {}}, by=ADMIN, number=3)).status_code == 409
    assert servers.book.evacuated == []


async def test_a_server_in_error_that_is_on_no_host_is_not_evacuated(servers: Any) -> None:
    """One that left its host, shelved, and was reset to `error`."""
    await servers.keep(a_server(vm_state=VmState.ERROR, host=None, node=None))
    assert (await act(servers, {"evacuate": {}}, by=ADMIN)).status_code == 409
    assert servers.book.evacuated == []
