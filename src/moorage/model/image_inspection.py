"""Finds the format of an image's data, and whether opening it would open something else: a file of the host, or another image.

OpenStack's own inspector (`oslo.utils.imageutils.format_inspector`) finds both; a file that it accepts and that has a parent
(VMDK, VHD, VHDX, VDI) is refused in addition.  The inspector opens only the file that it is given, and reads its first 2 MiB and
its end, or, of a VHDX, its tables.  Every failure of the inspector is a refusal.
"""

import logging
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from oslo_utils.imageutils import format_inspector

HEAD_BYTES = 2 * 1024 * 1024
"""Enough for the header of every format but VHDX: the longest is the description of a VMDK, which ends before 1 MiB."""
TAIL_BYTES = 4096
PIECE_BYTES = 64 * 1024
SHORTEST_BYTES = 512
"""A shorter file is read as if zeros followed."""

RAW, ISO, GPT, VMDK, VHD, VHDX, VDI = "raw", "iso", "gpt", "vmdk", "vhd", "vhdx", "vdi"
AMI_FORMATS = ("ami", "aki", "ari")
KERNELS = frozenset({"aki", "ari"})
"""Data that is loaded, and never opened as a disk."""
BOOT_RECORD = "mbr"
"""The check of a boot record's partitions: the first sector of every Linux kernel ends as a boot record does."""
BARE = "bare"
NO_PARENT = "ffffffff"
VHD_TYPE_AT, VHD_DIFFERENCING = 60, 4
VDI_TYPE_AT, VDI_WITHOUT_PARENT = 0x4C, (1, 2)
PARENT_LOCATOR = "A8D35F2D-B30B-454D-ABF7-D3D84834AB0C"
"""The metadata item of a VHDX with a parent."""
TAKEN_AS_RAW = frozenset({RAW, ISO, GPT, "luks"})
"""Formats that may be uploaded as `raw`: they refer to no other files."""

logging.getLogger(format_inspector.__name__).setLevel(logging.CRITICAL)  # it writes users' data into the log
_log = logging.getLogger(__name__)


class Unsafe(Exception):
    """Raised when the data must not be used in the named format; the message says why."""


@dataclass(frozen=True)
class Inspected:
    format: str
    virtual_size: int
    """Bytes that a guest would see."""


class _Piece:
    """The part of a file that the inspector reads."""

    def __init__(self) -> None:
        self.data = b""

    def read(self, size: int) -> bytes:
        return self.data[:size]


def check_upload(path: Path, disk_format: str, container_format: str) -> Inspected:
    """Check an upload as Glance does. Raises Unsafe when the data must not be stored.

    In a container that is not `bare` the format may be unknown to the inspector (an archive).
    """
    inspected = inspect(path, disk_format)
    known = disk_format in format_inspector.ALL_FORMATS
    fits = (
        inspected.format == disk_format
        or (disk_format == RAW and inspected.format in TAKEN_AS_RAW)
        or (inspected.format == RAW and (not known or container_format != BARE))
    )
    if not fits:
        raise Unsafe(f"Image disk_format {disk_format} does not match stream data {inspected.format}")
    size = path.stat().st_size
    return Inspected(inspected.format, size if disk_format == RAW else inspected.virtual_size)


def check_use(path: Path, disk_format: str) -> Inspected:
    """Check the data of which a guest is made, each time, as Nova does. Raises Unsafe when they must not be used."""
    if disk_format not in (*AMI_FORMATS, *format_inspector.ALL_FORMATS):
        raise Unsafe("Image not in a supported format")
    inspected = inspect(path, disk_format)
    whole_disk = disk_format == RAW and inspected.format == GPT
    if disk_format not in AMI_FORMATS and inspected.format != disk_format and not whole_disk:
        raise Unsafe("Image content does not match disk_format")
    return inspected


def inspect(path: Path, disk_format: str = "") -> Inspected:
    """Return the format and size. Raises Unsafe when the data cannot be read, or refer to something outside themselves.

    `disk_format`: what the data is said to be; a kernel or a RAM disk may look like a disk with a boot record, as in Glance.
    """
    try:
        return _inspected(path)
    except (Unsafe, OSError):
        raise
    except format_inspector.SafetyCheckFailed as failed:
        if disk_format in KERNELS and failed.failures.keys() == {BOOT_RECORD}:
            return Inspected(RAW, path.stat().st_size)
        raise Unsafe("Image does not pass safety check: " + ", ".join(sorted(failed.failures))) from None
    except format_inspector.ImageFormatError as wrong:
        raise Unsafe(f"Image content cannot be judged: {wrong}") from None
    except Exception as failure:  # noqa: BLE001  a parser of untrusted data: data on which it fails are not used
        _log.info("an image could not be inspected: %r", failure)
        raise Unsafe("Image content cannot be read as any format") from None


def _inspected(path: Path) -> Inspected:
    piece = _Piece()
    wrapper = format_inspector.InspectWrapper(piece)  # type: ignore[arg-type]  # of a file it needs `read` alone
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        for data in _pieces(file, size):
            piece.data = data
            wrapper.read(len(data))
    wrapper.close()
    inspector = _one(wrapper)
    inspector.safety_check()
    _refuse_parents(inspector)
    own = inspector.NAME not in {RAW, GPT, "luks"}
    return Inspected(inspector.NAME, int(inspector.virtual_size) if own else size)


def _pieces(file: BinaryIO, size: int) -> Iterator[bytes]:
    head = file.read(PIECE_BYTES)
    whole = head.startswith(b"vhdxfile")
    read = 0
    while head:
        read += len(head)
        yield head
        head = file.read(PIECE_BYTES) if whole or read < HEAD_BYTES else b""
    if size < SHORTEST_BYTES:
        yield bytes(SHORTEST_BYTES - size)
    if read < size:
        file.seek(max(read, size - TAIL_BYTES))
        yield file.read(TAIL_BYTES)


def _one(wrapper: format_inspector.InspectWrapper) -> format_inspector.FileInspector:
    """The only format that fits; a bootable ISO is also a GPT disk. Raises ImageFormatError."""
    formats = {str(each): each for each in wrapper.formats or ()}
    if formats.keys() == {ISO, GPT}:
        return formats[ISO]
    inspector = wrapper.format
    if inspector is None:
        raise Unsafe("Image content cannot be read as any format")
    return inspector


def _refuse_parents(inspector: Any) -> None:
    """Refuse differencing images: opening one opens its parent too. Raises Unsafe."""
    match inspector.NAME:
        case "vmdk":
            has = _vmdk_has_parent(inspector.desc_text or "")
        case "vhd":
            (kind,) = struct.unpack_from(">I", inspector.region("header").data, VHD_TYPE_AT)
            has = kind == VHD_DIFFERENCING
        case "vdi":
            (kind,) = struct.unpack_from("<I", inspector.region("header").data, VDI_TYPE_AT)
            has = kind not in VDI_WITHOUT_PARENT
        case "vhdx":
            has = _vhdx_has_parent(inspector)
        case _:
            has = False
    if has:
        raise Unsafe("Image does not pass safety check: parent")


def _vmdk_has_parent(description: str) -> bool:
    for line in description.splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "parentfilenamehint":
            return True
        if name.strip() == "parentcid" and value.strip().strip('"') != NO_PARENT:
            return True
    return False


def _vhdx_has_parent(inspector: Any) -> bool:
    """Whether the image has a parent. Raises Unsafe when the table cannot be read."""
    if not inspector.has_region("metadata"):
        raise Unsafe("Image content is no whole vhdx")
    table = bytes(inspector.region("metadata").data)
    (count,) = struct.unpack_from("<H", table, 10)
    entries = (table[32 + 32 * number : 48 + 32 * number] for number in range(count))
    return any(len(each) < 16 or inspector._guid(each) == PARENT_LOCATOR for each in entries)
