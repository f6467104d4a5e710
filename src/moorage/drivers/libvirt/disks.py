"""Disks of guests: qcow2 files; the root disk is based on its image. Every call of qemu-img names the formats."""

import os
from collections.abc import Sequence
from pathlib import Path

from moorage.drivers.libvirt.commands import DISK_S, run
from moorage.drivers.libvirt.images import ImageCache, info, kind_of
from moorage.model.errors import HostFailed
from moorage.model.guest import EphemeralDisk, GuestSpec
from moorage.model.local_disks import LOCAL_MAX, XFS

ROOT, SWAP, DRIVE = "disk", "disk.swap", "disk.config"
EPHEMERALS = tuple(f"disk.eph{at}" for at in range(LOCAL_MAX))
WHOLE = (ROOT, *EPHEMERALS, SWAP)
"""The disks that a guest may have here, which move with it."""
RESCUE, RESCUE_DRIVE = "disk.rescue", "disk.config.rescue"
KERNEL, RAMDISK, RESCUE_KERNEL, RESCUE_RAMDISK = "kernel", "ramdisk", "kernel.rescue", "ramdisk.rescue"
NVRAM = "nvram.fd"
"""The variables of a guest's UEFI firmware."""
OVERLAY = "disk.above"
"""The overlay to which a guest writes while its disk is copied."""
CONSOLE = "console.log"
CONSOLE_MAX_BYTES, CONSOLE_KEPT_BYTES = 4 << 20, 1 << 20
"""Of the file that holds what a guest wrote, when it is switched on: a longer one is cut to its end."""
GIB, MIB = 1 << 30, 1 << 20
MAKES_XFS = "mkfs.xfs"
"""The program that not all hosts have: those that do have a trait for it."""


async def make_over(images: ImageCache, base: str, disk: Path, size_bytes: int) -> None:
    """A disk over an image, of the size of the image at least; 0: just that. Raises HostFailed (`disk_too_small`)."""
    below, kind = images.path(base), kind_of(base)
    least = (await info(below, kind)).virtual_size
    if size_bytes and least > size_bytes:
        why = f"{least} bytes, {size_bytes} asked"
        raise HostFailed("Flavor's disk is too small for requested image.", private=why, code="disk_too_small")
    _make_way(disk)
    size = str(max(size_bytes, least))
    await run("qemu-img", "create", "-q", "-f", "qcow2", "-F", kind, "-b", str(below.resolve()), str(disk), size)


async def make_empty(disk: Path, size_bytes: int) -> None:
    _make_way(disk)
    await run("qemu-img", "create", "-q", "-f", "qcow2", str(disk), str(size_bytes))


def ephemerals(spec: GuestSpec) -> Sequence[tuple[str, EphemeralDisk]]:
    """File name and disk of each. Raises HostFailed when there are more than a server may have."""
    wanted = spec.ephemeral_disks
    if len(wanted) > len(EPHEMERALS):
        raise HostFailed("the guest has too many local disks", private=f"{len(wanted)}", code="guest_failed")
    return tuple(zip(EPHEMERALS, wanted, strict=False))


async def make_ephemerals(place: Path, spec: GuestSpec) -> None:
    """Make those that are not there, and grow those that are."""
    for at, (name, each) in enumerate(ephemerals(spec)):
        if (place / name).exists():
            await grow(place / name, each.size_gib * GIB)
        else:
            await _make_ephemeral(place / name, each, f"ephemeral{at}", spec.image_properties.get("os_type", ""))


async def _make_ephemeral(disk: Path, wanted: EphemeralDisk, label: str, os_type: str) -> None:
    """With a file system of Nova's label. Nobody asked for one: ext4; a guest that says that it is Windows makes its own."""
    size_bytes = wanted.size_gib * GIB
    if wanted.format == XFS:
        await _make_of_raw(disk, size_bytes, MAKES_XFS, "-q", "-f", "-K", "-L", label)
    elif wanted.format or os_type != "windows":
        options = ("-t", wanted.format or "ext4", "-L", label, "-E", "nodiscard")
        await _make_of_raw(disk, size_bytes, "mke2fs", "-q", "-F", *options)
    else:
        await make_empty(disk, size_bytes)


async def make_swap(disk: Path, size_bytes: int) -> None:
    """With the header that makes it one."""
    await _make_of_raw(disk, size_bytes, "mkswap")


async def _make_of_raw(disk: Path, size_bytes: int, *words: str) -> None:
    """A program writes what belongs on it into a file with holes, which becomes the disk."""
    raw = disk.with_name(f"{disk.name}.raw")
    _make_way(raw)
    try:
        os.truncate(raw, size_bytes)
        await run(*words, str(raw), limit_s=DISK_S)
        _make_way(disk)
        await run("qemu-img", "convert", "-q", "-f", "raw", "-O", "qcow2", str(raw), str(disk), limit_s=DISK_S)
    finally:
        _drop(raw)


async def grow(disk: Path, size_bytes: int) -> None:
    """Grow a disk to at least this size; a smaller size changes nothing."""
    if (await info(disk, "qcow2")).virtual_size < size_bytes:
        await run("qemu-img", "resize", "-q", "-f", "qcow2", str(disk), str(size_bytes))


async def copy_flat(disk: Path, to: Path) -> None:
    """Copy a disk with its base image into one file; the guest may have it open if it does not write to it."""
    coming = to.with_name(f"{to.name}.coming")
    _make_way(coming)
    try:
        words = ("convert", "-q", "-U", "-f", "qcow2", "-O", "qcow2", str(disk), str(coming))
        await run("qemu-img", *words, limit_s=DISK_S)
        os.replace(coming, to)
    finally:
        _drop(coming)


async def copy_raw(of: Path, to: Path) -> None:
    """Copy one volume's data into another one, which is large enough; no guest may have them open."""
    await run("qemu-img", "convert", "-q", "-n", "-f", "raw", "-O", "raw", str(of), str(to), limit_s=DISK_S)


async def merge_down(above: Path) -> None:
    """Merge an overlay into the disk below it; nothing may have them open."""
    await run("qemu-img", "commit", "-q", "-f", "qcow2", str(above), limit_s=DISK_S)
    _drop(above)


async def copy_file(of: Path, to: Path) -> None:
    """Copy a file unchanged, with its holes, and without its blocks where the file system can share them."""
    coming = to.with_name(f"{to.name}.coming")
    _make_way(coming)
    try:
        await run("cp", "--reflink=auto", "--sparse=auto", "--", str(of), str(coming), limit_s=DISK_S)
        os.replace(coming, to)
    finally:
        _drop(coming)


def shorten(log: Path) -> None:
    """Cut old output from a guest's console log, because no daemon of libvirt does it here."""
    if log.exists() and log.stat().st_size > CONSOLE_MAX_BYTES:
        with log.open("r+b") as file:
            file.seek(-CONSOLE_KEPT_BYTES, os.SEEK_END)
            end = file.read()
            file.seek(0)
            file.write(end)
            file.truncate()


def keep_drive(file: Path, image: bytes) -> None:
    """Write a config drive atomically. Raises HostFailed when the disk is full."""
    coming = file.with_name(f"{file.name}.coming")
    try:
        coming.touch(mode=0o600)
        coming.write_bytes(image)
        os.replace(coming, file)
    except OSError as failure:
        raise HostFailed("the host's disk is full", private=f"{file}: {failure}", code="host_full") from failure


def _drop(file: Path) -> None:
    """Remove a file; its name is free at once, also if the file is large."""
    file.unlink(missing_ok=True)


def _make_way(file: Path) -> None:
    """For a disk that is nobody else's to read: qemu-img keeps the mode of a file that is there. libvirt gives it to QEMU's user."""
    file.unlink(missing_ok=True)
    file.touch(mode=0o600)
