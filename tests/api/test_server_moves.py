"""`resize`, `migrate`, `confirmResize` and `revertResize`: who may, from which states, and what each version may say."""

from typing import Any

import msgspec
import pytest
from test_server_actions import ID, act

from moorage.model.server import Moved, Server, TaskState, VmState
from moorage.operations.resize_request import ResizeWish
from moorage.testing.frontdesk import ADMIN, MEMBER, READER, STRANGER
from moorage.testing.servers import a_server

RESIZE = {"resize": {"flavorRef": "2"}}


def moved(number: int = 1, **more: Any) -> Server:
    server = a_server(number, vm_state=VmState.RESIZED, **more)
    return msgspec.structs.replace(server, moved=Moved(1, "m", VmState.ACTIVE, server.flavor, "host9"))


async def test_a_resize_names_a_flavor(servers: Any) -> None:
    await servers.keep(a_server(), a_server(2, vm_state=VmState.PAUSED), a_server(3, locked=True))
    asked = {"resize": {"flavorRef": "http://cloud/flavors/2", "OS-DCF:diskConfig": "AUTO"}}
    assert (await act(servers, asked)).status_code == 202
    assert (await act(servers, {"resize": {"flavorRef": 3}}, at="2.1", by=ADMIN)).status_code == 202
    wishes = [wish for _, wish in servers.book.moved]
    assert wishes == [ResizeWish("2", None, "AUTO"), ResizeWish("3", sees_all_flavors=True)]
    assert (await act(servers, RESIZE, number=2)).status_code == 409
    assert (await act(servers, RESIZE, number=3)).status_code == 409
    assert (await act(servers, RESIZE, by=READER)).status_code == 403
    assert (await act(servers, RESIZE, by=STRANGER)).status_code == 404
    for wrong in ({}, {"flavorRef": ""}, {"flavorRef": "2", "odd": 1}, {"flavorRef": "2", "OS-DCF:diskConfig": "X"}):
        assert (await act(servers, {"resize": wrong})).status_code == 400, wrong


async def test_a_migration_may_name_a_host_since_2_56(servers: Any) -> None:
    await servers.keep(a_server(), a_server(2, task_state=TaskState.RESIZE_PREP))
    manager = msgspec.structs.replace(MEMBER, roles=("manager", "member", "reader"))
    to = {"migrate": {"host": "host2"}}
    for by, body, at, status in (
        (ADMIN, {"migrate": None}, "2.1", 202),
        (ADMIN, to, "2.55", 202),
        (ADMIN, to, "2.56", 202),
        (manager, {"migrate": None}, "2.56", 202),
        (manager, to, "2.56", 403),
        (MEMBER, {"migrate": None}, "2.56", 403),
        (ADMIN, {"migrate": {"host": "a host"}}, "2.56", 400),
        (ADMIN, {"migrate": {"odd": 1}}, "2.56", 400),
    ):
        assert (await act(servers, body, at=at, by=by)).status_code == status, (body, at)
    assert [wish.host for _, wish in servers.book.moved] == [None, None, "host2", None]
    assert (await act(servers, {"migrate": None}, by=ADMIN, number=2)).status_code == 409


@pytest.mark.parametrize(("action", "status"), [("confirmResize", 204), ("revertResize", 202)])
async def test_what_was_resized_is_confirmed_or_reverted(servers: Any, action: str, status: int) -> None:
    await servers.keep(moved(), a_server(2), moved(3, locked=True), a_server(4, vm_state=VmState.RESIZED))
    for number, code in ((1, status), (2, 409), (3, 409), (4, 400)):
        answer = await act(servers, {action: None}, number=number)
        assert answer.status_code == code, number
    assert answer.json()["badRequest"]["message"] == "Instance has not been resized."
    assert (await act(servers, {action: None}, by=READER)).status_code == 403
    assert (servers.book.confirmed if action == "confirmResize" else servers.book.reverted) == [ID]


@pytest.mark.parametrize(
    ("state", "task", "status"),
    [
        (VmState.ACTIVE, TaskState.RESIZE_PREP, "RESIZE"),
        (VmState.STOPPED, TaskState.RESIZE_MIGRATING, "RESIZE"),
        (VmState.RESIZED, None, "VERIFY_RESIZE"),
        (VmState.RESIZED, TaskState.RESIZE_REVERTING, "REVERT_RESIZE"),
    ],
)
async def test_a_move_shows(servers: Any, state: VmState, task: TaskState | None, status: str) -> None:
    await servers.keep(a_server(vm_state=state, task_state=task))
    assert (await servers.shown())["status"] == status


async def test_a_server_that_was_moved_is_reset_to_verify_resize(servers: Any) -> None:
    """What its old host keeps is ended by a confirm or a revert, and by nothing else."""
    await servers.keep(moved(1))
    for state, status in (("error", "ERROR"), ("active", "VERIFY_RESIZE")):
        assert (await act(servers, {"os-resetState": {"state": state}}, by=ADMIN)).status_code == 202
        assert (await servers.shown())["status"] == status
    assert (await act(servers, {"revertResize": None})).status_code == 202
