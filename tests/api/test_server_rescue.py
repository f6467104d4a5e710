"""The actions `rescue` and `unrescue`: bodies, states, permissions, and the password in the answer."""

from dataclasses import replace
from typing import Any

import pytest

from moorage.model.server import TaskState, VmState
from moorage_testing.compute_app import MEMBER, READER, STRANGER
from moorage_testing.fake_server_service import a_server

IMAGE = "11111111-2222-4333-8444-555555555555"
ID = a_server().id


async def act(servers: Any, body: Any, by: Any = MEMBER, number: int = 1, at: str = "latest") -> Any:
    return await servers.ask("POST", f"/servers/{a_server(number).id}/action", body, at=at, by=by)


async def test_rescue_answers_a_password(servers: Any) -> None:
    await servers.keep(a_server())
    answer = await act(servers, {"rescue": {"adminPass": "hush", "rescue_image_ref": IMAGE}}, at="2.1")
    assert (answer.status_code, answer.json()) == (200, {"adminPass": "hush"})
    answer = await act(servers, {"rescue": None})
    assert len(answer.json()["adminPass"]) == 12
    servers.context.config = replace(servers.context.config, enable_instance_password=False)
    assert (await act(servers, {"rescue": {}})).json() == {}
    assert servers.book.rescued == [(ID, IMAGE), (ID, None), (ID, None)]


@pytest.mark.parametrize(
    "body", [{"rescue": {"rescue_image_ref": "x"}}, {"rescue": {"odd": 1}}, {"rescue": "yes"}, {"rescue": []}]
)
async def test_bodies_that_are_refused(servers: Any, body: Any) -> None:
    await servers.keep(a_server())
    assert (await act(servers, body)).status_code == 400


STATES = {
    VmState.ACTIVE: (200, 409),
    VmState.STOPPED: (200, 409),
    VmState.ERROR: (200, 409),
    VmState.RESCUED: (409, 202),
}


@pytest.mark.parametrize("state", [each for each in VmState if each is not VmState.DELETED])
async def test_states(servers: Any, state: VmState) -> None:
    await servers.keep(
        a_server(1, vm_state=state),
        a_server(2, vm_state=state, locked=True),
        a_server(3, vm_state=state, task_state=TaskState.POWERING_OFF),
    )
    for body, wanted in zip(({"rescue": None}, {"unrescue": None}), STATES.get(state, (409, 409)), strict=True):
        assert (await act(servers, body)).status_code == wanted
        assert (await act(servers, body, number=2)).status_code == 409
        assert (await act(servers, body, number=3)).status_code == 409
        assert (await act(servers, body, by=READER)).status_code == 403
        assert (await act(servers, body, by=STRANGER)).status_code == 404
    if state is VmState.RESCUED:
        assert (await servers.shown())["status"] == "RESCUE"
        assert await servers.names("?status=RESCUE") == ["web1", "web2", "web3"][::-1]
