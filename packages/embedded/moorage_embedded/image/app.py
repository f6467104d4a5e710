"""The embedded image service, joined: `make_image` gives the ASGI app and what `main` needs to seed it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
from starlette.types import ASGIApp

from moorage.model.errors import Invalid
from moorage.model.principal import Principal
from moorage.sql import Database
from moorage.sql.migrate import migrate
from moorage_embedded.http_kit.answers import HttpFault
from moorage_embedded.http_kit.endpoint import ValidateToken
from moorage_embedded.image import attributes, data, metadef_store
from moorage_embedded.image.faults import too_large
from moorage_embedded.image.files import PIECE_BYTES, STAGED, ImageDirectory
from moorage_embedded.image.http import ImageEndpoint
from moorage_embedded.image.metadef_files import read_metadefs, without_overridden
from moorage_embedded.image.policy import ImageCaller
from moorage_embedded.image.request import BytesAllowed, ImageContext, ImageSettings, touch, visible_image
from moorage_embedded.image.store import TABLES, Condition, Doc, ImageQuery, ImageTables
from moorage_embedded.image.task_imports import TaskImports, recover

__all__ = ["ImageService", "ImageSettings", "make_image"]

QCOW2, QCOW2_MARK, RAW = "qcow2", b"QFI\xfb", "raw"
_OURSELVES = ImageCaller(Principal(user="image", roles=("admin", "service", "member", "reader")))


class ImageService:
    """One embedded image service; `start` before the first request."""

    app: ASGIApp

    def __init__(self, context: ImageContext, validate_token: ValidateToken, imports: TaskImports) -> None:
        self._context = context
        self._imports = imports
        self.app = ImageEndpoint(context, validate_token)

    async def start(self) -> None:
        """Make the tables that are missing; take back uploads that the last process left half done."""
        await migrate(self._context.database, TABLES)
        keep = await self._context.write(_recover)
        files = self._context.metadefs
        known = without_overridden(files, await self._context.read(lambda store: metadef_store.names(store.tx)))
        files.clear()
        files.update(known)
        await asyncio.to_thread(self._context.files.sweep, keep)

    async def stop(self) -> None:
        """End what goes on after answers."""
        await self._imports.stop()

    async def seed_image(self, name: str, data: bytes, **attributes: Any) -> Doc:
        """The public image of that name, made and filled if there is none."""
        doc = await self._context.write(lambda store: _seed(store, name, data, attributes, self._context.settings))
        if doc["status"] == "queued":
            await _take(self._context, doc["id"], data)
        found = await self._context.read(lambda store: store.show(doc["id"]))
        return doc if found is None else found.doc

    # ------------------------------------------------------------------------------------------------ beside HTTP

    async def show(self, principal: Principal, id: str) -> Doc | None:
        """The image as the caller sees it; None: there is none for it."""
        who = ImageCaller(principal)
        try:
            return (await self._context.read(lambda store: visible_image(store, who, id))).doc
        except HttpFault:
            return None

    async def named(self, principal: Principal, name: str) -> list[Doc]:
        """At most two images of that name that the caller sees."""
        who = ImageCaller(principal)
        query = ImageQuery(who.project, who.everywhere, limit=2, conditions=[Condition("name", "eq", name)])
        query.sort = [("created_at", True), ("id", True)]
        texts = await self._context.read(lambda store: store.page(query))
        return [msgspec.json.decode(text, type=dict[str, Any]) for text in texts]

    async def read(self, id: str) -> AsyncIterator[bytes]:
        """The data of an active image. Raises FileNotFoundError when there is none."""
        path = self._context.files.path(id)
        file = await asyncio.to_thread(path.open, "rb")
        async for piece in self._context.files.send(file, 0, path.stat().st_size):
            yield piece

    async def create(self, principal: Principal, said: Doc) -> Doc:
        """A queued image of the caller's. Raises Invalid when it is refused."""
        settings = self._context.settings
        try:
            doc, born = attributes.new_image(ImageCaller(principal), said, settings)

            def work(store: ImageTables) -> None:
                if doc["owner"] is not None and store.count(doc["owner"]) >= settings.images_max:
                    raise too_large(f"The project owns {settings.images_max} images, which is the limit.")
                store.add(doc, born)

            await self._context.write(work)
        except HttpFault as fault:
            raise Invalid(fault.message) from None
        return doc

    async def fill(self, id: str, pieces: AsyncIterator[bytes]) -> None:
        """Upload data into a queued image. Raises Invalid when it is refused."""
        try:
            await data.take(self._context, _OURSELVES, id, pieces, None)
        except HttpFault as fault:
            raise Invalid(fault.message) from None


def _recover(store: ImageTables) -> set[str]:
    """The images whose data is to be kept."""
    for doc in store.in_status("saving"):
        doc["status"] = "queued"
        store.put(doc, touch(doc))
    for doc in store.in_status("importing"):  # from what is staged it is begun anew
        doc["status"] = "uploading"
        store.put(doc, touch(doc))
    for doc in store.in_status("uploading"):
        if doc["size"] is None:
            doc["status"] = "queued"
            store.put(doc, touch(doc))
    recover(store)
    staged = {f"{doc['id']}{STAGED}" for doc in store.in_status("uploading")}
    return (store.ids() - {doc["id"] for doc in store.in_status("queued")}) | staged


def _seed(store: ImageTables, name: str, content: bytes, said: dict[str, Any], settings: ImageSettings) -> Doc:
    found = store.find_public(name)
    if found is not None:
        return found
    usual = {
        "visibility": "public",
        "disk_format": QCOW2 if content.startswith(QCOW2_MARK) else RAW,
        "container_format": "bare",
    }
    doc, born = attributes.new_image(_OURSELVES, usual | said | {"name": name}, settings)
    store.add(doc, born)
    return doc


async def _take(context: ImageContext, id: str, content: bytes) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(content), PIECE_BYTES):
            yield content[at : at + PIECE_BYTES]

    await data.take(context, _OURSELVES, id, pieces(), len(content))


async def _all(_: str) -> None:
    """No identity service says how much a project may have."""


def make_image(
    database: Database,
    *,
    files: Path,
    validate_token: ValidateToken,
    public_url: str,
    settings: ImageSettings | None = None,
    allowed: BytesAllowed | None = None,
    imports: TaskImports | None = None,
) -> ImageService:
    """Build the service over a database and a directory of its own; nothing is touched before `start`.

    The operator's metadata definitions are read now. `allowed`: how many bytes of images a project may have by its limits.
    `imports`: from where tasks may import; without it from nowhere.
    """
    tasks, settings = imports or TaskImports(), settings or ImageSettings()
    context = ImageContext(
        database,
        ImageDirectory(files),
        settings,
        public_url.rstrip("/"),
        allowed or _all,
        tasks,
        read_metadefs(settings.metadefs),
    )
    return ImageService(context, validate_token, tasks)
