"""Which pages may open a console, what stays open if a console is refused, and which parts of the fake screen others rely on."""

import asyncio
import struct

import pytest

from moorage.api.console.app import _connected
from moorage.api.console.origins import refuse_stranger
from moorage.drivers.framebuffer import HEIGHT, WIDTH, Screen, render_text
from moorage.model.console import ConsoleSocket, ConsoleType
from moorage.model.errors import Forbidden, HostFailed
from moorage.operations.guest.consoles import access_url
from moorage_testing.waiting import PATIENCE_S

BASE = "https://console.example.org/vnc_lite.html"
GOOD = [
    (None, "other:1", (), None),
    ("https://console.example.org", "console.example.org:6080", (), None),
    ("https://CONSOLE.example.org:443", "console.example.org", (), None),
    ("https://[::1]:6080", "[::1]:6080", (), None),
    ("https://horizon.example.org", "console.example.org", ("Horizon.example.org",), None),
    ("http://console.example.org", "console.example.org", (), "https"),
]
BAD = [
    ("https://evil.org", "console.example.org", (), None, "pages of evil.org"),
    ("https://console.example.org.evil.org", "console.example.org", (), None, "pages of"),
    ("http://console.example.org", "console.example.org", (), None, "protocol"),
    ("https://console.example.org", "console.example.org", (), "http", "protocol"),
    ("null", "console.example.org", (), None, "not valid"),
    ("", "console.example.org", (), None, "not valid"),
    ("https://", "", (), None, "not valid"),
    ("https://[bad", "console.example.org", (), None, "not valid"),
    ("https://console.example.org", None, (), None, "pages of"),
    ("file:///etc/passwd", "console.example.org", (), None, "not valid"),
]


@pytest.mark.parametrize(("origin", "host", "allowed", "forwarded"), GOOD)
def test_pages_that_may(origin: str | None, host: str, allowed: tuple[str, ...], forwarded: str | None) -> None:
    refuse_stranger(origin, host, allowed, base_url=BASE, forwarded_proto=forwarded)


@pytest.mark.parametrize(("origin", "host", "allowed", "forwarded", "why"), BAD)
def test_pages_that_may_not(
    origin: str, host: str | None, allowed: tuple[str, ...], forwarded: str | None, why: str
) -> None:
    with pytest.raises(Forbidden, match=why):
        refuse_stranger(origin, host, allowed, base_url=BASE, forwarded_proto=forwarded)


def test_a_serial_console_uses_its_underlying_protocol() -> None:
    refuse_stranger("https://c", "c", (), base_url="wss://c/")
    with pytest.raises(Forbidden):
        refuse_stranger("http://c", "c", (), base_url="wss://c/")


def test_where_the_token_is_in_a_url() -> None:
    assert access_url("http://p/vnc.html?autoconnect=1", ConsoleType.NOVNC, "t") == (
        "http://p/vnc.html?autoconnect=1&path=%3Ftoken%3Dt"
    )
    assert access_url("http://p/vnc.html?path=websockify", ConsoleType.NOVNC, "t") == (
        "http://p/vnc.html?path=websockify%3Ftoken%3Dt"
    )
    assert access_url("ws://p/", ConsoleType.SERIAL, "t") == "ws://p/?token=t"


@pytest.mark.parametrize(
    "form",
    [(32, 24, 0, 1, 255, 255, 255, 0, 8, 16), (16, 16, 1, 1, 31, 63, 31, 11, 5, 0), (8, 8, 0, 1, 7, 7, 3, 0, 3, 6)],
)
async def test_a_viewer_chooses_how_dots_are_sent(form: tuple[int, ...]) -> None:
    """And what cannot be understood ends the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await Screen("é", ("é\u4e00" * 40, "b"), reader, writer).serve()
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"RFB 003.008\n\x01\x01" + struct.pack(">B3xBBBBHHHBBB3x", 0, *form))
    writer.write(struct.pack(">BxHi", 2, 1, 0) + struct.pack(">BBHHHH", 3, 0, 0, 0, WIDTH, HEIGHT))
    writer.write(struct.pack(">BBHH", 5, 0, 1, 1) + struct.pack(">B3xI", 6, 2) + b"hi" + b"\x63")
    async with asyncio.timeout(120):
        got = await reader.read()
    writer.close()
    server.close()
    name = "é".encode()
    assert len(got) == 12 + 2 + 4 + 24 + len(name) + 16 + WIDTH * HEIGHT * form[0] // 8
    assert any(any(row) for row in render_text(["A"]))


async def test_a_silent_host_keeps_no_connection_open() -> None:
    """Whoever has a token may try again and again: each would cost the proxy a connection."""
    closed = asyncio.Event()

    async def hangs(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write_eof()
        await reader.read()
        closed.set()
        writer.close()

    server = await asyncio.start_server(hangs, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    with pytest.raises(HostFailed, match="does not answer"):
        await _connected(ConsoleSocket(host, port, path="console"))
    async with asyncio.timeout(PATIENCE_S):
        await closed.wait()
    server.close()
