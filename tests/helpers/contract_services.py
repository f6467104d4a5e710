"""The services of the clients' contract, embedded or real, with projects, users and hosts.

Hosts: cmp1 and cmp2 are wired to physnet1, cmp3 and cmp4 to physnet2, nobody to physnet3.
"""

import itertools
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import msgspec

from moorage.clients.http import Json, ServiceClient, embedded_transport
from moorage.clients.identity import IdentityClient
from moorage.clients.image import ImageClient
from moorage.clients.network import NetworkClient
from moorage.clients.service_tokens import ServiceTokens
from moorage.model.network import NicAsk, mint_mac
from moorage.sql import open_database
from moorage_embedded.identity.app import Bootstrap, FirstUser, IdentitySettings, make_identity
from moorage_embedded.image.app import make_image
from moorage_embedded.network.app import HostNetworks, make_network
from moorage_testing.real_services.stack import HOSTS, Stack

_numbers = itertools.count(100)


class LosingTransport(httpx.AsyncBaseTransport):
    """The request arrives and is carried out; the answer is lost on the way back."""

    def __init__(self, way: httpx.AsyncBaseTransport, method: str) -> None:
        self._way = way
        self._method = method

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._way.handle_async_request(request)
        if request.method != self._method:
            return response
        await response.aread()
        await response.aclose()
        raise httpx.ReadError("lost on the way back")

    async def aclose(self) -> None:
        await self._way.aclose()


@dataclass(frozen=True)
class Tenant:
    """A fresh project and somebody in it."""

    project: str
    token: str
    user: str = ""
    password: str = ""


@dataclass
class Ground:
    """Clients of ours, and an administrator's raw access to the same services for setting the scene."""

    identity: IdentityClient
    image: ImageClient
    network: NetworkClient
    raw_identity: ServiceClient
    raw_image: ServiceClient
    raw_network: ServiceClient
    admin: str
    """An administrator's token."""
    way: "Callable[[], httpx.AsyncBaseTransport]"
    """A new way into the network service."""

    def losing(self, method: str) -> NetworkClient:
        """A client that never hears the answers to `method`, though what it asked is done."""
        network = ServiceClient(
            "network",
            self.raw_network.url,
            tokens=self.raw_network.tokens,
            transport=LosingTransport(self.way(), method),
        )
        return NetworkClient(network)

    async def tenant(self, role: str = "member") -> Tenant:
        name = f"tenant-{uuid.uuid4().hex[:8]}"
        project = (await self._identity("POST", "/projects", {"project": {"name": name, "domain_id": "default"}}))[
            "project"
        ]
        user = (
            await self._identity("POST", "/users", {"user": {"name": name, "domain_id": "default", "password": name}})
        )["user"]
        await self._give_role(project["id"], user["id"], role)
        return Tenant(project["id"], await self.login(name, name, name), name, name)

    async def give_role(self, tenant: Tenant, role: str) -> None:
        """One role more, in tokens from now on."""
        users = (await self._identity("GET", f"/users?name={tenant.user}"))["users"]
        await self._give_role(tenant.project, users[0]["id"], role)

    async def _give_role(self, project: str, user: str, role: str) -> None:
        roles = (await self._identity("GET", "/roles"))["roles"]
        role_id = next(each["id"] for each in roles if each["name"] == role)
        await self._identity("PUT", f"/projects/{project}/users/{user}/roles/{role_id}")

    async def login(self, user: str, password: str, project: str) -> str:
        return await ServiceTokens(self.raw_identity, user=user, password=password, project=project).get()

    async def _identity(self, method: str, path: str, body: Json | None = None) -> Json:
        return (await self.raw_identity.call(method, path, token=self.admin, body=body)).body

    async def net(self, method: str, path: str, body: Json | None = None, token: str | None = None) -> Json:
        """One call of the network service, by default as the administrator."""
        return (await self.raw_network.call(method, f"/v2.0{path}", token=token or self.admin, body=body)).body

    async def make(self, kind: str, token: str | None = None, **fields: Any) -> Json:
        made: Json = (await self.net("POST", f"/{kind}s", {kind.replace("-", "_"): fields}, token))[
            kind.replace("-", "_")
        ]
        return made

    async def show(self, port: str) -> Json:
        shown: Json = (await self.net("GET", f"/ports/{port}"))["port"]
        return shown

    async def flat(self, tenant: Tenant, cidr: str = "10.9.0.0/24", **fields: Any) -> Json:
        """A plain network of the tenant's with one subnet."""
        network = await self.make("network", project_id=tenant.project, name="flat", **fields)
        await self.make("subnet", network_id=network["id"], ip_version=4, cidr=cidr, project_id=tenant.project)
        return network

    async def routed(self, tenant: Tenant, bits: int = 29) -> "Routed":
        """A network of two segments, one on physnet1 and one on physnet2, each with its subnet."""
        vlan = next(_numbers)
        network = await self.make(
            "network",
            project_id=tenant.project,
            name="routed",
            **{
                "provider:network_type": "vlan",
                "provider:physical_network": "physnet1",
                "provider:segmentation_id": vlan,
            },
        )
        first = (await self.net("GET", f"/segments?network_id={network['id']}"))["segments"][0]["id"]
        second = (
            await self.make(
                "segment",
                network_id=network["id"],
                network_type="vlan",
                physical_network="physnet2",
                segmentation_id=vlan,
                name="second",
            )
        )["id"]
        subnets = [
            (
                await self.make(
                    "subnet",
                    network_id=network["id"],
                    ip_version=4,
                    cidr=f"10.{row}.0.0/{bits}",
                    segment_id=segment,
                    project_id=tenant.project,
                )
            )["id"]
            for row, segment in ((1, first), (2, second))
        ]
        return Routed(network["id"], (first, second), (subnets[0], subnets[1]))


@dataclass(frozen=True)
class Routed:
    network: str
    segments: tuple[str, str]
    subnets: tuple[str, str]


def server_id() -> str:
    return str(uuid.uuid4())


def asks(server: str, *networks: str) -> tuple[NicAsk, ...]:
    """NICs of ours on these networks, with the MACs that `begin` would mint."""
    return tuple(NicAsk(index=n, network=network, mac=mint_mac(server, n)) for n, network in enumerate(networks))


def with_macs(server: str, nics: tuple[NicAsk, ...]) -> tuple[NicAsk, ...]:
    return tuple(msgspec.structs.replace(nic, mac=mint_mac(server, nic.index)) if nic.ours else nic for nic in nics)


PASSWORD = "ground"


@asynccontextmanager
async def embedded_ground(data: Path) -> AsyncIterator[Ground]:
    """Straight into the embedded services, each on a SQLite file of its own."""
    first = Bootstrap(
        users=(
            FirstUser("admin", PASSWORD, roles=(("admin", "admin"),)),
            FirstUser("moorage", PASSWORD, roles=(("service", "admin"), ("service", "service"))),
        )
    )
    databases = [
        await open_database(f"sqlite:///{data / name}.db", name=name, durability="process")
        for name in ("identity", "image", "network")
    ]
    identity = make_identity(
        databases[0],
        public_url="http://identity",
        bootstrap=first,
        key=b"k" * 32,
        settings=IdentitySettings(password_rounds=4),
    )
    validate = identity.validate
    image = make_image(databases[1], files=data / "images", public_url="http://image", validate_token=validate)
    network = make_network(databases[2], public_url="http://network", validate_token=validate)
    for service in (identity, image, network):
        await service.start()
    await network.declare_hosts([HostNetworks(host, physnets) for host, physnets in HOSTS.items()])
    asking = ServiceClient("identity", "http://identity/v3", transport=embedded_transport(identity.app))
    asking.tokens = ServiceTokens(asking, user="moorage", password=PASSWORD)
    images = ServiceClient("image", "http://image", transport=embedded_transport(image.app), tokens=asking.tokens)
    networks = ServiceClient(
        "network", "http://network", transport=embedded_transport(network.app), tokens=asking.tokens
    )
    try:
        admin = await ServiceTokens(asking, user="admin", password=PASSWORD, project="admin").get()
        yield Ground(
            IdentityClient(asking),
            ImageClient(images),
            NetworkClient(networks),
            asking,
            images,
            networks,
            admin,
            lambda: embedded_transport(network.app),
        )
    finally:
        for each in (asking, images, networks):
            await each.close()
        await network.stop()
        identity.close()
        for database in databases:
            await database.close()


@asynccontextmanager
async def real_ground(stack: Stack) -> AsyncIterator[Ground]:
    """Over sockets, into the services of `make test-real`."""
    login = stack.logins["moorage"]
    identity = ServiceClient("identity", stack.identity_url)
    tokens = ServiceTokens(identity, user=login.user, password=login.password, project=login.project)
    identity.tokens = tokens
    network = ServiceClient("network", stack.network_url, tokens=tokens)
    image = ServiceClient("image", stack.image_url, tokens=tokens)
    try:
        yield Ground(
            IdentityClient(identity),
            ImageClient(image),
            NetworkClient(network),
            identity,
            image,
            network,
            stack.token("admin"),
            httpx.AsyncHTTPTransport,
        )
    finally:
        for each in (identity, network, image):
            await each.close()
