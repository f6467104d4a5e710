"""A Compute API over the services of the contract tests, with real tokens, and servers whose ports are at the network service."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from moorage.api.context import ApiSettings
from moorage.model.ids import NetworkId, PortId, ServerId
from moorage.model.server import Address, Nic, Server
from moorage.sql import open_database
from moorage.store.cell.tables import cell_metadata
from moorage_testing.compute_app import ApiClient, compute_api
from moorage_testing.fake_server_service import a_server, keep
from tests.helpers.contract_services import Ground, Tenant, server_id


class OldNet:
    """One tenant at an API."""

    def __init__(self, ground: Ground, client: ApiClient, tenant: Tenant, cell: Any) -> None:
        self.ground, self.client, self.tenant, self.cell = ground, client, tenant, cell
        self.routers: list[tuple[str, str, str]] = []
        """(router, subnet inside, network outside) to put away."""

    async def ask(self, method: str, path: str, body: Any = None, at: str = "2.35", by: str = "") -> httpx.Response:
        return await self.client.ask(method, path, body, at=at, by=by or self.tenant.token)

    async def ok(self, method: str, path: str, body: Any = None, at: str = "2.35", status: int = 200) -> Any:
        answer = await self.ask(method, path, body, at)
        assert answer.status_code == status, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    async def refused(self, method: str, path: str, body: Any = None, at: str = "2.35") -> tuple[int, str]:
        """Status and sentence."""
        answer = await self.ask(method, path, body, at)
        (fault,) = answer.json().values()
        assert fault["code"] == answer.status_code >= 400, answer.text
        return answer.status_code, fault["message"]

    async def act(self, server: str, body: Any, at: str = "2.35") -> httpx.Response:
        return await self.ask("POST", f"/servers/{server}/action", body, at)

    async def server(self, *networks: str, **fields: Any) -> Server:
        """A server of the tenant with a bound port on each network."""
        name = server_id()
        nics: list[Nic] = []
        for place, network in enumerate(networks):
            port = await self.ground.make(
                "port",
                network_id=network,
                project_id=self.tenant.project,
                device_id=name,
                device_owner="compute:nova",
                **{"binding:host_id": "cmp1"},
            )
            addresses = tuple(Address(each["subnet_id"], each["ip_address"]) for each in port["fixed_ips"])
            nics.append(
                Nic(place, NetworkId(network), "net", PortId(port["id"]), port["mac_address"], addresses=addresses)
            )
        made = a_server(
            id=ServerId(name), project=self.tenant.project, user=self.tenant.user, nics=tuple(nics), **fields
        )
        await keep(self.client.context.region, self.cell, made)
        return made


@asynccontextmanager
async def old_net(ground: Ground, directory: Path) -> AsyncIterator[OldNet]:
    cell = await open_database(f"sqlite:///{directory}/cell1.db", name="cell1", durability="process")
    await cell.create(cell_metadata)
    async with compute_api(
        directory,
        config=ApiSettings(public_url="http://cloud", image_url="http://image"),
        authenticate=ground.identity.validate,
        cells={"cell1": cell},
        network=ground.network,
        image=ground.image,
    ) as client:
        yield OldNet(ground, client, await ground.tenant(), cell)
    await cell.close()
