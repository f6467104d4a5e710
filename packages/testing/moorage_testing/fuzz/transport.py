"""Requests as bytes on a socket: what an HTTP client would refuse to send is sent too."""

import asyncio
from dataclasses import dataclass
from urllib.parse import urlsplit

import httptools

READ_BYTES = 65_536


@dataclass(frozen=True)
class FuzzRequest:
    service: str
    payload: bytes
    whole: bool
    """It is a request by the rules of HTTP, so it must be answered."""

    @property
    def shown(self) -> str:
        return f"{self.service}: {self.payload[:600]!r}"


@dataclass
class FuzzAnswer:
    status: int
    """0: the connection was closed, or nothing came."""
    size_bytes: int = 0
    keeps: bool = False


class Nothing(Exception):
    """No answer came in time."""


def written(method: str, target: str, headers: list[tuple[str, str]], body: bytes) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    if body or method in {"POST", "PUT", "PATCH"}:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("utf-8", "replace") + b"\r\n\r\n" + body


class _Reading:
    """The callbacks of an httptools parser."""

    def __init__(self) -> None:
        self.done = False
        self.size_bytes = 0

    def on_body(self, body: bytes) -> None:
        self.size_bytes += len(body)

    def on_message_complete(self) -> None:
        self.done = True


class FuzzClient:
    """One connection to each service, opened again when it was closed."""

    def __init__(self, urls: dict[str, str]) -> None:
        self._places = {name: urlsplit(url) for name, url in urls.items()}
        self._open: dict[str, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}

    async def ask(self, request: FuzzRequest, patience_s: float) -> FuzzAnswer:
        """Raises Nothing when no answer came in time; a connection that was closed at once is tried once more."""
        try:
            async with asyncio.timeout(patience_s):
                fresh = request.service not in self._open or not request.whole
                answer = await self._ask(request, fresh)
                if answer.status == 0 and not fresh:
                    answer = await self._ask(request, True)
        except TimeoutError:
            self._close(request.service)
            raise Nothing from None
        if not answer.keeps:
            self._close(request.service)
        return answer

    async def _ask(self, request: FuzzRequest, fresh: bool) -> FuzzAnswer:
        try:
            if fresh:
                self._close(request.service)
                place = self._places[request.service]
                self._open[request.service] = await asyncio.open_connection(place.hostname, place.port)
            reader, writer = self._open[request.service]
            writer.write(request.payload)
            return await self._read(reader, writer)
        except (OSError, httptools.HttpParserError):
            return FuzzAnswer(0)

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> FuzzAnswer:
        reading = _Reading()
        parser = httptools.HttpResponseParser(reading)
        sending = asyncio.ensure_future(writer.drain())
        try:
            while not reading.done:
                data = await reader.read(READ_BYTES)
                if not data:
                    break
                parser.feed_data(data)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        keeps = reading.done and parser.should_keep_alive()
        return FuzzAnswer(parser.get_status_code(), reading.size_bytes, keeps)

    def _close(self, service: str) -> None:
        if (known := self._open.pop(service, None)) is not None:
            known[1].close()

    async def close(self) -> None:
        for service in list(self._open):
            self._close(service)
