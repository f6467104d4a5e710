"""Operators approve hosts, list those that wait, and withdraw approvals."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from moorage.main.bus import make_key
from moorage.model.ids import CellId
from moorage.store.region import host_approvals
from moorage_testing.compute_app import ADMIN, MEMBER, ApiClient, cells_in, compute_api

PATH = "/ext/host-approvals"


@pytest.fixture
async def cloud(tmp_path: Path) -> AsyncIterator[ApiClient]:
    async with cells_in(tmp_path, "cell1", "cell2") as cells, compute_api(tmp_path, cells=cells) as client:
        yield client


async def test_a_host_that_waits_is_approved_and_revoked(cloud: ApiClient, tmp_path: Path) -> None:
    await cloud.context.region.write(
        lambda tx: host_approvals.record_waiting(tx, {"n1.example.org": CellId("cell2")}, 7)
    )
    (row,) = (await cloud.get(PATH)).json()["host_approvals"]
    assert (row["host"], row["cell"], row["status"], row["approved_at"]) == ("n1.example.org", "cell2", "waiting", None)
    assert row["heard_at"].startswith("1970-01-01T00:00:00")
    key = make_key(tmp_path / "nk")
    reply = await cloud.ask("PUT", f"{PATH}/n1.example.org", {"approval": {"key": key}})
    assert reply.status_code == 200, reply.text
    row = reply.json()["host_approval"]
    assert (row["status"], row["cell"], row["key"], row["approved_by"]) == ("approved", "cell2", key, ADMIN.user)
    assert (await cloud.get(f"{PATH}/n1.example.org")).json()["host_approval"] == row
    moved = (await cloud.ask("PUT", f"{PATH}/n1.example.org", {"approval": {"cell": "cell1"}})).json()["host_approval"]
    assert (moved["cell"], moved["key"]) == ("cell1", key), "the key is as before"
    assert (await cloud.ask("DELETE", f"{PATH}/n1.example.org")).status_code == 204
    assert (await cloud.get(PATH)).json()["host_approvals"] == []
    for method in ("GET", "DELETE"):
        reply = await cloud.ask(method, f"{PATH}/n1.example.org")
        assert reply.status_code == 404
        assert "neither approved nor does it wait" in reply.text


async def test_an_invalid_approval_is_refused_with_the_reason(cloud: ApiClient, tmp_path: Path) -> None:
    key = make_key(tmp_path / "nk")
    assert (await cloud.ask("PUT", f"{PATH}/h1", {"approval": {"cell": "cell1", "key": key}})).status_code == 200
    for host, wanted, status, why in (
        ("h2", {}, 400, "name the cell"),
        ("h2", {"cell": "nowhere"}, 400, "no cell nowhere"),
        ("h2", {"cell": "cell1", "key": "U" + "A" * 55}, 400, "not the public half"),
        ("h2", {"cell": "cell1", "key": (tmp_path / "nk").read_text().strip()}, 400, ""),
        ("h2", {"cell": "cell1", "key": key}, 409, "Host h1 has this key"),
        ("h" * 256, {"cell": "cell1"}, 400, "at most 255 characters"),
        ("h2", {"cell": "cell1", "colour": "red"}, 400, "colour"),
    ):
        reply = await cloud.ask("PUT", f"{PATH}/{host}", {"approval": wanted})
        assert (reply.status_code, why in reply.text) == (status, True), reply.text
    assert [row["host"] for row in (await cloud.get(PATH)).json()["host_approvals"]] == ["h1"]


async def test_approvals_are_for_administrators_only(cloud: ApiClient) -> None:
    for method, path, body in (
        ("GET", PATH, None),
        ("GET", f"{PATH}/h1", None),
        ("PUT", f"{PATH}/h1", {"approval": {"cell": "cell1"}}),
        ("DELETE", f"{PATH}/h1", None),
    ):
        assert (await cloud.ask(method, path, body, by=MEMBER)).status_code == 403
