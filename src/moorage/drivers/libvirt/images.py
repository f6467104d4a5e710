"""Base images of guests' disks: one read-only file each, kept until no disk needs it and it was not used for a while.

    <host's directory>/images/<hash of the image's id>.<raw or qcow2>

The image service names an image's format, and its first bytes must match: a disk with another format could make QEMU read another
file of this machine.  For the same reason no qcow2 image may name another file, and every call of qemu-img names the format.
"""

import asyncio
import fcntl
import hashlib
import logging
import os
import shutil
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakValueDictionary

import msgspec

from moorage.drivers.libvirt.commands import run
from moorage.model.errors import HostFailed
from moorage.model.ids import ImageId
from moorage.model.image import ImageFile, ImageStore

QCOW2_MAGIC = b"QFI\xfb"
FORMATS = ("raw", "qcow2")
KERNELS = ("aki", "ari", "raw")
COMING = ".coming"

_log = logging.getLogger(__name__)


class _Specific(msgspec.Struct, frozen=True):
    data_file: str | None = msgspec.field(default=None, name="data-file")


class _FormatSpecific(msgspec.Struct, frozen=True):
    data: _Specific = _Specific()


class DiskInfo(msgspec.Struct):
    """The result of `qemu-img info`."""

    virtual_size: int = msgspec.field(name="virtual-size")
    backing_file: str | None = msgspec.field(default=None, name="backing-filename")
    encrypted: bool = False
    specific: _FormatSpecific = msgspec.field(default=_FormatSpecific(), name="format-specific")


async def info(file: Path, kind: str) -> DiskInfo:
    """Read the facts of a disk of this format. Raises HostFailed (`image_unusable`)."""
    output = await run("qemu-img", "info", "-U", "-f", kind, "--output=json", str(file), code="image_unusable")
    return msgspec.json.decode(output, type=DiskInfo)


def kind_of(base: str) -> str:
    """Return the format of a cached file, which is the suffix of its name."""
    return base.rpartition(".")[2]


class ImageCache:
    """The base images of one host."""

    def __init__(self, room: Path, images: ImageStore | None, unused_s: float) -> None:
        self._room, self._images, self._unused_s = room / "images", images, unused_s
        self._making: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def path(self, base: str) -> Path:
        return self._room / base

    async def disk(self, image: ImageId) -> str:
        """Return the name of an image's file; fetch it if it is missing. Raises HostFailed (`image_unusable`, or a code of the fetch)."""
        return await self._have(image, FORMATS)

    async def kernel(self, image: ImageId) -> str:
        """Do the same for a kernel or an initial RAM disk, which are used unchanged."""
        return await self._have(image, KERNELS)

    async def _have(self, image: ImageId, kinds: tuple[str, ...]) -> str:
        async with self._making.setdefault(image, asyncio.Lock()):
            name = hashlib.sha256(image.encode()).hexdigest()[:40]
            for kind in kinds:
                if self._use(f"{name}.{kind}"):
                    return f"{name}.{kind}"
            if self._images is None:
                raise HostFailed("the host has no way to the image service", private=image, code="no_image_service")
            found = await self._images.fetch(image)
            await _inspect(image, found, kinds)
            base = f"{name}.{found.disk_format}"
            await asyncio.to_thread(self._put, found.path, base)
            return base

    def _use(self, base: str) -> bool:
        try:
            os.utime(self._room / base)
        except FileNotFoundError:
            return False
        return True

    def _put(self, found: Path, base: str) -> None:
        self._room.mkdir(parents=True, exist_ok=True)
        coming = self._room / f"{base}{COMING}"
        try:
            with self._alone():
                coming.unlink(missing_ok=True)
                try:
                    os.link(found, coming)
                except OSError:  # another file system
                    shutil.copyfile(found, coming)
                os.replace(coming, self._room / base)
                os.utime(self._room / base)
        except OSError as failure:
            raise HostFailed("the host's disk is full", private=str(failure), code="host_full") from failure

    def prune(self, needed: Collection[str]) -> None:
        """Remove images that no disk needs and that were not used for a while."""
        if not self._room.is_dir():
            return
        with self._alone():
            for each in self._room.iterdir():
                old = time.time() - each.stat().st_mtime > self._unused_s
                if each.name not in needed and each.name != ".lock" and old:
                    _log.info("image %s is not used any more and goes", each.name)
                    each.unlink()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with (self._room / ".lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


async def _inspect(image: ImageId, found: ImageFile, kinds: tuple[str, ...]) -> None:
    if found.container_format not in {"bare", *KERNELS} or found.disk_format not in kinds:
        what = f"{found.disk_format} in {found.container_format}"
        raise _unusable(f"Image {image} is unacceptable: this host cannot use {what}")
    first = await asyncio.to_thread(_first_bytes, found.path)
    if (found.disk_format == "qcow2") != (first == QCOW2_MAGIC):
        raise _unusable(f"Image {image} is unacceptable: its content is not of its disk_format")
    if found.disk_format == "qcow2":
        disk_info = await info(found.path, "qcow2")
        if disk_info.backing_file or disk_info.specific.data.data_file or disk_info.encrypted:
            raise _unusable(f"Image {image} is unacceptable: it names other files, or is encrypted")


def _first_bytes(file: Path) -> bytes:
    with file.open("rb") as data:
        return data.read(len(QCOW2_MAGIC))


def _unusable(public: str) -> HostFailed:
    return HostFailed(public, code="image_unusable")
