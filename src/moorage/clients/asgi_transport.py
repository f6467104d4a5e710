"""Calls a service in this process directly by ASGI, as its socket would.

Through httpx, URL, header and connection objects took more time than the embedded service needed for its answer.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from typing import Any, TypeAlias
from urllib.parse import unquote, urlencode, urlsplit

import httpx
from typing_extensions import override

from moorage.model.task_context import caller

log = logging.getLogger(__name__)

Message: TypeAlias = MutableMapping[str, Any]
App: TypeAlias = Callable[[Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Any]
RawHeaders: TypeAlias = list[tuple[bytes, bytes]]


class AnswerTooLong(Exception):
    """Raised when the answer has more bytes than the caller allows."""


class RawMapping(Mapping[str, str]):
    """Headers as they were sent; names are found in any case, and values are decoded when they are read."""

    def __init__(self, raw: RawHeaders) -> None:
        self._raw = raw

    @override
    def __getitem__(self, name: str) -> str:
        wanted = name.lower().encode("latin-1")
        for each, value in self._raw:
            if each.lower() == wanted:
                return value.decode("latin-1")
        raise KeyError(name)

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name.decode("latin-1").lower() for name, _ in self._raw))

    @override
    def __len__(self) -> int:
        return len(list(iter(self)))


INSIDE = "inside"
"""The caller's address for a service in this process: such a call has no real address."""


class EmbeddedTransport(httpx.ASGITransport):
    """A transport for httpx; `ServiceClient` calls `ask` directly. Exceptions of the application become 500s, as over a socket."""

    def __init__(self, app: App) -> None:
        super().__init__(app=app, raise_app_exceptions=False)
        self._app = app

    async def ask(
        self,
        base: "Base",
        method: str,
        path: str,
        query: str,
        headers: Mapping[str, str],
        content: bytes,
        most_bytes: int,
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Send one request; `path` is quoted already. Raises TooLong when the answer has more than `most_bytes` bytes."""
        whole = base.path + path
        raw_headers = [*base.headers, *((n.lower().encode("latin-1"), v.encode("latin-1")) for n, v in headers.items())]
        if content:
            raw_headers.append((b"content-length", str(len(content)).encode()))
        scope: Message = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "headers": raw_headers,
            "scheme": base.scheme,
            "path": unquote(whole) if "%" in whole else whole,
            "raw_path": whole.encode("ascii"),
            "query_string": query.encode("ascii"),
            "server": base.server,
            "client": (INSIDE, 0),
            "root_path": "",
        }
        exchange = _Exchange(content, most_bytes)
        ours = caller.set(
            None
        )  # inside the service the caller is this process, not the client whose request we are answering
        try:
            await self._app(scope, exchange.receive, exchange.send)
        except AnswerTooLong:
            raise
        except Exception:
            log.exception("%s %s failed in the embedded service", method, whole)
            exchange.broke()
        finally:
            caller.reset(ours)
        return exchange.status, RawMapping(exchange.headers), b"".join(exchange.chunks)


class Base:
    """The part of the URL that all calls to one service share."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        self.scheme = parts.scheme
        self.path = parts.path.rstrip("/")
        self.server = (parts.hostname or "", parts.port)
        self.headers: RawHeaders = [(b"host", parts.netloc.encode("ascii"))]
        self.headers += [(name.lower().encode(), value.encode()) for name, value in headers.items()]


def is_plain(path: str) -> bool:
    """Tell whether the path needs no quoting and has no query."""
    return path.isascii() and path.isprintable() and not any(each in path for each in " ?#")


def encoded(pairs: list[tuple[str, Any]]) -> str:
    return urlencode(pairs) if pairs else ""


class _Exchange:
    """The ASGI `receive` and `send` of one request."""

    def __init__(self, content: bytes, most_bytes: int) -> None:
        self._content: bytes | None = content
        self._most = most_bytes
        self._size = 0
        self._over = asyncio.Event()
        self._began = False
        self.status = 500
        self.headers: RawHeaders = []
        self.chunks: list[bytes] = []

    async def receive(self) -> Message:
        """Give the body in one piece; afterwards wait until the answer is complete."""
        if self._content is not None:
            content, self._content = self._content, None
            return {"type": "http.request", "body": content, "more_body": False}
        await self._over.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._began = True
            self.status = message["status"]
            self.headers = list(message.get("headers", ()))
            return
        chunk: bytes = message.get("body", b"")
        self._size += len(chunk)
        if self._size > self._most:
            raise AnswerTooLong
        if chunk:
            self.chunks.append(chunk)
        if not message.get("more_body", False):
            self._over.set()

    def broke(self) -> None:
        """Give the answer of a server whose application failed before it answered."""
        if not self._began:
            self.status, self.headers, self.chunks = 500, [], []
