"""The image service (Glance v2 or the embedded one): what is this image? And what the Compute API passes on for users."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from moorage.clients.http import Json, Neighbour
from moorage.model.errors import NotFound
from moorage.model.image import Image

PAGE_SIZE = 1000
PATCH = "application/openstack-images-v2.1-json-patch"
UNSAID = object()
_KNOWN = frozenset(
    {
        "id", "name", "status", "visibility", "owner", "disk_format", "container_format", "size", "virtual_size",
        "min_disk", "min_ram", "os_hidden", "protected", "created_at", "updated_at", "tags", "checksum",
        "os_hash_algo", "os_hash_value", "self", "file", "schema", "direct_url", "locations", "stores",
    }
)  # fmt: skip


class ImageClient:
    def __init__(self, image: Neighbour) -> None:
        self._image = image

    async def show(self, image: str, token: str | None = None) -> Image:
        """The image as the holder of `token` may see it (None: as we may). Raises NotFound with Nova's sentence."""
        try:
            reply = await self._image.call("GET", _path(image), token=token)
        except NotFound as missing:
            raise NotFound(f"Image {image} could not be found.") from missing
        return image_of(reply.body)

    async def list_as(self, token: str, filters: Mapping[str, str], *, limit: int, marker: str | None) -> list[Json]:
        """The service's own records of the images that the user may see, newest first."""
        rows: list[Json] = []
        while len(rows) < limit:
            wanted = min(limit - len(rows), PAGE_SIZE)
            asked = {**filters, "limit": str(wanted), **({"marker": marker} if marker else {})}
            body = (await self._image.call("GET", "/v2/images", token=token, params=asked)).body
            page: list[Json] = body["images"]
            rows += page
            if not page or (len(page) < wanted and "next" not in body):
                break
            marker = page[-1]["id"]
        return rows

    async def show_as(self, token: str, image: str) -> Json:
        """The service's own record. Raises NotFound."""
        return (await self._image.call("GET", _path(image), token=token)).body

    async def delete_as(self, token: str, image: str) -> None:
        await self._image.call("DELETE", _path(image), token=token)

    async def change_properties_as(self, token: str, record: Json, wanted: Mapping[str, Any]) -> Json:
        """The record with these properties and no others."""
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


def _path(image: str) -> str:
    return f"/v2/images/{quote(image, safe='')}"


def _pointer(name: str) -> str:
    return "/" + name.replace("~", "~0").replace("/", "~1")


def properties_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """Everything the service has no field for, as it stands there."""
    return {name: value for name, value in record.items() if name not in _KNOWN}


def image_of(body: Mapping[str, Any]) -> Image:
    """Glance's record in our words; everything it has no field for is a property."""
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
