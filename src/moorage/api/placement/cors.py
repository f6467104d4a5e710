"""CORS as in OpenStack services: the answer to a preflight is always 200, and has the CORS headers only for allowed origins."""

from collections.abc import Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

METHODS = ("GET", "PUT", "POST", "DELETE", "PATCH", "OPTIONS", "HEAD")
SIMPLE_HEADERS = frozenset({"accept", "accept-language", "content-type", "cache-control", "content-language"})
MAX_AGE_S = 3600


class Cors:
    """Around the application, outside of authentication."""

    def __init__(self, inside: ASGIApp, origins: Sequence[str], allow_headers: Sequence[str]) -> None:
        self._inside = inside
        self._origins = frozenset(origins)
        self._allow_headers = tuple(allow_headers)
        self._known = SIMPLE_HEADERS | {name.lower() for name in allow_headers}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inside(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        allowed = origin is not None and (origin in self._origins or "*" in self._origins)
        if scope["method"] == "OPTIONS":
            await self._preflight(headers, origin if allowed else None, send)
            return

        async def stamped(message: Message) -> None:
            if message["type"] == "http.response.start" and origin is not None and allowed:
                out = MutableHeaders(scope=message)
                out["access-control-allow-origin"] = origin
                out.add_vary_header("origin")
            await send(message)

        await self._inside(scope, receive, stamped)

    async def _preflight(self, headers: Headers, origin: str | None, send: Send) -> None:
        method = headers.get("access-control-request-method")
        requested = {
            name.strip().lower()
            for name in headers.get("access-control-request-headers", "").split(",")
            if name.strip()
        }
        out = MutableHeaders({"content-length": "0"})
        if origin is not None and method in METHODS and requested <= self._known:
            out["vary"] = "origin"
            out["access-control-allow-origin"] = origin
            out["access-control-allow-methods"] = method
            out["access-control-max-age"] = str(MAX_AGE_S)
            if requested:
                out["access-control-allow-headers"] = ",".join(sorted(requested))
        await send({"type": "http.response.start", "status": 200, "headers": out.raw})
        await send({"type": "http.response.body", "body": b""})
