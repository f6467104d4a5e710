"""`/servers/{id}/shares` (2.97): no server has any, and none can be attached; refused in the order of Nova's refusals."""

from typing import Any

import pytest

from moorage.model.server import VmState
from moorage_testing.compute_app import MEMBER, READER, STRANGER
from moorage_testing.fake_server_service import a_server

SHARE = "e8debdc0-447a-4376-a10a-4cd9122d7986"
PATH = f"/servers/{a_server().id}/shares"
NEW = {"share": {"share_id": SHARE, "tag": "data"}}


async def test_shares_are_empty(servers: Any) -> None:
    await servers.keep(a_server())
    assert (await servers.get(PATH, by=READER, at="latest")).json() == {"shares": []}
    one = await servers.get(f"{PATH}/{SHARE}", by=READER, at="latest")
    assert (one.status_code, one.json()["itemNotFound"]["message"]) == (404, f"Share {SHARE} could not be found.")
    for path in (PATH, f"{PATH}/{SHARE}"):
        assert (await servers.get(path, by=STRANGER, at="latest")).status_code == 404
        assert (await servers.get(path, at="2.96")).status_code == 404
        assert (await servers.get(f"{path}?odd=1", at="latest")).status_code == 400
    assert (await servers.get(PATH.replace(a_server().id, a_server(9).id), at="latest")).status_code == 404


@pytest.mark.parametrize("state", [VmState.ACTIVE, VmState.STOPPED, VmState.ERROR])
async def test_none_is_attached_or_detached(servers: Any, state: VmState) -> None:
    await servers.keep(a_server(vm_state=state))
    made = await servers.ask("POST", PATH, NEW, by=MEMBER, at="latest")
    assert made.status_code == 409
    why = (
        "Feature not supported because"
        if state is VmState.STOPPED
        else f"Cannot 'create share' instance {a_server().id} while"
    )
    assert made.json()["conflictingRequest"]["message"].startswith(why)
    gone = await servers.ask("DELETE", f"{PATH}/{SHARE}", by=MEMBER, at="latest")
    assert gone.status_code == (409 if state is VmState.ACTIVE else 404)
    assert (await servers.ask("POST", PATH, NEW, by=READER, at="latest")).status_code == 403
    assert (await servers.ask("DELETE", f"{PATH}/{SHARE}", by=READER, at="latest")).status_code == 403


@pytest.mark.parametrize(
    "body",
    [None, {}, {"share": {}}, {"share": {"share_id": "x"}}, {"share": {"share_id": SHARE, "tag": ""}},
     {"share": {"share_id": SHARE, "tag": "a b"}}, {"share": {"share_id": SHARE, "odd": 1}}],
)  # fmt: skip
async def test_bodies_that_are_refused(servers: Any, body: Any) -> None:
    await servers.keep(a_server(vm_state=VmState.STOPPED))
    assert (await servers.ask("POST", PATH, body, by=MEMBER, at="latest")).status_code == 400
