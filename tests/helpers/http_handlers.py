"""Services for tests of the HTTP client: each answers in the test's own process."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from moorage.clients.http import ServiceClient, embedded_transport

Handler = Callable[[Request], Awaitable[Response]]


def app_of(handler: Handler) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        response = await handler(Request(scope, receive))
        await response(scope, receive, send)

    return app


def service_client(handler: Handler, **more: Any) -> ServiceClient:
    return ServiceClient("network", "http://network", transport=embedded_transport(app_of(handler)), **more)


def answering(status: int, body: object = None) -> Handler:
    async def handler(_: Request) -> Response:
        return JSONResponse(body or {}, status)

    return handler


class Lease:
    """One that holds so long from now, until it is renewed."""

    def __init__(self, left_s: float) -> None:
        self._ends = asyncio.get_running_loop().time() + left_s

    def __call__(self) -> float:
        return self._ends - asyncio.get_running_loop().time()

    def renew(self, left_s: float) -> None:
        self._ends = asyncio.get_running_loop().time() + left_s


def counting(status: int) -> tuple[Handler, list[str]]:
    """Always the same answer, and who asked for it."""
    asked: list[str] = []

    async def handler(request: Request) -> Response:
        asked.append(request.url.path)
        return JSONResponse({}, status)

    return handler, asked
