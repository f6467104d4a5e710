"""The image service (Glance v2 or the embedded one): reads and makes images, and passes users' calls on for the Compute API."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import quote

from moorage.clients.http import Json, ServiceClient
from moorage.clients.replies import CREDENTIALS
from moorage.model.errors import Conflict, Gone, NotFound, Unavailable
from moorage.model.image import Image

PAGE_SIZE = 1000
PATCH = "application/openstack-images-v2.1-json-patch"
DATA_DEADLINE_S = 60.0
UNSAID = object()
_KNOWN = frozenset(
    {
        "id", "name", "status", "visibility", "owner", "disk_format", "container_format", "size", "virtual_size",
        "min_disk", "min_ram", "os_hidden", "protected", "created_at", "updated_at", "tags", "checksum",
        "os_hash_algo", "os_hash_value", "self", "file", "schema", "direct_url", "locations", "stores",
    }
)  # fmt: skip


class ImageClient:
    def __init__(self, image: ServiceClient) -> None:
        self._image = image

    async def show(self, image: str, token: str | None = None) -> Image:
        """Return the image as the user of `token` sees it (None: our own account). Raises NotFound with Nova's sentence."""
        try:
            reply = await self._image.call("GET", _path(image), token=token)
        except NotFound as missing:
            raise NotFound(f"Image {image} could not be found.") from missing
        return image_of(reply.body)

    async def list_as(self, token: str, filters: Mapping[str, str], *, limit: int, marker: str | None) -> list[Json]:
        """Return the service's own records of the images that the user sees, newest first."""
        rows: list[Json] = []
        while len(rows) < limit:
            wanted = min(limit - len(rows), PAGE_SIZE)
            query = {**filters, "limit": str(wanted), **({"marker": marker} if marker else {})}
            body = (await self._image.call("GET", "/v2/images", token=token, params=query)).body
            page: list[Json] = body["images"]
            rows += page
            if not page or (len(page) < wanted and "next" not in body):
                break
            marker = page[-1]["id"]
        return rows

    async def show_as(self, token: str, image: str) -> Json:
        """Return the service's own record. Raises NotFound."""
        return (await self._image.call("GET", _path(image), token=token)).body

    async def delete_as(self, token: str, image: str) -> None:
        await self._image.call("DELETE", _path(image), token=token)

    async def make_as(self, token: str, record: Mapping[str, Any]) -> Json:
        """Make an image without data. Raises Conflict when the id is in use, and Forbidden and TooLarge as the service does."""
        return (await self._image.call("POST", "/v2/images", token=token, body=dict(record))).body

    async def make(self, record: Mapping[str, Any]) -> Image:
        """Make an image without data, with our own account and in our own project; return the existing one if it has this id.

        Raises NotFound when the image with this id was deleted.
        """
        try:
            reply = await self._image.call("POST", "/v2/images", body=dict(record))
        except Conflict:
            return await self.show(record["id"])
        return image_of(reply.body)

    async def share_as(self, token: str, image: str, project: str) -> None:
        """Let another project see the image."""
        path = f"{_path(image)}/members"
        with contextlib.suppress(Conflict):  # it sees the image already
            await self._image.call("POST", path, token=token, body={"member": project})

    async def delete(self, image: str) -> bool:
        """Delete an image with our own account; a missing one is success. False: it is protected or in use, and stays.

        Raises Unavailable when the service is out.
        """
        try:
            await self._image.call("DELETE", _path(image))
        except (NotFound, Gone):
            return True
        except Conflict:
            return False
        except Unavailable as out:
            if out.code != CREDENTIALS or not await self._is_protected(image):
                raise
            return False
        return True

    async def _is_protected(self, image: str) -> bool:
        try:
            return (await self.show(image)).protected
        except NotFound:
            return True  # it is deleted already

    async def fill_with_properties(self, image: str, wanted: Mapping[str, str]) -> None:
        """Set properties and upload empty data, with our own account; then the image is complete. May be repeated. Raises NotFound."""
        record = (await self._image.call("GET", _path(image))).body
        changes = [
            {"op": "replace" if name in record else "add", "path": _pointer(name), "value": value}
            for name, value in wanted.items()
            if record.get(name, UNSAID) != value
        ]
        if changes:
            await self._image.call("PATCH", _path(image), body=changes, headers={"Content-Type": PATCH})
        if record.get("status") != "active":
            await self._image.write_data(f"{_path(image)}/file", _nothing(), size_bytes=0, deadline_s=DATA_DEADLINE_S)

    async def every(self, filters: Mapping[str, str], *, at_most: int) -> list[Image]:
        """Return images of all projects, with our own account, oldest last."""
        rows: list[Image] = []
        marker: str | None = None
        while len(rows) < at_most:
            wanted = min(at_most - len(rows), PAGE_SIZE)
            query = {
                **filters,
                "sort": "created_at:desc",
                "limit": str(wanted),
                **({"marker": marker} if marker else {}),
            }
            body = (await self._image.call("GET", "/v2/images", params=query)).body
            page: list[Json] = body["images"]
            rows += [image_of(each) for each in page]
            if not page or (len(page) < wanted and "next" not in body):
                break
            marker = page[-1]["id"]
        return rows

    async def change_properties_as(self, token: str, record: Json, wanted: Mapping[str, Any]) -> Json:
        """Set exactly these properties, and return the new record."""
        have = properties_of(record)
        changes = [
            {"op": "replace" if name in have else "add", "path": _pointer(name), "value": value}
            for name, value in wanted.items()
            if have.get(name, UNSAID) != value
        ]
        changes += [{"op": "remove", "path": _pointer(name)} for name in have if name not in wanted]
        if not changes:
            return record
        headers = {"Content-Type": PATCH}
        return (await self._image.call("PATCH", _path(record["id"]), token=token, body=changes, headers=headers)).body


async def _nothing() -> AsyncIterator[bytes]:
    """Empty data."""
    return
    yield b""


def _path(image: str) -> str:
    return f"/v2/images/{quote(image, safe='')}"


def _pointer(name: str) -> str:
    return "/" + name.replace("~", "~0").replace("/", "~1")


def properties_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return all values of the record for which the service has no field of its own, unchanged."""
    return {name: value for name, value in record.items() if name not in _KNOWN}


def image_of(body: Mapping[str, Any]) -> Image:
    """Build an Image from Glance's record; every value without a field of its own becomes a property."""
    return Image(
        id=body["id"],
        name=body.get("name") or "",
        status=body.get("status", ""),
        visibility=body.get("visibility", "private"),
        owner=body.get("owner") or "",
        disk_format=body.get("disk_format"),
        container_format=body.get("container_format"),
        size_bytes=body.get("size"),
        virtual_size_bytes=body.get("virtual_size"),
        min_disk_gib=body.get("min_disk") or 0,
        min_ram_mib=body.get("min_ram") or 0,
        hidden=bool(body.get("os_hidden")),
        protected=bool(body.get("protected")),
        created_at=body.get("created_at", ""),
        updated_at=body.get("updated_at", ""),
        tags=tuple(body.get("tags", ())),
        properties={key: str(value) for key, value in body.items() if key not in _KNOWN and value is not None},
    )
