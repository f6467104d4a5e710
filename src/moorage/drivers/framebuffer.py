"""A simulated screen: an RFB 3.8 server (RFC 6143) that shows a few lines of text and typed keys.

It has no authentication, like most hypervisors' VNC sockets behind a console proxy; it sends whole frames, uncompressed.
"""

import asyncio
import struct
from collections.abc import Sequence

WIDTH, HEIGHT = 320, 120
SCALE = 2
MARGIN = 8
LINE = 10 * SCALE
TYPED_MAX = 24
LIST_MAX = 1_024
TEXT_MAX_BYTES = 65_536
VERSION = b"RFB 003.008\n"
NO_SECURITY = 1
OWN_FORMAT = (32, 24, 0, 1, 255, 255, 255, 16, 8, 0)
INK, PAPER = (0xF0, 0xF0, 0xE0), (0x10, 0x28, 0x48)
FONT_FROM = ord(" ")
FONT = bytes.fromhex(
    "0000000000"
    "00005f0000"
    "0007000700"
    "147f147f14"
    "242a7f2a12"
    "2313086462"
    "3649552250"
    "0005030000"
    "001c224100"
    "0041221c00"
    "082a1c2a08"
    "08083e0808"
    "0050300000"
    "0808080808"
    "0060600000"
    "2010080402"
    "3e5149453e"
    "00427f4000"
    "4261514946"
    "2141454b31"
    "1814127f10"
    "2745454539"
    "3c4a494930"
    "0171090503"
    "3649494936"
    "064949291e"
    "0036360000"
    "0056360000"
    "0008142241"
    "1414141414"
    "4122140800"
    "0201510906"
    "324979413e"
    "7e1111117e"
    "7f49494936"
    "3e41414122"
    "7f4141221c"
    "7f49494941"
    "7f09090901"
    "3e4149497a"
    "7f0808087f"
    "00417f4100"
    "2040413f01"
    "7f08142241"
    "7f40404040"
    "7f020c027f"
    "7f0408107f"
    "3e4141413e"
    "7f09090906"
    "3e4151215e"
    "7f09192946"
    "4649494931"
    "01017f0101"
    "3f4040403f"
    "1f2040201f"
    "3f4038403f"
    "6314081463"
    "0708700807"
    "6151494543"
)
"""Five columns of seven dots for each character from the space to Z, the lowest bit on top."""


def render_text(lines: Sequence[str]) -> list[bytearray]:
    """Return rows of pixels; 1 is ink."""
    rows = [bytearray(WIDTH) for _ in range(HEIGHT)]
    for number, line in enumerate(lines):
        for place, letter in enumerate(line.upper()):
            _draw(rows, MARGIN + place * 6 * SCALE, MARGIN + number * LINE, letter)
    return rows


def _draw(rows: list[bytearray], left: int, top: int, letter: str) -> None:
    at = (ord(letter) - FONT_FROM) * 5
    columns = FONT[at : at + 5] if 0 <= at < len(FONT) else b"\x7f\x41\x41\x41\x7f"
    for x, column in enumerate(columns):
        for y in range(7):
            if column >> y & 1:
                for row in rows[top + y * SCALE : top + (y + 1) * SCALE]:
                    begin = left + x * SCALE
                    if begin + SCALE <= WIDTH:
                        row[begin : begin + SCALE] = b"\x01" * SCALE


class Screen:
    """One connection of a viewer."""

    def __init__(
        self, name: str, lines: Sequence[str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._name = name.encode()[:LIST_MAX]
        self._lines = list(lines)
        self._typed = ""
        self._reader, self._writer = reader, writer
        self._format = OWN_FORMAT
        self._changed = True
        self._requested = False
        """Whether the viewer has asked for a frame: frames are only sent on request (RFC 6143, 7.6.1)."""

    async def serve(self) -> None:
        """Serve until the viewer disconnects, or sends an invalid message."""
        self._writer.write(VERSION)
        if not (await self._reader.readexactly(12)).startswith(b"RFB 003.00"):
            return
        self._writer.write(bytes([1, NO_SECURITY]))
        if (await self._reader.readexactly(1))[0] != NO_SECURITY:
            return
        self._writer.write(struct.pack(">I", 0))
        await self._reader.readexactly(1)  # whether the screen is shared: it always is
        head = struct.pack(">HH", WIDTH, HEIGHT) + struct.pack(">BBBBHHHBBBxxx", *self._format)
        self._writer.write(head + struct.pack(">I", len(self._name)) + self._name)
        await self._writer.drain()
        while await self._read_message():
            pass

    async def _read_message(self) -> bool:
        kind = (await self._reader.readexactly(1))[0]
        match kind:
            case 0:
                self._format = struct.unpack(">3xBBBBHHHBBB3x", await self._reader.readexactly(19))
                self._changed = True
                return self._format[0] in (8, 16, 32)
            case 2:
                (count,) = struct.unpack(">xH", await self._reader.readexactly(3))
                if count > LIST_MAX:
                    return False
                await self._reader.readexactly(4 * count)
            case 3:
                (incremental,) = struct.unpack(">B8x", await self._reader.readexactly(9))
                self._requested = True
                self._changed = self._changed or not incremental
                await self._show()
            case 4:
                down, key = struct.unpack(">BxxI", await self._reader.readexactly(7))
                if down and FONT_FROM <= key < 127:
                    self._typed = (self._typed + chr(key))[-TYPED_MAX:]
                    self._changed = True
                    await self._show()
            case 5:
                await self._reader.readexactly(5)
            case 6:
                (length,) = struct.unpack(">3xI", await self._reader.readexactly(7))
                if length > TEXT_MAX_BYTES:
                    return False
                await self._reader.readexactly(length)
            case _:
                return False
        return True

    async def _show(self) -> None:
        """Send the frame, if it has changed and the viewer has asked for one."""
        if not self._requested or not self._changed:
            return
        self._requested = self._changed = False
        ink, paper = self._pixel(INK), self._pixel(PAPER)
        rows = render_text([*self._lines, self._typed])
        dots = b"".join(b"".join(ink if dot else paper for dot in row) for row in rows)
        self._writer.write(struct.pack(">BxHHHHHi", 0, 1, 0, 0, WIDTH, HEIGHT, 0) + dots)
        await self._writer.drain()

    def _pixel(self, colour: tuple[int, int, int]) -> bytes:
        bits, _, big, _, *rest = self._format
        most, shifts = rest[:3], rest[3:]
        value = sum((part * top // 255) << shift for part, top, shift in zip(colour, most, shifts, strict=True))
        return (value & ((1 << bits) - 1)).to_bytes(bits // 8, "big" if big else "little")
