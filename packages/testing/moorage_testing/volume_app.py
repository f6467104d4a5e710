"""The embedded volume service for tests: a handful of callers, an image service in memory, and what every test does."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from moorage.model.errors import Unauthenticated
from moorage.model.principal import Principal
from moorage.sql import Database, open_database
from moorage_embedded.volume.app import EmbeddedVolume, OtherServices, VolumeSettings, make_volume
from moorage_testing.waiting import PATIENCE_S

VERSION = "3.71"
SERVER = "5e4f0000-0000-4000-8000-00000000000a"
OTHER_SERVER = "5e4f0000-0000-4000-8000-00000000000b"


RED, BLUE, SERVICE = ("1" * 32, "2" * 32, "3" * 32)
"""Projects."""
ASKERS = {
    "alice": Principal(user="alice", project=RED, roles=("member", "reader")),
    "bob": Principal(user="bob", project=BLUE, roles=("member", "reader")),
    "reader": Principal(user="rita", project=RED, roles=("reader",)),
    "admin": Principal(user="root", project=SERVICE, roles=("admin", "member", "reader")),
    "nova": Principal(user="nova", project=SERVICE, roles=("admin", "service")),
    "nobody": Principal(user="none", project=RED, roles=()),
}


async def validate(token: str) -> Principal:
    """The principal of a token. Raises Unauthenticated for an unknown one."""
    if token not in ASKERS:
        raise Unauthenticated("no such token")
    return ASKERS[token]


class MemoryImages:
    """An image service in memory."""

    def __init__(self) -> None:
        self.docs: dict[str, dict[str, Any]] = {}
        self.data: dict[str, bytes] = {}
        self.broken = False

    def put(self, id: str, data: bytes, **more: Any) -> None:
        usual = {"name": "an image", "status": "active", "min_disk": 0, "min_ram": 0, "container_format": "bare"}
        self.docs[id] = usual | {"id": id, "disk_format": "raw", "size": len(data), "checksum": "c", **more}
        self.data[id] = data

    async def show(self, principal: Principal, id: str) -> dict[str, Any] | None:
        return self.docs.get(id)

    async def named(self, principal: Principal, name: str) -> list[dict[str, Any]]:
        return [doc for doc in self.docs.values() if doc["name"] == name][:2]

    async def read(self, id: str) -> AsyncIterator[bytes]:
        """An image's data. Raises FileNotFoundError when the test broke the store."""
        if self.broken:
            raise FileNotFoundError(id)
        for at in range(0, len(self.data[id]), 1000):
            yield self.data[id][at : at + 1000]

    async def create(self, principal: Principal, fields: dict[str, Any]) -> dict[str, Any]:
        id = f"1a6e0000-0000-4000-8000-{len(self.docs):012}"
        self.docs[id] = {"id": id, "status": "queued", "owner": principal.project} | fields
        return self.docs[id]

    async def fill(self, id: str, pieces: AsyncIterator[bytes]) -> None:
        size, head = 0, b""
        async for piece in pieces:
            size += len(piece)
            head = head or piece
        self.data[id] = head
        self.docs[id] |= {"status": "active", "size": size}


@dataclass
class VolumeApp:
    service: EmbeddedVolume
    database: Database
    files: Path
    images: MemoryImages
    open_as: Callable[[str], httpx.AsyncClient]
    events: list[dict[str, Any]] = field(default_factory=list)
    """The events that were sent to compute."""
    held: dict[tuple[str, str], str] = field(default_factory=dict)
    """(server, volume) → attachment: what compute says when it is asked."""


@asynccontextmanager
async def volume_service(
    directory: Path, settings: VolumeSettings | None = None, url: str = ""
) -> AsyncIterator[VolumeApp]:
    """The service over a database in `directory` or at `url`; compute is a list of events and a dictionary."""
    database = await open_database(url or f"sqlite:///{directory}/volume.db", name="volume", durability="process")
    images, opened = MemoryImages(), list[httpx.AsyncClient]()
    events: list[dict[str, Any]] = []
    held: dict[tuple[str, str], str] = {}

    async def notify(told: list[dict[str, Any]]) -> None:
        events.extend(told)

    async def server_volumes(server: str, volume: str) -> str | None:
        return held.get((server, volume))

    service = make_volume(
        database,
        files=directory / "volumes",
        validate_token=validate,
        public_url="http://volume",
        others=OtherServices(images, notify, server_volumes),
        settings=settings,
    )
    await service.start()

    def open_as(token: str) -> httpx.AsyncClient:
        headers = {"X-Auth-Token": token, "OpenStack-API-Version": f"volume {VERSION}"}
        client = httpx.AsyncClient(
            transport=httpx.ASGITransport(service.app), base_url="http://volume/v3", headers=headers
        )
        opened.append(client)
        return client

    try:
        yield VolumeApp(service, database, directory / "volumes", images, open_as, events, held)
    finally:
        for client in opened:
            await client.aclose()
        await service.stop()
        await database.close()


async def ask_volume(client: httpx.AsyncClient, **said: Any) -> httpx.Response:
    return await client.post("/volumes", json={"volume": {"size": 1} | said})


async def shown(client: httpx.AsyncClient, id: str, noun: str = "volume") -> dict[str, Any]:
    answer = await client.get(f"/{noun}s/{id}")
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()[noun]
    return body


async def until(client: httpx.AsyncClient, id: str, status: str, noun: str = "volume") -> dict[str, Any]:
    """The record when it has this status."""
    found = await shown(client, id, noun)
    async with asyncio.timeout(PATIENCE_S):
        while found["status"] != status:
            await asyncio.sleep(0.005)
            found = await shown(client, id, noun)
    return found


async def made(client: httpx.AsyncClient, status: str = "available", **said: Any) -> dict[str, Any]:
    """A volume that was made."""
    answer = await ask_volume(client, **said)
    assert answer.status_code == 202, answer.text
    return await until(client, answer.json()["volume"]["id"], status)


async def gone(client: httpx.AsyncClient, id: str, noun: str = "volume") -> None:
    """Wait until there is no such record."""
    async with asyncio.timeout(PATIENCE_S):
        while (await client.get(f"/{noun}s/{id}")).status_code != 404:  # noqa: ASYNC110 - it is asked over HTTP
            await asyncio.sleep(0.005)


async def act(client: httpx.AsyncClient, id: str, action: str, said: Any = None, **headers: str) -> httpx.Response:
    return await client.post(f"/volumes/{id}/action", json={action: said}, headers=headers)


async def reserved(client: httpx.AsyncClient, volume: str, server: str | None = SERVER, **said: Any) -> dict[str, Any]:
    named = {} if server is None else {"instance_uuid": server}
    answer = await client.post("/attachments", json={"attachment": {"volume_uuid": volume} | named | said})
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()["attachment"]
    return body


async def attached(client: httpx.AsyncClient, volume: str, server: str = SERVER, host: str = "h1") -> dict[str, Any]:
    """An attachment that went all the way."""
    found = await reserved(client, volume, server, connector={"host": host, "mountpoint": "/dev/vdb"})
    answer = await client.post(f"/attachments/{found['id']}/action", json={"os-complete": None})
    assert answer.status_code == 204, answer.text
    return found
