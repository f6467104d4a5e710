"""Small images of every format, valid and malicious, for tests of image checks."""

import random
import struct
import uuid

GIB = 1024**3
SECTOR = 512
SECRET = b"/etc/shadow"


def qcow2(*, size: int = GIB, version: int = 3, backing: bytes = b"", features: int = 0) -> bytes:
    head = struct.pack(">4sIQIIQ", b"QFI\xfb", version, 112 if backing else 0, len(backing), 16, size)
    head += struct.pack(">IIQQIIQ", 0, 1, 3 << 16, 1 << 16, 1, 0, 0)
    head += struct.pack(">QQQII", features, 0, 0, 4, 112)
    return (head.ljust(112, b"\0") + backing).ljust(1024, b"\0")


def description(*extents: str, kind: str = "monolithicSparse", parent: str = "ffffffff", more: str = "") -> bytes:
    lines = ["# Disk DescriptorFile", "version=1", "CID=fffffffe", f"parentCID={parent}", f'createType="{kind}"']
    return "\n".join([*lines, *([more] if more else []), *(extents or ('RW 20480 SPARSE "disk.vmdk"',)), ""]).encode()


def vmdk(text: bytes | None = None, *, sectors: int = 20480) -> bytes:
    head = struct.pack("<4sIIQQQQIQQQ", b"KDMV", 1, 3, sectors, 128, 1, 20, 512, 0, 0, 0).ljust(SECTOR, b"\0")
    return head + (description() if text is None else text).ljust(20 * SECTOR, b"\0") + bytes(SECTOR)


def vhd(*, kind: int = 3, size: int = GIB) -> bytes:
    head = b"conectix" + bytes(32) + struct.pack(">Q", size) + bytes(12) + struct.pack(">I", kind)
    return head.ljust(SECTOR, b"\0") + bytes(1024)


def vdi(*, kind: int = 1, size: int = GIB) -> bytes:
    image = bytearray(1024)
    struct.pack_into("<I", image, 0x40, 0xBEDA107F)
    struct.pack_into("<I", image, 0x4C, kind)
    struct.pack_into("<Q", image, 0x170, size)
    return bytes(image)


def vhdx(*, size: int = GIB, parent: bool = False) -> bytes:
    image = bytearray(2 * 1024 * 1024)
    image[:8] = b"vhdxfile"
    struct.pack_into("<4sIII", image, 192 * 1024, b"regi", 0, 1, 0)
    image[192 * 1024 + 16 : 192 * 1024 + 32] = uuid.UUID("8B7CA206-4790-4B9A-B8FE-575F050F886E").bytes_le
    struct.pack_into("<QII", image, 192 * 1024 + 32, 1024 * 1024, 65536 + 64, 1)
    at = 1024 * 1024
    items = [("2FA54224-CD1B-4876-B211-5DBED83BF4B8", 65536, 8)]
    if parent:
        items.append(("A8D35F2D-B30B-454D-ABF7-D3D84834AB0C", 65552, 32))
    struct.pack_into("<8sHH", image, at, b"metadata", 0, len(items))
    for number, (name, offset, length) in enumerate(items):
        entry = at + 32 + 32 * number
        image[entry : entry + 16] = uuid.UUID(name).bytes_le
        struct.pack_into("<III", image, entry + 16, offset, length, 0)
    struct.pack_into("<Q", image, at + 65536, size)
    return bytes(image)


def gpt() -> bytes:
    image = bytearray(64 * 1024)
    struct.pack_into("<BBBBBBBBII", image, 446, 0, 0, 2, 0, 0xEE, 0xFF, 0xFF, 0xFF, 1, len(image) // SECTOR - 1)
    image[510:512] = b"\x55\xaa"
    image[512:520] = b"EFI PART"
    return bytes(image)


def iso() -> bytes:
    image = bytearray(64 * 1024)
    image[32768:32775] = b"\x01CD001\x01"
    struct.pack_into("<I", image, 32768 + 80, 32)
    struct.pack_into("<H", image, 32768 + 128, 2048)
    return bytes(image)


def iso_and_gpt() -> bytes:
    image = bytearray(iso())
    image[:1024] = gpt()[:1024]
    return bytes(image)


WHOLE = {
    "qcow2": qcow2(), "vmdk": vmdk(), "vhd": vhd(), "vhdx": vhdx(), "vdi": vdi(), "iso": iso(), "raw": b"a disk\n" * 99,
}  # fmt: skip
SHADOW = SECRET.decode()
WICKED: dict[str, tuple[str, bytes]] = {
    "a backing file": ("qcow2", qcow2(backing=SECRET)),
    "a backing file, version 2": ("qcow2", qcow2(version=2, backing=SECRET)),
    "a data file": ("qcow2", qcow2(features=4)),
    "a feature that nobody knows": ("qcow2", qcow2(features=1 << 7)),
    "QCOW of version 1": ("qcow2", qcow2(version=1)),
    "a description alone, with an extent": ("vmdk", description(f'RW 20480 FLAT "{SHADOW}" 0', kind="monolithicFlat")),
    "an extent elsewhere": ("vmdk", vmdk(description(f'RW 20480 SPARSE "{SHADOW}"'))),
    "a flat extent": ("vmdk", vmdk(description(f'RW 20480 FLAT "{SHADOW}" 0', kind="monolithicFlat"))),
    "a parent by its number": ("vmdk", vmdk(description(parent="12345678"))),
    "a parent by its name": ("vmdk", vmdk(description(more=f'parentFileNameHint="{SHADOW}"'))),
    "a differencing VHD": ("vhd", vhd(kind=4)),
    "a differencing VHDX": ("vhdx", vhdx(parent=True)),
    "a differencing VDI": ("vdi", vdi(kind=4)),
    "QED": ("raw", b"QED\0".ljust(1024, b"\0")),
    "two formats at once": ("iso", qcow2() + iso()[1024:]),
}


def mutated(dice: random.Random) -> tuple[str, bytes]:
    """An image of some format, called some format, with some bytes of what is read of it turned."""
    of = dice.choice([*(data for data in WHOLE.values()), *(data for _, data in WICKED.values()), gpt(), iso_and_gpt()])
    data = bytearray(of)
    places = (64, 128, SECTOR, 2 * SECTOR, 12 * SECTOR, len(data))
    for _ in range(dice.randint(0, 12)):
        if not data:
            break
        at = dice.randrange(min(dice.choice(places), len(data)))
        kind = dice.randrange(4)
        if kind == 0:
            data[at] = dice.randrange(256)
        elif kind == 1:
            data[at] ^= 1 << dice.randrange(8)
        elif kind == 2:
            value = dice.choice([b"\xff" * 8, b"\0" * 8, b"/etc/shadow", b"\x7f" + b"\xff" * 7, b'\n"RW 1 FLAT '])
            data[at : at + len(value)] = value
        else:
            del data[at : at + dice.randint(1, 64)]
    if dice.random() < 0.2:
        del data[dice.randrange(len(data) + 1) :]
    return dice.choice([*WHOLE, "ami", "aki", "ploop", "nonsense"]), bytes(data)
