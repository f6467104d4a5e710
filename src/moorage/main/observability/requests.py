"""Makes a span of each request, around any of our ASGI applications, and decides whether a caller's `traceparent` is used."""

import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, TypeAlias

from moorage.model.ids import new_uuid
from moorage.model.tracing import Span, SpanType, answering, span

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER, NO_ROUTE = "other", "none"
TRACEPARENT = re.compile(rb"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
"""Version 00 of W3C Trace Context; other versions are ignored, as the specification asks."""

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Message, Receive, Send], Awaitable[None]]


def traceparent_of(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the caller's `traceparent` if it is well formed; empty otherwise."""
    values = [value for name, value in headers if name.lower() == b"traceparent"]
    match = TRACEPARENT.fullmatch(values[0]) if len(values) == 1 else None
    if match is None or not match[1].strip(b"0") or not match[2].strip(b"0"):
        return ""
    return values[0].decode("ascii")


class RequestMetrics:
    """Counts and traces the requests of an application. Connections that are not HTTP pass through unchanged."""

    def __init__(self, service: str, app: Any, *, trust_callers: bool) -> None:
        """`trust_callers`: a request is part of the trace that its caller names."""
        self._service = service
        self._app = app
        self._trust = trust_callers

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        parent = traceparent_of(scope["headers"]) if self._trust else ""
        method = scope["method"] if scope["method"] in METHODS else OTHER
        request_span = span(
            SpanType.REQUEST,
            self._service,
            parent=parent,
            seed=f"req-{new_uuid()}",
            service=self._service,
            method=method,
            route="",
        )
        with request_span, answering(request_span):
            try:
                await self._app(scope, receive, _observed_send(send, request_span))
            except Exception:
                request_span.came_to(request_span.outcome or "500")  # the server answers 500 then
                raise
            finally:
                route = request_span.facts.get("route") or getattr(scope.get("route"), "path", NO_ROUTE)
                request_span.annotate(route=route)
                request_span.called(f"{method} {route}")
                if not request_span.outcome:
                    request_span.came_to("none")  # nothing was answered: the client is gone


def _observed_send(send: Send, request_span: Span) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            request_span.came_to(str(message["status"]))
        await send(message)

    return sending
