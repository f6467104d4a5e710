"""The listener of one process for `/metrics`, `/healthz` and `/readyz`, on an address of its own."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from moorage.main.observability.requests import Message, Receive, Send

TEXT = "text/plain; charset=utf-8"
Before: TypeAlias = Callable[[], Awaitable[None]]


class MetricsListener:
    """An ASGI application. It has few callers, so it answers one request at a time."""

    def __init__(self, registry: CollectorRegistry, before: Before, troubles: Callable[[], list[str]]) -> None:
        """`before`: awaited before each answer; it takes a bounded time. `troubles`: returns why this process is not ready, a line each."""
        self._registry = registry
        self._before = before
        self._troubles = troubles

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if scope["method"] not in {"GET", "HEAD"}:
            await _send(send, scope, 405, b"GET and HEAD only are supported here.\n", TEXT)
            return
        match scope["path"]:
            case "/metrics":
                await self._before()
                encode, kind = choose_encoder(_header(scope, b"accept"))
                await _send(send, scope, 200, encode(self._registry), kind)
            case "/healthz":
                await _send(send, scope, 200, b"OK\n", TEXT)
            case "/readyz":
                await self._before()
                troubles = self._troubles()
                text = "".join(f"{each}\n" for each in troubles) or "OK\n"
                await _send(send, scope, 503 if troubles else 200, text.encode(), TEXT)
            case _:
                await _send(send, scope, 404, b"There are /metrics, /healthz and /readyz here.\n", TEXT)


def _header(scope: Message, wanted: bytes) -> str:
    return ",".join(value.decode("latin-1") for name, value in scope["headers"] if name.lower() == wanted)


async def _send(send: Send, scope: Any, status: int, body: bytes, kind: str) -> None:
    headers = [(b"content-type", kind.encode("latin-1")), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
