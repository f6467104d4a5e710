"""The image service (Glance v2 or the embedded one): what is this image?"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from moorage.clients.http import Neighbour
from moorage.model.errors import NotFound
from moorage.model.image import Image

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
            reply = await self._image.call("GET", f"/v2/images/{quote(image, safe='')}", token=token)
        except NotFound as missing:
            raise NotFound(f"Image {image} could not be found.") from missing
        return image_of(reply.body)


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
