"""Answers that a listener gives itself, in plain text: no application was asked, so the format of its errors is not known."""

import math
from collections.abc import Mapping

from uvicorn._types import ASGIReceiveCallable, ASGISendCallable, Scope

BUSY_RETRY_S = 1


class PlainAnswer:
    """An ASGI application that always gives the same answer."""

    def __init__(self, status: int, sentence: str, *, retry_s: int = 0) -> None:
        self.status = status
        self._body = f"{sentence}\n".encode()
        self._headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(self._body))]
        if retry_s:
            self._headers.append((b"retry-after", b"%d" % retry_s))

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        await send({"type": "http.response.start", "status": self.status, "headers": self._headers})
        await send({"type": "http.response.body", "body": self._body, "more_body": False})

    def written(self, status_lines: Mapping[int, bytes], usual: list[tuple[bytes, bytes]]) -> bytes:
        """The answer as bytes, as the last one of a connection."""
        headers = [*usual, *self._headers, (b"connection", b"close")]
        lines = b"".join(b"%s: %s\r\n" % each for each in headers)
        return status_lines[self.status] + lines + b"\r\n" + self._body


BAD_REQUEST = PlainAnswer(400, "This is no HTTP request.")
HEAD_TOO_SLOW = PlainAnswer(408, "The headers of the request did not come in time.")
BODY_TOO_SLOW = PlainAnswer(408, "The body of the request comes too slowly.")
URL_TOO_LONG = PlainAnswer(414, "The URL is too long: ask with fewer or shorter parameters.")
HEADERS_TOO_LONG = PlainAnswer(431, "The headers of the request are too long.")
HEADERS_TOO_MANY = PlainAnswer(431, "The request has too many headers.")
BUSY = PlainAnswer(503, "Too many requests are being answered: ask again.", retry_s=BUSY_RETRY_S)
CONNECTION_FULL = PlainAnswer(503, "Too many connections are open: ask again.", retry_s=BUSY_RETRY_S)


def too_often(wait_s: float) -> PlainAnswer:
    """Build the 429 for an address that sends too many requests; `wait_s` is its `Retry-After`."""
    retry_s = math.ceil(wait_s)
    return PlainAnswer(429, f"This address asks too often: ask again in {retry_s} s.", retry_s=retry_s)
