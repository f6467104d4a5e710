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
    """The data of an image in a file on this host."""

    path: Path
    """A read-only file that may have other links; a user that needs it for longer links or copies it."""
    disk_format: str
    container_format: str
    virtual_size: int = 0
    """Size in bytes of the disk that a guest sees; 0: not known."""


class ImageStore(Protocol):
    """A host's access to images' data. Data that it returns was inspected: it has the named format, and refers to no other file."""

    async def fetch(self, image: ImageId) -> ImageFile:
        """Return the image's data. Raises HostFailed with `image_not_found`, `image_unusable` or `image_service_out`."""
        ...

    async def send(self, image: ImageId, data: ImageFile) -> None:
        """Upload the file into the queued image; a complete image is success.

        Raises HostFailed with `image_not_found` (it was deleted), `image_refused` or `image_service_out`.
        """
        ...
