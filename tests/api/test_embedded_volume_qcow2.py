"""QCOW2 images are written to volumes as their content, not as their bytes."""

import os
import struct
import zlib
from pathlib import Path

import pytest

from moorage_embedded.volume import qcow2
from moorage_testing.volume_app import made, volume_service

BITS = 12
CLUSTER = 1 << BITS
IMAGE = "1a6e0000-0000-4000-8000-0000000000cc"
CONTENT = [os.urandom(CLUSTER), bytes(CLUSTER), b"again " * 682 + b"1234", b"", os.urandom(CLUSTER)]
"""Plain, zeroes, compressed, never written, plain."""


def an_image(*, version: int = 3, features: int = 0, backing: int = 0, size: int = 5 * CLUSTER - 100) -> bytes:
    """Head, first table, second table, then the clusters."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -12)
    packed = packer.compress(CONTENT[2]) + packer.flush()
    first, last = 3 * CLUSTER, 4 * CLUSTER
    squeezed = 5 * CLUSTER + 40  # it need not begin at a sector
    shift = 62 - (BITS - 8)
    sectors = (squeezed % 512 + len(packed) - 1) // 512
    table = [first | 1 << 63, 1, 1 << 62 | sectors << shift | squeezed, 0, last | 1 << 63]
    head = b"QFI\xfb" + struct.pack(">IQIIQIIQ", version, backing, 0, BITS, size, 0, 1, CLUSTER)
    head = head.ljust(72, b"\0") + struct.pack(">QQQII", features, 0, 0, 4, 104)
    body = head.ljust(CLUSTER, b"\0")
    body += struct.pack(">Q", 2 * CLUSTER | 1 << 63).ljust(CLUSTER, b"\0")
    body += struct.pack(f">{len(table)}Q", *table).ljust(CLUSTER, b"\0")
    body += CONTENT[0] + CONTENT[4]
    return (body + bytes(40) + packed).ljust(6 * CLUSTER, b"\0")


WHOLE = b"".join(each.ljust(CLUSTER, b"\0") for each in CONTENT)[: 5 * CLUSTER - 100]


def test_every_kind_of_cluster(tmp_path: Path) -> None:
    packed, raw = tmp_path / "packed", tmp_path / "raw"
    for version in (2, 3):
        packed.write_bytes(an_image(version=version))
        raw.write_bytes(bytes(8 * CLUSTER))
        assert qcow2.write_raw(packed, raw, 8 * CLUSTER) == len(WHOLE)
        assert raw.read_bytes() == WHOLE.ljust(8 * CLUSTER, b"\0")


@pytest.mark.parametrize(
    ("image", "why"),
    [
        (b"not an image".ljust(200), "no QCOW2"),
        (an_image(version=4), "version 4"),
        (an_image(backing=104), "backing file"),
        (an_image(features=4), "features"),
        (an_image(size=9 * CLUSTER), "do not fit"),
        (an_image(size=2**62), "first table"),
        (an_image()[: 5 * CLUSTER + 50].ljust(6 * CLUSTER, b"\xff"), "damaged"),
    ],
    ids=("no image", "version", "backing", "features", "too large", "table", "damaged"),
)
def test_unsupported_qcow2_features_are_refused(tmp_path: Path, image: bytes, why: str) -> None:
    packed, raw = tmp_path / "packed", tmp_path / "raw"
    packed.write_bytes(image)
    raw.write_bytes(bytes(8 * CLUSTER))
    with pytest.raises(qcow2.Unreadable, match=why):
        qcow2.write_raw(packed, raw, 8 * CLUSTER)


def test_small_clusters_of_a_large_disk_are_refused_before_any_is_looked_at(tmp_path: Path) -> None:
    """Else a file of some megabytes, whose first table names one second table again and again, takes minutes."""
    packed, raw = tmp_path / "packed", tmp_path / "raw"
    tables, per_table = 2**17 + 1, 64
    size = tables * per_table * 512
    head = struct.pack(">4sIQIIQIIQ", b"QFI\xfb", 3, 0, 0, 9, size, 0, tables, 512).ljust(512, b"\0")
    packed.write_bytes(head + struct.pack(">Q", 512 + tables * 8) * tables + struct.pack(">Q", 1) * per_table)
    raw.touch()
    with pytest.raises(qcow2.Unreadable, match="names more than 8388608 clusters"):
        qcow2.write_raw(packed, raw, size)


async def test_a_volume_of_a_qcow2_image(tmp_path: Path) -> None:
    async with volume_service(tmp_path) as cloud:
        alice = cloud.open_as("alice")
        cloud.images.put(IMAGE, an_image(), disk_format="qcow2")
        volume = await made(alice, imageRef=IMAGE)
        path = cloud.files / f"volume-{volume['id']}"
        with path.open("rb") as file:
            assert file.read(len(WHOLE) + 10) == WHOLE + bytes(10)
        assert path.stat().st_size == 1024**3
        assert [each.name for each in cloud.files.iterdir()] == [path.name]
        cloud.images.put(IMAGE, an_image(backing=104), disk_format="qcow2")
        await made(alice, "error", imageRef=IMAGE)
        cloud.images.put(IMAGE, b"KDMV", disk_format="vmdk")
        await made(alice, "error", imageRef=IMAGE)
