"""A front desk over fresh databases, and a token that says who it is."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec

from moorage.api.app import Frontdesk
from moorage.api.desk import Authenticate, Desk, DeskConfig
from moorage.api.microversions import Change
from moorage.api.past import CHANGES
from moorage.api.policy import Policy
from moorage.api.routes import Route
from moorage.api.table import TABLE
from moorage.model.asker import Asker
from moorage.model.errors import Unauthenticated
from moorage.sql import Database, open_database
from moorage.store.cell.tables import cell_metadata
from moorage.store.region.placement.tables import placement_metadata
from moorage.store.region.tables import region_metadata

ADMIN = Asker("a" * 32, project="b" * 32, roles=("admin", "manager", "member", "reader"))
MEMBER = Asker("1" * 32, project="2" * 32, roles=("member", "reader"))
READER = Asker("3" * 32, project="2" * 32, roles=("reader",))
STRANGER = Asker("4" * 32, project="5" * 32, roles=("member", "reader"))


def token(asker: Asker) -> str:
    return msgspec.json.encode(asker).decode()


async def authenticate(sent: str, service: str | None) -> Asker:
    try:
        return msgspec.json.decode(sent, type=Asker)
    except msgspec.DecodeError as failure:
        raise Unauthenticated("no such token") from failure


class Client:
    """Speaks to a front desk as one asker."""

    def __init__(self, desk: Desk, http: httpx.AsyncClient) -> None:
        self.desk = desk
        self.http = http

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        at: str | None = None,
        by: Asker | str | None = ADMIN,
        headers: dict[str, str] | None = None,
    ) -> httpx.Response:
        sent = dict(headers or {})
        if by is not None:
            sent["X-Auth-Token"] = by if isinstance(by, str) else token(by)
        if at is not None:
            sent["OpenStack-API-Version"] = f"compute {at}"
        full = path if path.startswith(("/v2", "http")) or path in {"/", "/healthcheck"} else f"/v2.1{path}"
        return await self.http.request(method, full, json=body, headers=sent)

    async def get(self, path: str, **options: Any) -> httpx.Response:
        return await self.ask("GET", path, **options)


class Cells:
    """The databases of some cells, by name."""

    def __init__(self, databases: Mapping[str, Database]) -> None:
        self._databases = databases

    def all(self) -> Mapping[str, Database]:
        return self._databases


@asynccontextmanager
async def cells_in(directory: Path, *names: str) -> AsyncIterator[Cells]:
    """Fresh databases of cells."""
    opened: dict[str, Database] = {}
    for name in names:
        opened[name] = await open_database(f"sqlite:///{directory}/{name}.db", name=name, durability="process")
        await opened[name].create(cell_metadata)
    yield Cells(opened)
    for database in opened.values():
        await database.close()


@asynccontextmanager
async def front_desk(
    directory: Path,
    *,
    config: DeskConfig | None = None,
    table: Sequence[Route] = TABLE,
    changes: tuple[Change, ...] = CHANGES,
    authenticate: Authenticate = authenticate,
    **rooms: Any,
) -> AsyncIterator[Client]:
    region = await open_database(f"sqlite:///{directory}/region.db", name="region", durability="process")
    await region.create(region_metadata)
    await region.create(placement_metadata)
    desk = Desk(region, Policy(), config or DeskConfig(public_url="http://cloud"), **rooms)
    app = Frontdesk(desk, authenticate, table=table, changes=changes)
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://cloud") as http:
        yield Client(desk, http)
    await region.close()
