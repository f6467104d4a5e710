"""An API for each test. `servers` is an API with a cell and records of servers."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from moorage.sql import open_database
from moorage.store.cell.tables import cell_metadata
from moorage_testing.compute_app import MEMBER, ApiClient, compute_api
from moorage_testing.consoles import FakeConsoles
from moorage_testing.fake_server_service import IMAGE, NETWORK, RecordingServerService, a_server, keep

WANTED = {"name": "web", "flavorRef": "1", "imageRef": IMAGE, "networks": [{"uuid": NETWORK}]}


@pytest.fixture
async def cloud(tmp_path: Path) -> AsyncIterator[ApiClient]:
    async with compute_api(tmp_path) as client:
        yield client


class Servers(ApiClient):
    """A API with one cell and a book of orders."""

    book: RecordingServerService
    cell: Any

    async def make(self, at: str = "latest", by: Any = MEMBER, **fields: Any) -> Any:
        return await self.ask("POST", "/servers", {"server": {**WANTED, **fields}}, at=at, by=by)

    async def keep(self, *servers: Any) -> None:
        await keep(self.context.region, self.cell, *servers)

    async def shown(self, at: str = "latest", by: Any = MEMBER, number: int = 1) -> Any:
        answer = await self.get(f"/servers/{a_server(number).id}", at=at, by=by)
        assert answer.status_code == 200, answer.text
        return answer.json()["server"]

    async def names(self, query: str = "", at: str = "latest", by: Any = MEMBER) -> list[str]:
        answer = await self.get(f"/servers{query}", at=at, by=by)
        assert answer.status_code == 200, answer.text
        detail = await self.get(f"/servers/detail{query}", at=at, by=by)
        assert [row["id"] for row in detail.json()["servers"]] == [row["id"] for row in answer.json()["servers"]]
        return [row["name"] for row in answer.json()["servers"]]


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[Servers]:
    cell = await open_database(f"sqlite:///{tmp_path}/cell1.db", name="cell1", durability="process")
    await cell.create(cell_metadata)
    async with compute_api(tmp_path, cells={"cell1": cell}) as client:
        found = Servers(client.context, client.http)
        found.book = RecordingServerService(client.context.region)
        found.cell = cell
        client.context.operations = found.book
        client.context.consoles = FakeConsoles()
        yield found
    await cell.close()
