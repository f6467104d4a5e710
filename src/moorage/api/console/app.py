"""The console proxy as an ASGI application: pages over HTTP, consoles over WebSocket, on one port.

Who comes is looked at once, when they connect, in this order: is there room, is it a page that may (`origins.py`), is there a token and is
it good (`operations/guest/consoles.py`), does the host take the connection.  A refusal is an HTTP answer before there is any WebSocket;
its reason is in a header, for clients of the field take every byte of a body for the console's own.  From then on bytes are carried,
no faster than either side takes them, until one side ends, or, where that is configured, the token's time is over.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import MutableMapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import parse_qs

from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from moorage.api.console.origins import refuse_stranger
from moorage.api.console.pages import HEADERS, Pages
from moorage.model.console import ConsoleSocket, ConsoleToken
from moorage.model.errors import Forbidden, HostFailed, Invalid, NotFound, Problem, Unavailable
from moorage.operations.guest.consoles import Consoles

PATHS = frozenset({"/", "/websockify"})
CHUNK_BYTES = 64 * 1024
CONNECT_S = 10.0
ANSWER_MAX_BYTES = 4096
"""Of what a host answers to CONNECT."""
QUERY_FIELDS_MAX = 20
REASON = "X-Refused-Because"
GOING_AWAY, TIME_IS_OVER, BROKEN = 1001, 4001, 1011
STATUS: dict[type[Problem], int] = {Invalid: 400, Forbidden: 403, NotFound: 403, Unavailable: 503, HostFailed: 502}

_log = logging.getLogger(__name__)

Ends: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Message: TypeAlias = MutableMapping[str, Any]


@dataclass(frozen=True)
class ProxySettings:
    """What an operator may turn (`main/config.py` says what each is for)."""

    allowed_origins: tuple[str, ...] = ()
    novnc_directory: str = ""
    connections_max: int = 1_000
    connections_of_a_server_max: int = 8
    enforce_expiry: bool = False


class ConsoleProxy:
    """Serves pages and carries consoles."""

    def __init__(self, consoles: Consoles, settings: ProxySettings) -> None:
        self._consoles = consoles
        self._settings = settings
        self._pages = Pages(settings.novnc_directory, settings.allowed_origins)
        self._at_once = 0
        self._of_server: Counter[str] = Counter()

    @property
    def consoles(self) -> int:
        """How many it carries now."""
        return self._at_once

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._page(Request(scope, receive))(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._console(WebSocket(scope, receive, send))

    def _page(self, request: Request) -> Response:
        if request.method not in {"GET", "HEAD"}:
            return PlainTextResponse(
                "Only GET is supported here.", 405, {"Allow": "GET, HEAD", **self._pages.headers()}
            )
        return self._pages.page(request.url.path)

    # ------------------------------------------------------------------------------------------------ one console

    async def _console(self, socket: WebSocket) -> None:
        if self._at_once >= self._settings.connections_max:
            await _refuse(socket, Unavailable("all connections of this console proxy are taken"))
            return
        self._at_once += 1
        try:
            await self._let_in(socket)
        finally:
            self._at_once -= 1

    async def _let_in(self, socket: WebSocket) -> None:
        token: ConsoleToken | None = None
        counted = False
        try:
            token = await self._admitted(socket)
            if self._of_server[token.server] >= self._settings.connections_of_a_server_max:
                raise Unavailable("too many consoles of this server are open")
            self._of_server[token.server] += 1
            counted = True
            ends = await _connected(token.socket)
            try:
                await self._consoles.take(token)
                offered = socket.scope.get("subprotocols", [])
                await socket.accept("binary" if "binary" in offered else None)
                await self._carry(socket, ends, token)
            finally:
                ends[1].close()
                with suppress(OSError, asyncio.CancelledError):
                    await ends[1].wait_closed()
        except Problem as problem:
            await _refuse(socket, problem)
        finally:
            if counted and token is not None:
                self._of_server[token.server] -= 1
                if not self._of_server[token.server]:
                    del self._of_server[token.server]

    async def _admitted(self, socket: WebSocket) -> ConsoleToken:
        """What the token of who comes is good for. Raises the Problem that is in the way."""
        if socket.scope["path"] not in PATHS:
            raise NotFound("there is no console at this path")
        headers = socket.headers
        origins = headers.getlist("origin")
        if len(origins) > 1:
            raise Forbidden("there is more than one Origin header")
        token = await self._consoles.resolve(_token(socket))
        refuse_stranger(
            origins[0] if origins else None,
            headers.get("host"),
            self._settings.allowed_origins,
            base_url=self._consoles.settings.urls.get(token.type, ""),
            forwarded_proto=headers.get("x-forwarded-proto"),
        )
        return token

    async def _carry(self, socket: WebSocket, ends: Ends, token: ConsoleToken) -> None:
        _log.info("console %s of server %s on %s begins", token.type, token.server, token.host)
        both = [asyncio.create_task(_up(socket, ends[1])), asyncio.create_task(_down(ends[0], socket))]
        left_s = self._consoles.left_s(token) if self._settings.enforce_expiry else None
        try:
            done, _ = await asyncio.wait(both, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)
        code, why = (GOING_AWAY, "the console has ended") if done else (TIME_IS_OVER, "the token's time is over")
        _log.info("console %s of server %s on %s ends: %s", token.type, token.server, token.host, why)
        if socket.client_state is WebSocketState.CONNECTED and socket.application_state is WebSocketState.CONNECTED:
            with suppress(RuntimeError, OSError, WebSocketDisconnect):
                await socket.close(code, why)


# ---------------------------------------------------------------------------------------------------- bytes


async def _up(socket: WebSocket, host: asyncio.StreamWriter) -> None:
    """From the browser to the host, until the browser goes."""
    with suppress(WebSocketDisconnect, OSError):
        while True:
            message = await socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            data: bytes = message.get("bytes") or (message.get("text") or "").encode()
            host.write(data)
            await host.drain()


async def _down(host: asyncio.StreamReader, socket: WebSocket) -> None:
    """From the host to the browser, until the host ends."""
    with suppress(OSError, WebSocketDisconnect, RuntimeError):
        while data := await host.read(CHUNK_BYTES):
            await socket.send_bytes(data)


async def _connected(to: ConsoleSocket) -> Ends:
    """A connection to the host's socket, with CONNECT where one is wanted first. Raises HostFailed; then nothing stays open."""
    with ExitStack() as unless_given:
        try:
            async with asyncio.timeout(CONNECT_S):
                reader, writer = await asyncio.open_connection(to.host, to.port)
                unless_given.callback(writer.close)
                if to.path is not None:
                    await _ask_for(to.path, reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as failure:
            why = f"{to.host}:{to.port}: {failure!r}"
            raise HostFailed("the host's console does not answer", private=why) from failure
        unless_given.pop_all()
    return reader, writer


async def _ask_for(path: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(f"CONNECT {path} HTTP/1.1\r\n\r\n".encode())
    answer = await reader.readuntil(b"\r\n\r\n")
    if len(answer) > ANSWER_MAX_BYTES or b" 200" not in answer.split(b"\r\n")[0]:
        raise HostFailed("the host does not give this console", private=repr(answer[:200]))


# ----------------------------------------------------------------------------------------------- who comes


def _token(principal: HTTPConnection) -> str:
    """From the query, or from the cookie in which older noVNC pages pass it on. Raises Invalid without one."""
    raw = principal.scope.get("query_string", b"")
    try:
        tokens = parse_qs(raw.decode("latin-1"), max_num_fields=QUERY_FIELDS_MAX).get("token", [])
    except ValueError:
        raise Invalid("the query is too long") from None
    token = tokens[-1] if tokens else principal.cookies.get("token", "")
    if not token:
        raise Invalid("there is no token in the query, nor a cookie with one")
    return token


async def _refuse(socket: WebSocket, problem: Problem) -> None:
    """Before there is a WebSocket: an HTTP answer that says why; after that: a close."""
    _log.info("a console is refused: %s %s", problem.public, problem.private)
    status = next((number for kind, number in STATUS.items() if isinstance(problem, kind)), 500)
    reason = problem.public if status != 500 else "an unknown error has occurred"
    if socket.application_state is not WebSocketState.CONNECTING:
        with suppress(RuntimeError):
            await socket.close(BROKEN)
    elif "websocket.http.response" in socket.scope.get("extensions", {}):
        await socket.send_denial_response(Response(None, status, {**HEADERS, REASON: reason}))
    else:
        await socket.close(BROKEN)
