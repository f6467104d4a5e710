"""HTTP of one connection, within limits. It extends uvicorn's protocol, which has no limits before it calls an application.

A connection is in one of three phases.  In each, only the time in which we wait for the client is counted: not the time in which we
pause reading because the application is slow, and not the time in which the application works.

    HEAD   a request line and headers come      `head_s`, `url_max_bytes`, `header_max_bytes`, `headers_max`
    BODY   a body comes                         `body_s` and what `body_least_bytes_s` adds for each byte that came
    DONE   the whole request is here            `keep_alive_s`, once it is answered

An application may answer before it has read the body, because it checks the token first.  The rest of the body is then read and
dropped, within `LINGER_S` and `LINGER_MAX_BYTES`: closing a connection with unread bytes makes TCP reset it, and the answer is lost.

The listener checks the time of all its connections once a second (`check_progress`), so a single request needs no timer.
"""

import asyncio
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any, cast

import httptools
from typing_extensions import override
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from moorage.main.connection_limits import Doorkeeper, Visit, caller_of, forwarded_address
from moorage.main.http_answers import (
    BAD_REQUEST,
    BODY_TOO_SLOW,
    BUSY,
    CONNECTION_FULL,
    HEAD_TOO_SLOW,
    HEADERS_TOO_LONG,
    HEADERS_TOO_MANY,
    URL_TOO_LONG,
    PlainAnswer,
    too_often,
)
from moorage.main.http_limits import HttpLimits
from moorage.main.rate_limits import RateLimits
from moorage.model.admission import CHARGE
from moorage.model.json_types import JsonObject

HEAD, BODY, DONE, OVER = range(4)
LINGER_S = 5.0
"""How long, after the answer, the rest of a request is still read and dropped."""
LINGER_MAX_BYTES = 16 * 1024 * 1024
PIPELINED_MAX = 64
"""Requests of one connection that wait for the answer to another."""
EMPTY_MAX_BYTES = 64 * 1024
"""Limit of bytes that belong to no request and to no part of a body: sizes of chunks, and trailers, which are not used."""


class _Refused(Exception):
    """Stops the parser: raised in one of its callbacks when a request is refused."""


@dataclass(frozen=True)
class Admission:
    """The limits of one listener, and what it has accepted at present."""

    limits: HttpLimits
    requests_max: int
    """Limit of the listener's open requests and WebSockets together."""
    rates: RateLimits | None
    doorkeeper: Doorkeeper


class LimitedProtocol(HttpToolsProtocol):
    """One HTTP connection of a listener, with limits."""

    parser: Any
    """The parser of httptools; None after the connection is lost."""
    _phase = HEAD
    _begun = False
    """Whether a first byte of this request has come."""
    _waited_s = 0.0
    """Seconds that we waited for the client in this phase."""
    _head_bytes = 0
    _read_bytes = 0
    """Bytes of the last read."""
    _body_bytes = 0
    _empty_bytes = 0
    """Bytes since the last part of a body that belong to no part."""
    _dropped_bytes = 0
    _close_after = False
    """Whether the connection ends when this request's body has come and is answered."""
    _refusal: PlainAnswer | None = None
    _unsent_bytes = 0
    _stalled_s = 0.0

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: JsonObject,
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        admission: Admission,
        visit: Visit | None = None,
    ) -> None:
        """The first four parameters are uvicorn's. `visit`: the connection was accepted already, before its TLS handshake."""
        super().__init__(config, server_state, app_state, _loop)
        self._limits = admission.limits
        self._requests_max = admission.requests_max
        self._rates = admission.rates
        self._doorkeeper = admission.doorkeeper
        self._visit = visit
        self._serving = self.app

    # ------------------------------------------------------------------------------------------------- what comes

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        if self._visit is None:
            self._visit = self._doorkeeper.admit(self.client[0] if self.client else "")
        if self._visit is None:
            self._phase = OVER
            transport.write(CONNECTION_FULL.written(STATUS_LINE, self.server_state.default_headers))
            transport.close()

    @override
    def data_received(self, data: bytes) -> None:
        if self._phase == OVER:
            self._drop(len(data))
            return
        self._read_bytes = len(data)
        began, body_bytes = self._begun, self._body_bytes
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            if self._should_upgrade():
                self.handle_websocket_upgrade()
                return
        except httptools.HttpParserError:
            self._refuse(self._refusal or BAD_REQUEST)
            return
        if self._phase == HEAD:
            if began and self._begun:
                self._head_bytes += len(data)
            if self._head_bytes > self._limits.header_max_bytes:
                self._refuse(URL_TOO_LONG if len(self.url) > self._limits.url_max_bytes else HEADERS_TOO_LONG)
        elif self._phase == BODY:
            self._body_still_comes(len(data), body_bytes)

    def _body_still_comes(self, read_bytes: int, body_bytes: int) -> None:
        if self._body_bytes == body_bytes:
            self._empty_bytes += read_bytes
            if self._empty_bytes > EMPTY_MAX_BYTES + self._limits.header_max_bytes:
                self._refuse(BAD_REQUEST)
        else:
            self._empty_bytes = 0
        if not self.cycle.keep_alive and not self.cycle.response_complete:
            self._close_after = self.cycle.keep_alive = True

    @override
    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._phase = HEAD
        self._begun = True
        self._waited_s = 0.0
        self._head_bytes = 0

    @override
    def on_headers_complete(self) -> None:
        limits = self._limits
        if len(self.url) > limits.url_max_bytes:
            self._stop(URL_TOO_LONG)
        if len(self.headers) > limits.headers_max:
            self._stop(HEADERS_TOO_MANY)
        if self._head_bytes + self._read_bytes > limits.header_max_bytes:
            head_bytes = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if head_bytes > limits.header_max_bytes:
                self._stop(HEADERS_TOO_LONG)
        if len(self.pipeline) >= PIPELINED_MAX:
            self._stop(BAD_REQUEST)
        self._phase = BODY
        self._waited_s = 0.0
        self._body_bytes = self._empty_bytes = self._dropped_bytes = 0
        self.app = self._serving
        if self._visit is not None and self._visit.trusted and (address := forwarded_address(self.headers)):
            self.scope["client"] = (address, 0)
        if len(self.tasks) >= self._requests_max:
            self._answer_instead(BUSY)
        if self._rates is not None:
            self._count(self._rates)
        super().on_headers_complete()
        if not self.parser.should_upgrade():
            self.headers = []  # trailers after the body are not headers of the request

    def _count(self, rates: RateLimits) -> None:
        caller = caller_of(self.scope["client"][0]) if self.scope["client"] else ""
        if wait_s := rates.charge_caller(caller):
            self._answer_instead(too_often(wait_s))
        elif rates.charges_projects(caller):
            cast("MutableMapping[str, Any]", self.scope)[CHARGE] = rates.charge_principal

    def _answer_instead(self, answer: PlainAnswer) -> None:
        self.app = answer
        self._doorkeeper.refuses(answer.status, self._caller)

    @property
    def _last_cycle(self) -> RequestResponseCycle | None:
        """uvicorn's cycle of the last request; None before the first request, though uvicorn's annotation allows no None."""
        return cast("RequestResponseCycle | None", self.cycle)

    @property
    def _caller(self) -> str:
        return "" if self._visit is None else self._visit.caller

    @override
    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)
        if self.cycle.response_complete:
            self._drop(len(body))

    @override
    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._phase = DONE
        self._begun = False
        self._waited_s = 0.0
        if self._close_after:
            self.cycle.keep_alive = False
            if self.cycle.response_complete:
                self.transport.close()

    @override
    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self._waited_s = 0.0
        self._body_bytes = 0
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)

    # ------------------------------------------------------------------------------------------------- who is refused

    def _stop(self, refusal: PlainAnswer) -> None:
        """Refuse the request from a callback of the parser."""
        self._refusal = refusal
        raise _Refused

    def _drop(self, count: int) -> None:
        """Count bytes that come after the answer and are dropped."""
        self._dropped_bytes += count
        if self._dropped_bytes > LINGER_MAX_BYTES:
            self.transport.close()

    def _refuse(self, refusal: PlainAnswer) -> None:
        """Answer without the application, and read no more requests. If another answer is half sent, only close the connection."""
        self._phase = OVER
        self._waited_s = 0.0
        self._doorkeeper.refuses(refusal.status, self._caller)
        self.flow.resume_reading()
        cycle = self._last_cycle
        if cycle is not None and not cycle.response_complete:
            if cycle.response_started or self.pipeline:
                self.transport.close()
                return
            cycle.disconnected = True
            cycle.message_event.set()
        self.transport.write(refusal.written(STATUS_LINE, self.server_state.default_headers))
        if self.transport.can_write_eof():
            self.transport.write_eof()

    @override
    def send_400_response(self, msg: str) -> None:
        self._refuse(BAD_REQUEST)

    # ------------------------------------------------------------------------------------------------- time

    def check_progress(self, passed_s: float) -> None:
        """Count the time since the last check, `passed_s`, and refuse the request or close the connection if it took too long."""
        self._check_answer(passed_s)
        if self.transport.is_closing() or not self._waits_for_client():
            return
        self._waited_s += passed_s
        if self._waited_s <= self._patience_s():
            return
        if self._phase == HEAD and self._begun:
            self._refuse(HEAD_TOO_SLOW)
        elif self._phase == BODY and not self.cycle.response_complete:
            self._refuse(BODY_TOO_SLOW)
        else:
            self.transport.close()

    def _waits_for_client(self) -> bool:
        cycle = self._last_cycle
        if self._phase == OVER or cycle is None or cycle.response_complete:
            return True
        return self._phase == BODY and not (self.flow.read_paused or cycle.waiting_for_100_continue or self.pipeline)

    def _patience_s(self) -> float:
        limits = self._limits
        if self._phase == HEAD:
            return limits.head_s
        if self._phase == DONE:
            return limits.keep_alive_s
        if self._phase == OVER or self.cycle.response_complete:
            return LINGER_S
        return limits.body_s + self._body_bytes / limits.body_least_bytes_s

    def _check_answer(self, passed_s: float) -> None:
        """Close the connection if the client reads nothing of its answer for too long."""
        unsent = self.transport.get_write_buffer_size()
        self._stalled_s = self._stalled_s + passed_s if unsent and unsent >= self._unsent_bytes else 0.0
        self._unsent_bytes = unsent
        if self._stalled_s > self._limits.answer_s:
            self.transport.abort()

    # ------------------------------------------------------------------------------------------------- the end

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if self._visit is not None:
            self._visit.leave()
        super().connection_lost(exc)

    @override
    def handle_websocket_upgrade(self) -> None:
        super().handle_websocket_upgrade()
        now = self.transport.get_protocol()
        assert isinstance(now, CountedWebSocket)
        now.visit = self._visit


class CountedWebSocket(WebSocketsSansIOProtocol):
    """A connection that became a WebSocket; it is counted until it ends."""

    visit: Visit | None = None

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if self.visit is not None:
            self.visit.leave()
        super().connection_lost(exc)
