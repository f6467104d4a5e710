"""What uploaded data is, by its first bytes: an image that says `raw` must not turn out to be a chain of other files.

A qcow2 that names a backing file or an external data file would make whoever opens it read that file; it is refused.
"""

import struct

HEAD_BYTES = 64 * 1024

_QCOW2_EXTERNAL_DATA = 1 << 2
_MAGIC = (
    (0, b"QFI\xfb", "qcow2"),
    (0, b"KDMV", "vmdk"),
    (0, b"# Disk DescriptorFile", "vmdk"),
    (0, b"vhdxfile", "vhdx"),
    (0, b"conectix", "vhd"),
    (0x40, b"\x7f\x10\xda\xbe", "vdi"),
    (0x8001, b"CD001", "iso"),
)
# An ISO is at home among raw disks too (hybrid images); the AMI family says nothing of its bytes.
_ALSO = {"raw": {"iso"}}
_UNJUDGED = frozenset({"ami", "ari", "aki", "ploop", "vhd"})


def format_of(head: bytes) -> str:
    """The format whose mark the data bears; `raw` when it bears none."""
    for at, mark, name in _MAGIC:
        if head[at : at + len(mark)] == mark:
            return name
    return "raw"


def complaint(declared: str, head: bytes) -> str | None:
    """Why this data may not be an image of format `declared`, or None."""
    found = format_of(head)
    if declared not in _UNJUDGED and found != declared and found not in _ALSO.get(declared, ()):
        return f"Image content does not match disk_format: declared {declared}, found {found}"
    if found == "qcow2":
        return _qcow2_complaint(head)
    return None


def _qcow2_complaint(head: bytes) -> str | None:
    if len(head) < 72:
        return "Image content is not a whole qcow2 header"
    version, backing = struct.unpack(">IQ", head[4:16])
    if backing:
        return "Image content names a backing file, which is not allowed"
    if version >= 3 and len(head) >= 80:
        (features,) = struct.unpack(">Q", head[72:80])
        if features & _QCOW2_EXTERNAL_DATA:
            return "Image content names a data file, which is not allowed"
    return None


def virtual_size(head: bytes, size: int) -> int | None:
    """Bytes the guest will see; None when the format hides it from us."""
    found = format_of(head)
    if found == "qcow2" and len(head) >= 32:
        return int(struct.unpack(">Q", head[24:32])[0])
    if found == "vmdk" and head[:4] == b"KDMV" and len(head) >= 20:
        return int(struct.unpack("<Q", head[12:20])[0]) * 512
    return size if found in {"raw", "iso"} else None
