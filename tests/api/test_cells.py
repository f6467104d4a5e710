"""The cells of the region are listed, disabled, enabled and deleted."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from moorage.model.errors import Unavailable
from moorage.model.ids import CellId
from moorage.model.resources import Inventory
from moorage.placement.inventory import HostInventory, report_host
from moorage.sql import Database
from moorage.store.region import identity
from moorage.store.region.identity import KnownCell
from moorage_testing.compute_app import ADMIN, MEMBER, READER, ApiClient, cells_in, compute_api


class CellsClient(ApiClient):
    cells: dict[str, Database]


@pytest.fixture
async def cloud(tmp_path: Path) -> AsyncIterator[CellsClient]:
    """Two cells, of which the first has a host; the region remembers a third."""
    async with cells_in(tmp_path, "cell1", "cell2") as cells, compute_api(tmp_path, cells=cells) as client:
        found = CellsClient(client.context, client.http)
        found.cells = cells
        report = HostInventory(host="host1", cell=CellId("cell1"), inventories={"VCPU": Inventory(4)})
        await client.context.region.write(lambda tx: report_host(tx, report))
        await client.context.region.write(identity.make)
        await client.context.region.write(lambda tx: identity.remember(tx, {CellId("old"): KnownCell("u-old", 1)}))
        yield found


async def listed(cloud: CellsClient) -> dict[str, Any]:
    return {row["name"]: row for row in (await cloud.get("/ext/cells")).json()["cells"]}


async def test_unreachable_cells_are_listed_too(cloud: CellsClient, monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(work: object) -> None:
        raise Unavailable("the database does not answer")

    monkeypatch.setattr(cloud.cells["cell2"], "read", silent)
    rows = await listed(cloud)
    assert {name: (row["configured"], row["answers"], row["hosts"]) for name, row in rows.items()} == {
        "cell1": (True, True, 1),
        "cell2": (True, False, 0),
        "old": (False, False, 0),
    }
    assert rows["cell2"]["why"] == "the database does not answer"
    assert rows["old"]["uuid"] == "u-old"
    assert (rows["cell1"]["changed_by"], rows["cell1"]["changed_at"]) == (None, None)


async def test_a_cell_is_closed_and_opened(cloud: CellsClient) -> None:
    wanted = {"cell": {"disabled": True, "disabled_reason": "old machines"}}
    for cell in ("cell1", "cell2"):  # with hosts, and before it has any
        reply = await cloud.ask("PUT", f"/ext/cells/{cell}", wanted)
        assert reply.status_code == 200, reply.text
        assert reply.json()["cell"] == (await listed(cloud))[cell]
        assert reply.json()["cell"] == (await cloud.get(f"/ext/cells/{cell}")).json()["cell"]
    row = (await listed(cloud))["cell2"]
    assert (row["disabled"], row["disabled_reason"], row["changed_by"]) == (True, "old machines", ADMIN.user)
    assert row["changed_at"]
    reply = await cloud.ask("PUT", "/ext/cells/cell1", {"cell": {"disabled": False}})
    assert (reply.json()["cell"]["disabled"], reply.json()["cell"]["disabled_reason"]) == (False, "")
    assert (await listed(cloud))["cell2"]["disabled"]


async def test_an_empty_cell_is_forgotten(cloud: CellsClient) -> None:
    assert (await cloud.ask("DELETE", "/ext/cells/cell1")).status_code == 409
    assert (await cloud.ask("DELETE", "/ext/cells/old?force=perhaps")).status_code == 400
    assert (await cloud.ask("DELETE", "/ext/cells/old")).status_code == 204
    assert set(await listed(cloud)) == {"cell1", "cell2"}
    for method, path, body in (
        ("DELETE", "/ext/cells/old", None),
        ("GET", "/ext/cells/old", None),
        ("PUT", "/ext/cells/old", {"cell": {"disabled": True}}),
    ):
        assert (await cloud.ask(method, path, body)).status_code == 404
    assert set(await listed(cloud)) == {"cell1", "cell2"}


@pytest.mark.parametrize("principal", [MEMBER, READER], ids=["member", "reader"])
async def test_cells_are_for_administrators_only(cloud: CellsClient, principal: Any) -> None:
    for method, path, body in (
        ("GET", "/ext/cells", None),
        ("GET", "/ext/cells/cell1", None),
        ("PUT", "/ext/cells/cell1", {"cell": {"disabled": True}}),
        ("DELETE", "/ext/cells/old", None),
    ):
        assert (await cloud.ask(method, path, body, by=principal)).status_code == 403
    assert (await listed(cloud))["cell1"]["disabled"] is False
