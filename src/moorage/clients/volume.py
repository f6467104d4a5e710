"""The volume service (Cinder v3): what is this volume?  Attaching comes with the stories that need it."""

from urllib.parse import quote

import msgspec

from moorage.clients.http import Neighbour
from moorage.model.errors import NotFound


class Volume(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str = ""
    status: str = ""
    size_gib: int = 0
    bootable: bool = False
    multiattach: bool = False
    availability_zone: str | None = None
    volume_type: str | None = None
    image_metadata: dict[str, str] = {}


class VolumeClient:
    def __init__(self, volume: Neighbour) -> None:
        self._volume = volume

    async def show(self, volume: str, project: str, token: str | None = None) -> Volume:
        """The volume as the holder of `token` may see it (None: as we may). Raises NotFound with Nova's sentence."""
        path = f"/{quote(project, safe='')}/volumes/{quote(volume, safe='')}"
        headers = {"OpenStack-API-Version": "volume 3.48"}
        try:
            reply = await self._volume.call("GET", path, token=token, headers=headers)
        except NotFound as missing:
            raise NotFound(f"Volume {volume} could not be found.") from missing
        body = reply.body["volume"]
        return Volume(
            id=body["id"],
            name=body.get("name") or "",
            status=body.get("status", ""),
            size_gib=body.get("size", 0),
            bootable=str(body.get("bootable", "")).lower() == "true",
            multiattach=bool(body.get("multiattach")),
            availability_zone=body.get("availability_zone"),
            volume_type=body.get("volume_type"),
            image_metadata={key: str(value) for key, value in body.get("volume_image_metadata", {}).items()},
        )
