"""The disks of simulated guests: the data of their images, and what the guests wrote behind it.

    <host's directory>/
        disks/<server>           the image's data, linked: it stays when the image is deleted
        snapshots/<server>       the one copy of a disk that waits to be sent to the image service

Without a way to the image service a disk begins with a line that names its image, and no copy of it can be sent.
"""

import asyncio
import os
import shutil
from pathlib import Path

from moorage.model.errors import HostFailed
from moorage.model.guest import GuestSpec
from moorage.model.ids import ImageId, ServerId
from moorage.model.image import ImageFile, ImageStore
from moorage.model.private_files import private_directory, private_file

NO_IMAGE_SERVICE = "no_image_service"
"""The code of what a host without a way to the image service cannot do."""
WRITTEN_MAX_BYTES = 64 * 1024
RAW, BARE = "raw", "bare"
GIB = 1024**3


class SimulatedDisks:
    """Files below one host's directory; every call is safe twice."""

    def __init__(self, directory: Path, images: ImageStore | None) -> None:
        self._disks, self._snapshots = directory / "disks", directory / "snapshots"
        self._images = images

    async def make(self, spec: GuestSpec) -> tuple[str, str]:
        """The disk of a new guest; the formats of its data. Raises HostFailed when an image cannot be had, or does not fit (0 GiB: any does)."""
        server, image, root_gib = spec.server, spec.image, spec.root_gib
        if self._images is None:
            return RAW, BARE
        for kernel in (spec.kernel, spec.ramdisk):
            if kernel:
                await self._images.fetch(kernel)
        if not image:
            return RAW, BARE
        image_file = await self._images.fetch(image)
        if 0 < root_gib * GIB < image_file.virtual_size:
            raise HostFailed(
                "Flavor's disk is too small for requested image. "
                f"Flavor disk is {root_gib * GIB} bytes, image is {image_file.virtual_size} bytes.",
                private=image,
                code="image_unusable",
            )
        private_directory(self._disks)
        disk = self._disks / server
        disk.unlink(missing_ok=True)
        try:
            os.link(image_file.path, disk)
        except OSError:  # another file system, or too many links
            await asyncio.to_thread(shutil.copyfile, image_file.path, private_file(disk))
        return image_file.disk_format, image_file.container_format

    def file_of(self, server: ServerId) -> Path:
        """Where the data of its image are, if there are any."""
        return self._disks / server

    def adopt(self, server: ServerId, arrived: Path) -> None:
        """What another host sent becomes the disk."""
        private_directory(self._disks)
        os.replace(arrived, self._disks / server)

    def remove(self, server: ServerId) -> None:
        """The guest goes, and all of its data."""
        for room in (self._disks, self._snapshots):
            (room / server).unlink(missing_ok=True)

    def read(self, server: ServerId, image: ImageId | None, written: str) -> bytes:
        """The whole disk."""
        try:
            base = (self._disks / server).read_bytes()
        except FileNotFoundError:
            base = f"image {image or 'none'}\n".encode()
        return base + written.encode()

    async def copy(self, server: ServerId, image: ImageId | None, written: str) -> None:
        """The disk as it is now becomes the copy that waits to be sent; an earlier one goes."""
        data = self.read(server, image, written)
        private_directory(self._snapshots)
        coming = private_file(self._snapshots / f"{server}.new")
        await asyncio.to_thread(coming.write_bytes, data) if self._images is not None else coming.write_bytes(data)
        os.replace(coming, self._snapshots / server)

    def has_copy(self, server: ServerId) -> bool:
        return (self._snapshots / server).exists()

    def drop_copy(self, server: ServerId) -> None:
        (self._snapshots / server).unlink(missing_ok=True)

    async def send(self, server: ServerId, into: ImageId, formats: tuple[str, str]) -> None:
        """Raises HostFailed when it cannot be sent."""
        if self._images is None:
            raise HostFailed("the host has no way to the image service", private=server, code=NO_IMAGE_SERVICE)
        await self._images.send(into, ImageFile(self._snapshots / server, *formats))
