"""Clients of the console proxy of a whole cloud."""

import asyncio
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from moorage.drivers.framebuffer import HEIGHT, WIDTH
from moorage.main.config import Hosts, Listen
from moorage.main.config_guests import Console
from moorage.main.local_cluster.ports import free_ports
from tests.cloud.conftest import Running, Start, a_config


@pytest.fixture
def with_proxy(start: Start, tmp_path: Path) -> Any:
    """A cloud with a console proxy on a free port."""

    def starting(**changes: Any) -> Any:
        api = msgspec.structs.replace(a_config(tmp_path).api, console=Listen(port=free_ports(1)[0]))
        return start(api=api, hosts=Hosts(count=1), console=Console(**changes))

    return starting


async def console(running: Running, server: str, protocol: str = "vnc", kind: str = "novnc") -> str:
    """The URL that the API gives."""
    asked = {"remote_console": {"protocol": protocol, "type": kind}}
    reply = await running.admin.compute("POST", f"/servers/{server}/remote-consoles", asked)
    assert reply.status_code == 200, reply.text
    answer = reply.json()["remote_console"]
    assert (answer["protocol"], answer["type"]) == (protocol, kind)
    return str(answer["url"])


def token_of(url: str) -> str:
    query = parse_qs(urlsplit(url).query)
    return query["token"][0] if "token" in query else query["path"][0].removeprefix("?token=")


def address(running: Running, url: str) -> str:
    """The WebSocket behind a URL, as noVNC's page makes it."""
    return f"ws://127.0.0.1:{running.config.api.console.port}/?token={token_of(url)}"


def open_at(url: str, **more: Any) -> Any:
    return connect(url, proxy=None, open_timeout=180, **more)


async def refused(url: str, **more: Any) -> tuple[int, str]:
    """Status and reason."""
    with pytest.raises(InvalidStatus) as caught:
        async with open_at(url, **more):
            pass
    response = caught.value.response
    assert not response.body  # an old client takes it for the console's first bytes
    return response.status_code, response.headers["X-Refused-Because"]


async def closed(socket: ClientConnection) -> tuple[int | None, str | None]:
    """Code and reason with which the proxy ends the connection."""
    async with asyncio.timeout(180):
        with suppress(ConnectionClosed):
            async for _ in socket:
                pass
    return socket.close_code, socket.close_reason


class Viewer:
    """Reads exact numbers of bytes from a WebSocket."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket, self._have = socket, b""

    async def read(self, count: int) -> bytes:
        async with asyncio.timeout(180):
            while len(self._have) < count:
                more = await self.socket.recv()
                self._have += more if isinstance(more, bytes) else more.encode()
        found, self._have = self._have[:count], self._have[count:]
        return found

    async def shake_hands(self) -> str:
        """RFB 3.8; the screen's name."""
        assert await self.read(12) == b"RFB 003.008\n"
        await self.socket.send(b"RFB 003.008\n")
        assert await self.read(2) == b"\x01\x01"
        await self.socket.send(b"\x01")
        assert await self.read(4) == b"\0\0\0\0"
        await self.socket.send(b"\x01")
        width, height = struct.unpack(">HH", (await self.read(20))[:4])
        assert (width, height) == (WIDTH, HEIGHT)
        (length,) = struct.unpack(">I", await self.read(4))
        return (await self.read(length)).decode()

    async def shown(self) -> list[bytes]:
        """The picture, as rows of bytes that are 1 where there is ink."""
        head = await self.read(16)
        assert head[0] == 0
        x, y, width, height, encoding = struct.unpack(">4xHHHHi", head)
        assert (x, y, encoding) == (0, 0, 0)
        dots = await self.read(width * height * 4)
        paper = dots[:4]
        inked = bytes(dots[at : at + 4] != paper for at in range(0, len(dots), 4))
        return [inked[row * width : (row + 1) * width] for row in range(height)]
