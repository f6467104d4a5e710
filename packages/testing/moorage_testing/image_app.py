"""The embedded image service for tests: a handful of callers, and what every test does with images."""

import json
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from moorage.model.errors import Unauthenticated
from moorage.model.principal import Principal
from moorage.sql import Database, open_database
from moorage_embedded.image.app import ImageService, ImageSettings, make_image
from moorage_embedded.image.task_imports import TaskImports

PATCH = "application/openstack-images-v2.1-json-patch"
OLD_PATCH = "application/openstack-images-v2.0-json-patch"
STREAM = "application/octet-stream"
ASKERS = {
    "alice": Principal(user="alice", project="red", roles=("member", "reader")),
    "bob": Principal(user="bob", project="blue", roles=("member", "reader")),
    "reader": Principal(user="rita", project="red", roles=("reader",)),
    "admin": Principal(user="root", project="admin", roles=("admin", "member", "reader")),
    "nova": Principal(user="nova", project="service", roles=("service",)),
    "nobody": Principal(user="none", project="red", roles=()),
}


async def validate(token: str) -> Principal:
    """The principal of a token. Raises Unauthenticated for an unknown one."""
    if token not in ASKERS:
        raise Unauthenticated("no such token")
    return ASKERS[token]


@dataclass
class ImageApp:
    service: ImageService
    database: Database
    files: Path
    open_as: Callable[[str], httpx.AsyncClient]


def make(
    database: Database, files: Path, settings: ImageSettings | None = None, imports: TaskImports | None = None
) -> ImageService:
    return make_image(
        database,
        files=files,
        validate_token=validate,
        public_url="http://image",
        settings=settings,
        imports=imports,
    )


SMALL = ImageSettings(image_max_bytes=4 * 1024 * 1024, properties_max=5, tags_max=3, members_max=2)


@asynccontextmanager
async def image_service(
    directory: Path, url: str = "", settings: ImageSettings = SMALL, imports: TaskImports | None = None
) -> AsyncIterator[ImageApp]:
    """The service with limits, small ones by default, over a database in `directory` or at `url`."""
    database = await open_database(url or f"sqlite:///{directory}/image.db", name="image", durability="process")
    service = make(database, directory / "files", settings, imports)
    await service.start()
    opened: list[httpx.AsyncClient] = []

    def open_as(token: str) -> httpx.AsyncClient:
        headers = {"X-Auth-Token": token, "Accept": "application/json"}
        client = httpx.AsyncClient(transport=httpx.ASGITransport(service.app), base_url="http://image", headers=headers)
        opened.append(client)
        return client

    yield ImageApp(service, database, directory / "files", open_as)
    for client in opened:
        await client.aclose()
    await service.stop()
    await database.close()


async def made(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    answer = await client.post("/v2/images", json={"disk_format": "raw", "container_format": "bare"} | fields)
    assert answer.status_code == 201, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def fill(client: httpx.AsyncClient, id: str, data: bytes) -> httpx.Response:
    return await client.put(f"/v2/images/{id}/file", content=data, headers={"Content-Type": STREAM})


async def patch(client: httpx.AsyncClient, id: str, *changes: dict[str, Any], media: str = PATCH) -> httpx.Response:
    return await client.patch(f"/v2/images/{id}", content=json.dumps(changes), headers={"Content-Type": media})


def qcow2(*, size: int = 1 << 30, backing: int = 0, features: int = 0) -> bytes:
    head = b"QFI\xfb" + struct.pack(">IQI", 3, backing, 0) + struct.pack(">IQ", 16, size)
    return head.ljust(72, b"\0") + struct.pack(">Q", features) + bytes(512)
