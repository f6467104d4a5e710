"""An API over fresh databases, with tokens that contain the principal."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec

from moorage.api.app import ComputeApp
from moorage.api.context import ApiSettings, AppContext, Authenticate
from moorage.api.microversions import VersionChange
from moorage.api.policy import Policy
from moorage.api.route_table import TABLE
from moorage.api.routes import Route
from moorage.api.version_changes import CHANGES
from moorage.model.errors import Unauthenticated
from moorage.model.principal import Principal
from moorage.sql import Database, open_database
from moorage.store.cell.tables import cell_metadata
from moorage.store.region.placement.tables import placement_metadata
from moorage.store.region.tables import region_metadata

ADMIN = Principal("a" * 32, project="b" * 32, roles=("admin", "manager", "member", "reader"))
MEMBER = Principal("1" * 32, project="2" * 32, roles=("member", "reader"))
READER = Principal("3" * 32, project="2" * 32, roles=("reader",))
STRANGER = Principal("4" * 32, project="5" * 32, roles=("member", "reader"))


def token(principal: Principal) -> str:
    return msgspec.json.encode(principal).decode()


async def authenticate(sent: str, service: str | None) -> Principal:
    """The principal of a token. Raises Unauthenticated for an unknown one."""
    try:
        return msgspec.json.decode(sent, type=Principal)
    except msgspec.DecodeError as failure:
        raise Unauthenticated("no such token") from failure


class ApiClient:
    """Speaks to an API as one caller."""

    def __init__(self, context: AppContext, http: httpx.AsyncClient) -> None:
        self.context = context
        self.http = http

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        at: str | None = None,
        by: Principal | str | None = ADMIN,
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


@asynccontextmanager
async def cells_in(directory: Path, *names: str) -> AsyncIterator[dict[str, Database]]:
    """Fresh databases of cells, by name."""
    opened: dict[str, Database] = {}
    for name in names:
        opened[name] = await open_database(f"sqlite:///{directory}/{name}.db", name=name, durability="process")
        await opened[name].create(cell_metadata)
    yield opened
    for database in opened.values():
        await database.close()


@asynccontextmanager
async def compute_api(
    directory: Path,
    *,
    config: ApiSettings | None = None,
    table: Sequence[Route] = TABLE,
    changes: tuple[VersionChange, ...] = CHANGES,
    authenticate: Authenticate = authenticate,
    **parts: Any,
) -> AsyncIterator[ApiClient]:
    region = await open_database(f"sqlite:///{directory}/region.db", name="region", durability="process")
    await region.create(region_metadata)
    await region.create(placement_metadata)
    context = AppContext(region, Policy(), config or ApiSettings(public_url="http://cloud"), **parts)
    app = ComputeApp(context, authenticate, table=table, changes=changes)
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://cloud") as http:
        yield ApiClient(context, http)
    await region.close()
