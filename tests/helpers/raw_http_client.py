"""A listener on a free port with an application, and clients that send bytes to it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from moorage.main.config import ApiConfig, Config, Listen
from moorage.main.http_limits import HttpLimits
from moorage.main.http_servers import HttpServer
from moorage_testing.waiting import PATIENCE_S, until


class Echo:
    """Answers how long the body is; `/early` before it has read it, `/gate` when it is told to, `/long` with a long answer."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.scopes: list[Any] = []
        self.gone = 0
        self.read = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept"})
            while (await receive())["type"] != "websocket.disconnect":
                pass
            return
        self.scopes.append(scope)
        if scope["path"] == "/gate":
            await self.gate.wait()
        length = 0
        while scope["path"] not in {"/early", "/long"}:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.gone += 1
                return
            length += len(message["body"])
            self.read = length
            if not message["more_body"]:
                break
        body = (
            b"x" * 32 * 1024 * 1024
            if scope["path"] == "/long"
            else b"{}"
            if scope["path"] == "/json"
            else b"%d" % length
        )
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


@dataclass
class Ends:
    """One connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def say(self, *parts: bytes) -> None:
        self.writer.write(b"".join(parts))
        await self.writer.drain()

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """One answer; its length is said."""
        async with asyncio.timeout(PATIENCE_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
            body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return int(head[0].split()[1]), headers, body

    async def ended(self) -> bool:
        """When the other side has ended it: nothing more comes."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                return await self.reader.read(65536) == b""
            except ConnectionError:
                return True

    def close(self) -> None:
        self.writer.close()


@dataclass
class Listening:
    door: HttpServer
    app: Any
    ends: list[Ends] = field(default_factory=list)

    async def connect(self, **options: Any) -> Ends:
        made = Ends(*await asyncio.open_connection("127.0.0.1", self.door.port, **options))
        self.ends.append(made)
        return made

    async def ask(self, request: bytes, **options: Any) -> tuple[int, dict[str, str], bytes]:
        """On a connection of its own."""
        ends = await self.connect(**options)
        await ends.say(request)
        try:
            return await ends.answer()
        finally:
            ends.close()

    async def time_passes(self, seconds: float) -> None:
        """For all connections, once what was sent is read."""
        for connection in self.door.connections:
            connection.check_progress(seconds)

    async def empty(self) -> None:
        await until(lambda: self.door.doorkeeper.inside == 0)


@asynccontextmanager
async def listening(
    app: Any = None,
    *,
    limits: HttpLimits | None = None,
    websockets_max: int = 0,
    listen: Listen | None = None,
    **api: Any,
) -> AsyncIterator[Listening]:
    """`api`: other settings of `[api]`."""
    config = Config(api=ApiConfig(limits=limits or HttpLimits(), **api))
    door = HttpServer("compute", listen or Listen(port=0), config)
    found = Listening(door, app or Echo())
    await door.open(found.app, websockets_max=websockets_max)
    try:
        yield found
    finally:
        for each in found.ends:
            each.close()
        await door.close()


def get(path: str = "/", *headers: bytes) -> bytes:
    return (
        b"GET " + path.encode() + b" HTTP/1.1\r\nHost: x\r\n" + b"".join(each + b"\r\n" for each in headers) + b"\r\n"
    )


def post(path: str, declared: int, *sent: bytes, headers: bytes = b"") -> bytes:
    """With as much of its body as is given."""
    head = b"POST " + path.encode() + b" HTTP/1.1\r\nHost: x\r\n" + headers
    return head + b"Content-Length: %d\r\n\r\n" % declared + b"".join(sent)
