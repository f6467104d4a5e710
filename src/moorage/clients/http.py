"""Makes all calls to services: each call has credentials, a deadline and a request id, and fails with a Problem.

    identity = ServiceClient("identity", "http://keystone:5000/v3")
    tokens = ServiceTokens(identity, user="moorage", password=…, project="service")
    network = ServiceClient("network", "http://neutron:9696/v2.0", tokens=tokens)
    reply = await network.call("GET", "/ports", params={"device_id": server})

Nothing is retried here, because steps retry. The one exception: a call refused with 401 was not carried out, so it is made once more
with a new service token.

The kinds of failures, for the step that must decide whether to look before it acts again:

    never sent (no connection, no free one, no lease) → Unavailable
    sent, and no answer: a read                       → Unavailable
    sent, and no answer: a write                      → UnknownOutcome
    500, 502, 504: a write may have been carried out  → UnknownOutcome, a read → Unavailable
    429, 503: not carried out                         → Unavailable, with when to come back if they say so
    2xx that cannot be read: carried out, a write     → UnknownOutcome, a read → Unavailable
    401, 403 to our own account: our configuration is wrong  → Unavailable with the code `credentials`; nothing was carried out
    other 4xx                                         → the Refusal of that kind, with the service's own message
    a 500 that is a refusal by its type (Neutron's PortBindingError)  → Conflict, with that code
    it kept failing and is not called: never sent     → CircuitOpen, which is Unavailable (`circuit_breaker.py`)
"""

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeAlias

import httpx
import msgspec

from moorage.clients.asgi_transport import AnswerTooLong, Base, EmbeddedTransport, encoded, is_plain
from moorage.clients.circuit_breaker import Breaker, Permit
from moorage.clients.connection_pools import PoolSet
from moorage.clients.deadline import Deadline, LeaseEnds
from moorage.clients.replies import CREDENTIALS, SAFE_METHODS, ServiceResponse, problem_of
from moorage.clients.service_tokens import ServiceTokens
from moorage.model.errors import Internal, Refusal, Unavailable, UnknownOutcome
from moorage.model.task_context import global_request_id
from moorage.model.tracing import Span, SpanType, span, traceparent

Json: TypeAlias = dict[str, Any]
Body: TypeAlias = Json | list[Json]
"""The body of a request: an object, or the list of changes of a JSON patch."""
Params: TypeAlias = Mapping[str, str | int | Sequence[str]]

CALL_DEADLINE_S = 30.0
PATIENCE_WHOLE = 0.99
"""A call that was given up before this part of its deadline ended with its lease, which is not the service's failure."""
REPLY_MAX_BYTES = 64 * 1024 * 1024

_DATA_TIMEOUT = httpx.Timeout(300.0, connect=5.0)
"""Timeout for one piece of data: a service computes the digest of what it received before it answers."""
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)


def embedded_transport(app: Any) -> httpx.AsyncBaseTransport:
    """Return a transport into a service of this process; its exceptions become 500s, as over a socket.

    An argument that is such a transport already is returned unchanged.
    """
    return app if isinstance(app, EmbeddedTransport) else EmbeddedTransport(app)


class _Request(NamedTuple):
    method: str
    path: str
    body: Body | None
    params: Params | None
    headers: dict[str, str]

    @property
    def kind(self) -> str:
        """The kind by which calls are counted: `GET ports`."""
        return f"{self.method} {_kind(self.path)}"


class ServiceClient:
    """Calls one service."""

    def __init__(
        self,
        name: str,
        url: str,
        *,
        tokens: ServiceTokens | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        call_deadline_s: float = CALL_DEADLINE_S,
        breaker: Breaker | None = None,
        ca_file: str = "",
    ) -> None:
        """`ca_file`: PEM file of the CA of its certificate; empty: those that this machine trusts. Raises Invalid when it cannot be read."""
        self.name = name
        self.url = url.rstrip("/")
        self.tokens = tokens
        self.calls: Counter[str] = Counter()
        """How many calls were made, by method and kind of thing: `POST ports`."""
        self.lost = 0
        """How many of them ended with an unknown outcome, or without the answer to a read."""
        self.breaker = breaker or Breaker(name)
        """The circuit breaker of this endpoint; clients of the same endpoint share it."""
        self.call_deadline_s = call_deadline_s
        usual = {"Accept": "application/json", "User-Agent": "moorage"}
        self._inside = transport if isinstance(transport, EmbeddedTransport) else None
        self._base = Base(self.url, usual)
        self._ways = PoolSet(transport, call_deadline_s, usual, ca_file)

    async def call(
        self,
        method: str,
        path: str,
        *,
        token: str | None = None,
        body: Body | None = None,
        params: Params | None = None,
        headers: Mapping[str, str] | None = None,
        deadline_s: float | None = None,
    ) -> ServiceResponse:
        """Make one call; `token=None`: with our own credentials.

        Raises Unavailable when the call was not carried out or a read has no answer, UnknownOutcome when a write may
        have been carried out, and the Refusal that the docstring of this module names when the service refuses.
        """
        request = _Request(method, path, body, params, dict(headers or {}))
        return await self._traced(request, token, deadline_s, self.breaker.enter)

    async def call_uncounted(
        self, method: str, path: str, *, body: Body | None = None, params: Params | None = None
    ) -> ServiceResponse:
        """Make a call with our own credentials whose own request may make the service fail: the circuit breaker does not
        count it.
        """
        return await self._traced(_Request(method, path, body, params, {}), None, None, self.breaker.aside)

    async def _traced(
        self, request: _Request, token: str | None, deadline_s: float | None, enter: Callable[[str], Permit]
    ) -> ServiceResponse:
        kind = request.kind
        with span(SpanType.CALL, f"{self.name} {kind}", neighbour=self.name, call=kind) as doing:
            return await self._within(request, token, deadline_s, enter, doing)

    async def _within(
        self,
        request: _Request,
        token: str | None,
        deadline_s: float | None,
        enter: Callable[[str], Permit],
        doing: Span,
    ) -> ServiceResponse:
        kind, method, headers = request.kind, request.method, request.headers
        patience_s = self.call_deadline_s if deadline_s is None else deadline_s
        passage = enter(kind)
        ours = self.tokens if token is None else None
        if token is not None:
            headers["X-Auth-Token"] = token
        began = time.monotonic()
        try:
            async with Deadline(patience_s):
                if ours is not None:
                    fresh = ours.is_fresh()
                    if (
                        not fresh
                    ):  # the call for the token may have to be the probe, if this is the identity service's client
                        passage.left()
                    headers["X-Auth-Token"] = await ours.get()
                    if not fresh:
                        passage = enter(kind)
                return await self._call(request, ours, passage, doing)
        except LeaseEnds:
            raise Unavailable(
                f"the {self.name} service was not asked: the conductor's lease is about to end", code="lease_ends"
            ) from None
        except TimeoutError as late:
            if not passage.sent:  # it waited for a token of ours
                why = f"the identity service gave no token within {patience_s:g} s, or within the lease"
                raise Unavailable(f"the {self.name} service was not asked: {why}") from late
            lost = self._lost(method, f"no answer within {patience_s:g} s, or within the lease")
            if time.monotonic() - began > PATIENCE_WHOLE * patience_s:
                passage.failed(lost.public)
            raise lost from late
        finally:
            passage.left()

    async def read_data(
        self, path: str, *, deadline_s: float, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[bytes]:
        """Read a body of any length piece by piece, with our own credentials. Raises as `call` does for a read."""
        more = headers or {}
        async with self._data("GET", path, deadline_s) as sent, self._ways.client() as client:
            request = client.build_request("GET", self.url + path, headers={**sent, **more}, timeout=_DATA_TIMEOUT)
            reply = await client.send(request, stream=True)
            try:
                if reply.status_code >= 400:
                    raise problem_of(self.name, "GET", reply.status_code, reply.headers, await reply.aread(), ours=True)
                async for chunk in reply.aiter_bytes():
                    yield chunk
            finally:
                await reply.aclose()

    async def write_data(
        self,
        path: str,
        pieces: AsyncIterator[bytes],
        *,
        size_bytes: int,
        deadline_s: float,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """PUT a body of any length piece by piece, with our own credentials. Raises as `call` does for a write."""
        more = headers or {}
        async with self._data("PUT", path, deadline_s) as sent, self._ways.client() as client:
            sent |= {"Content-Type": "application/octet-stream", "Content-Length": str(size_bytes), **more}
            reply = await client.put(self.url + path, content=pieces, headers=sent, timeout=_DATA_TIMEOUT)
            if reply.status_code >= 400:
                raise problem_of(self.name, "PUT", reply.status_code, reply.headers, reply.content, ours=True)

    @asynccontextmanager
    async def _data(self, method: str, path: str, deadline_s: float) -> AsyncIterator[dict[str, str]]:
        """Prepare an exchange of data: its headers and time limit; failures become Problems."""
        kind = f"{method} {_kind(path)} data"
        with span(SpanType.CALL, f"{self.name} {kind}", neighbour=self.name, call=kind):
            async with self._data_within(method, path, deadline_s) as headers:
                yield headers

    @asynccontextmanager
    async def _data_within(self, method: str, path: str, deadline_s: float) -> AsyncIterator[dict[str, str]]:
        passage = self.breaker.enter(f"{method} {_kind(path)}")
        self.calls[f"{method} {_kind(path)} data"] += 1
        try:
            async with Deadline(deadline_s):
                headers = {"X-Auth-Token": await self.tokens.get()} if self.tokens is not None else {}
                if request_id := global_request_id.get():
                    headers["X-OpenStack-Request-ID"] = request_id
                if trace := traceparent():
                    headers["traceparent"] = trace
                passage.sent = True
                yield headers
                passage.answered()
        except LeaseEnds:
            raise Unavailable(f"the {self.name} service was not asked", code="lease_ends") from None
        except _NEVER_SENT as failure:
            raise Unavailable(f"the {self.name} service cannot be reached", private=repr(failure)) from failure
        except (httpx.HTTPError, TimeoutError) as failure:
            raise self._lost(method, repr(failure)) from failure
        except Unavailable as out:
            if out.code == CREDENTIALS and self.tokens is not None:
                await self.tokens.get(fresh=True)
            raise
        finally:
            passage.left()

    async def close(self) -> None:
        await self._ways.close()

    async def _call(
        self, request: _Request, ours: ServiceTokens | None, passage: Permit, doing: Span
    ) -> ServiceResponse:
        """`ours`: the source of the token in the headers, if it is not a user's."""
        passage.sent = True
        status, answered, content = await self._send(request, passage)
        if status == 401 and ours is not None:  # not carried out, so it may be sent again
            passage.answered()
            passage.sent = False
            request.headers["X-Auth-Token"] = await ours.get(fresh=True)
            passage.sent = True
            status, answered, content = await self._send(request, passage)
        doing.came_to(str(status))
        method = request.method
        if status >= 400:
            problem = problem_of(self.name, method, status, answered, content, ours=ours is not None)
            if status >= 500 and not isinstance(problem, Refusal):
                retry_after_s = problem.retry_after_s if isinstance(problem, Unavailable) else 0.0
                passage.failed(problem.public, rest_s=retry_after_s)
            else:
                passage.answered()
            raise problem
        try:
            reply = ServiceResponse(status, answered, _decoded(content))
        except (msgspec.DecodeError, msgspec.ValidationError) as wrong:
            sentence = f"the {self.name} service's answer cannot be read"
            passage.failed(sentence)
            raise self._lost(method, repr(content[:200]), sentence) from wrong
        passage.answered()
        return reply

    async def _send(self, request: _Request, passage: Permit) -> tuple[int, Mapping[str, str], bytes]:
        method, path, body, params, headers = request
        self.calls[request.kind] += 1
        if request_id := global_request_id.get():
            headers["X-OpenStack-Request-ID"] = request_id
        if trace := traceparent():
            headers["traceparent"] = trace
        content = None
        if body is not None:
            content = msgspec.json.encode(body)
            headers.setdefault("Content-Type", "application/json")
        try:
            if self._inside is not None and is_plain(path):
                return await self._inside.ask(
                    self._base, method, path, encoded(_query(params)), headers, content or b"", REPLY_MAX_BYTES
                )
            async with self._ways.client() as client:
                return await self._exchanged(client, method, path, content, params, headers)
        except AnswerTooLong as long:
            raise Internal(f"the {self.name} service's answer is too long", private=path) from long
        except _NEVER_SENT as failure:
            unreached = Unavailable(f"the {self.name} service cannot be reached", private=repr(failure))
            if not isinstance(failure, httpx.PoolTimeout):  # our own limit: all our connections are busy
                passage.failed(unreached.public, reached=False)
            raise unreached from failure
        except httpx.RequestError as failure:  # this includes an answer whose encoding is broken
            lost = self._lost(method, repr(failure))
            passage.failed(lost.public)
            raise lost from failure

    async def _exchanged(
        self,
        client: httpx.AsyncClient,
        method: str,
        path: str,
        content: bytes | None,
        params: Params | None,
        headers: dict[str, str],
    ) -> tuple[int, Mapping[str, str], bytes]:
        request = client.build_request(
            method, self.url + path, content=content, params=_query(params) or None, headers=headers
        )
        reply = await client.send(request, stream=True)
        try:
            received = bytearray()
            async for chunk in reply.aiter_bytes():
                received += chunk
                if len(received) > REPLY_MAX_BYTES:
                    raise Internal(f"the {self.name} service's answer is too long", private=str(request.url))
        finally:
            await reply.aclose()
        return reply.status_code, reply.headers, bytes(received)

    def _lost(self, method: str, why: str, sentence: str = "") -> Unavailable:
        self.lost += 1
        sentence = sentence or f"the {self.name} service did not answer"
        return Unavailable(sentence, private=why) if method in SAFE_METHODS else UnknownOutcome(sentence, private=why)


def _kind(path: str) -> str:
    """The kind of thing in a path: `ports` of `/v2.0/ports/…`, `bindings` of `/v2.0/ports/…/bindings`, `volumes` of `/v3/PROJECT/volumes/…`."""
    words = [word for word in path.split("/") if word]
    if words[:1] == ["v3"] and len(words) > 2:
        return f"{words[2]} action" if words[-1] == "action" else words[2]
    if words[3:4] == ["bindings"]:
        return words[3]
    return words[1] if len(words) > 1 and words[0] in {"v2.0", "v2", "v3"} else "".join(words[:1])


def _query(params: Params | None) -> list[tuple[str, str | int | float | bool | None]]:
    pairs: list[tuple[str, str | int | float | bool | None]] = []
    for name, value in (params or {}).items():
        if isinstance(value, str | int):
            pairs.append((name, value))
        else:
            pairs.extend((name, each) for each in value)
    return pairs


def _decoded(content: bytes) -> Json:
    return msgspec.json.decode(content, type=dict[str, Any]) if content else {}
