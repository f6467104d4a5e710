"""An image, as the image service describes it, and its data on a host."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from moorage.model.ids import ImageId


class Image(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str = ""
    status: str = "active"
    visibility: str = "private"
    owner: str = ""
    disk_format: str | None = None
    container_format: str | None = None
    size_bytes: int | None = None
    virtual_size_bytes: int | None = None
    min_disk_gib: int = 0
    min_ram_mib: int = 0
    hidden: bool = False
    protected: bool = False
    created_at: str = ""
    updated_at: str = ""
    tags: tuple[str, ...] = ()
    properties: dict[str, str] = {}


@dataclass(frozen=True)
class ImageFile:
    """The data of an image, on this host."""

    path: Path
    """Read only, and perhaps another name's file too: whoever keeps it links or copies it."""
    disk_format: str
    container_format: str
    virtual_size: int = 0
    """Bytes of the disk that a guest sees in it; 0: nobody looked."""


class ImageStore(Protocol):
    """The way of a host to the image service: data only, both ways. What is fetched was looked into: it is what it says, and names no other file."""

    async def fetch(self, image: ImageId) -> ImageFile:
        """The image's data. Raises HostFailed with `image_not_found`, `image_unusable` or `image_service_out`."""
        ...

    async def send(self, image: ImageId, data: ImageFile) -> None:
        """Make the queued image whole from the file; one that is whole already is success.

        Raises HostFailed with `image_not_found` (somebody deleted it), `image_refused` or `image_service_out`.
        """
        ...
