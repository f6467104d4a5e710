"""Read QCOW2 images (QEMU's `docs/interop/qcow2.txt`): what volumes are most often made of.

Read are versions 2 and 3, with clusters that are plain, zeroes or compressed with zlib.  Refused are images that would make
us open other files (a backing file, an external data file), encrypted ones, and what later versions may add.
"""

import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

MAGIC = b"QFI\xfb"
HEAD_BYTES = 104
L1_MAX_BYTES = 32 * 1024 * 1024
"""QEMU's own limit."""
CLUSTERS_MAX = 8 * 1024 * 1024
"""Of those that the second tables name, whatever the image's size: each is looked at; with clusters of the usual 64 KiB, 512 GiB."""
DIRTY = 1
"""Of the incompatible features: reference counts are not up to date, which only writers mind."""
_OFFSET = 0x00FF_FFFF_FFFF_FE00


class Unreadable(Exception):
    """The sentence says why."""


@dataclass(frozen=True)
class Head:
    cluster_bits: int
    size: int
    l1_entries: int
    l1_offset: int

    @property
    def cluster(self) -> int:
        return 1 << self.cluster_bits

    @property
    def l2_entries(self) -> int:
        return self.cluster // 8


def head_of(text: bytes) -> Head:
    """Raises Unreadable."""
    if len(text) < 72 or text[:4] != MAGIC:
        raise Unreadable("it is no QCOW2 image")
    version, backing, _, bits, size, crypt, l1_entries, l1_offset = struct.unpack(">IQIIQIIQ", text[4:48])
    if version not in (2, 3):
        raise Unreadable(f"it is QCOW2 of version {version}, not 2 or 3")
    if backing:
        raise Unreadable("it has a backing file")
    if crypt:
        raise Unreadable("it is encrypted")
    if not 9 <= bits <= 21:
        raise Unreadable("its clusters are of no size that there is")
    if version == 3 and len(text) >= 80:
        features = struct.unpack(">Q", text[72:80])[0]
        if features & ~DIRTY:
            raise Unreadable(f"it needs features that are not read here ({features:#x})")
    head = Head(bits, size, l1_entries, l1_offset)
    wanted = -(-size // (head.cluster * head.l2_entries))
    if l1_entries < wanted or l1_entries * 8 > L1_MAX_BYTES:
        raise Unreadable("its first table is of no size that fits")
    return head


def write_raw(source: Path, target: Path, limit: int) -> int:
    """The image's content into the file at `target`, which exists and is zeroes; its size. Raises Unreadable."""
    with source.open("rb") as image, target.open("r+b") as raw:
        head = head_of(image.read(HEAD_BYTES))
        if head.size > limit:
            raise Unreadable(f"its {head.size} bytes do not fit into {limit}")
        table = os.pread(image.fileno(), head.l1_entries * 8, head.l1_offset)
        entries = [entry for (entry,) in struct.iter_unpack(">Q", table[: len(table) // 8 * 8])]
        if sum(1 for entry in entries if entry & _OFFSET) * head.l2_entries > CLUSTERS_MAX:
            raise Unreadable(f"it names more than {CLUSTERS_MAX} clusters: convert it to larger ones")
        for place, entry in enumerate(entries):
            if offset := entry & _OFFSET:
                _write_l2(image, raw, head, offset, place * head.l2_entries * head.cluster)
    return head.size


def _write_l2(image: BinaryIO, raw: BinaryIO, head: Head, offset: int, at: int) -> None:
    table = os.pread(image.fileno(), head.cluster, offset)
    for (entry,) in struct.iter_unpack(">Q", table[: len(table) // 8 * 8]):
        if at >= head.size:
            return
        data = _cluster(image, head, entry)
        if data:
            os.pwrite(raw.fileno(), data[: head.size - at], at)
        at += head.cluster


def _cluster(image: BinaryIO, head: Head, entry: int) -> bytes:
    """Nothing for zeroes."""
    if entry & (1 << 62):
        return _compressed(image, head, entry)
    offset = entry & _OFFSET
    if not offset or entry & 1:
        return b""
    return os.pread(image.fileno(), head.cluster, offset)


def _compressed(image: BinaryIO, head: Head, entry: int) -> bytes:
    shift = 62 - (head.cluster_bits - 8)
    offset = entry & ((1 << shift) - 1)
    sectors = ((entry >> shift) & ((1 << (head.cluster_bits - 8)) - 1)) + 1
    packed = os.pread(image.fileno(), sectors * 512 - (offset & 511), offset)
    try:
        found = zlib.decompressobj(-15).decompress(packed, head.cluster)
    except zlib.error as failure:
        raise Unreadable(f"a compressed cluster is damaged: {failure}") from None
    if len(found) != head.cluster:
        raise Unreadable("a compressed cluster is too short")
    return found
