"""The Compute API as an ASGI application: what every request passes, in this order, and why.

    CORS              outermost, so that a browser may read errors too (off unless origins are configured)
    /healthcheck      no token, no version: load balancers ask
    request id        before anything can fail, so that every answer carries one
    version documents no token: clients read them to find out how to get one
    body limit        of what the request says of its length: before anything of it is read
    authentication    before routing: without a token nobody learns which paths exist
    rate limit        of the caller's project, where the listener has one (`model/admission.py`)
    the body          read, within its limit: nobody without a token can make us wait for one or keep it
    microversion      406 and 400 before the body is looked at
    routing           404
    the call          query and body checked and carried up, policy, handler, answer carried down
    problems          a Problem becomes Nova's error body; anything else is logged and becomes a bare 500

How to add a resource
---------------------
1. `api/compute/<resource>.py`: handlers `async def show(call: Call[None]) -> Response`, in today's full shape, and

        ROUTES = (
            Route("GET", "/flavors/{id}", show, rule="os_compute_api:…", params=Params({"limit": LIMIT})),
            Route("POST", "/servers/{id}/action", lock, takes=LockBody, action="lock"),   # an action: its one key
        )

   Join ROUTES in `api/route_table.py`.  Bodies are `schema.Body` Structs (NovaInt, NovaBool, Name for lax types); they are
   decoded strictly before the handler runs.  Answer `Response(status, body, headers)`: a Struct, plain JSON values that
   nobody else holds (they may be changed in place), or ready bytes.  An answer already in the asked shape says
   `finished=True`; `call.bridge.masks` tells which fields to leave out.
2. Raise `moorage.model.errors` Problems; never name statuses other than success.
3. `call.require(rule, target)` asks policy (no target: the caller's own project); `call.allows` answers a bool.
4. `call.page()` gives (limit, marker), `call.links(path)` self and bookmark, `call.next_links(…)` the next page.
5. Reads: `await call.context.region.read(functions of moorage.store.region.<resource>)`; writes: `moorage.operations.records`.
6. What older versions see differently: a `VersionChange` in `api/version_changes/v2_NNN.py` (add to the file if it is there), keyed by
   `"GET /flavors/{id}"` or `"POST /servers/{id}/action:lock"`, with a golden exchange in tests/pure.
7. What else a handler needs is a typed field of `AppContext` (api/context.py); `main` builds one: `ComputeApp(context, authenticate)`.
"""

import logging
import math
import re
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from functools import cache
from typing import Any, TypeAlias
from urllib.parse import parse_qs, unquote

from starlette.middleware.cors import CORSMiddleware

from moorage.api import http_errors, versions
from moorage.api.base_url import base_url as base_url_of
from moorage.api.call import AnyCall, Call, Response
from moorage.api.context import AppContext, Authenticate
from moorage.api.microversions import OLDEST, Json, Query, Version, VersionChange, negotiate
from moorage.api.route_table import TABLE
from moorage.api.routes import CompiledRoute, Match, Route, Router
from moorage.api.schema import decode, plain, read_json, write_json
from moorage.api.version_changes import CHANGES
from moorage.model.admission import charge, declares_more
from moorage.model.errors import (
    Invalid,
    NotFound,
    Problem,
    TooLarge,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
    WrongMediaType,
)
from moorage.model.ids import new_uuid
from moorage.model.task_context import global_request_id
from moorage.model.task_context import request_id as log_request_id
from moorage.model.tracing import request

log = logging.getLogger(__name__)

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers: TypeAlias = dict[str, str]

CALLERS_REQUEST_ID = re.compile(r"^req-[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}$", re.IGNORECASE)
PROJECT_IN_URL = re.compile(r"^[0-9a-f-]+$")
JSON_TYPES = frozenset({"application/json", "application/vnd.openstack.compute+json", "text/plain", ""})
SLASHES = re.compile("//+")
"""Several slashes are one, as in Nova."""
NO_RESOURCE = "The resource could not be found."
QUERY_FIELDS_MAX = 1_000
RETRY_LEAST_S = 1.0
"""The message for a client that should try again later."""
MODERN = "openstack-api-version"
LEGACY = "x-openstack-nova-api-version"


def version_headers(version: Version) -> list[tuple[str, str]]:
    return [
        ("OpenStack-API-Version", f"compute {version}"),
        ("X-OpenStack-Nova-API-Version", str(version)),
        ("Vary", "OpenStack-API-Version"),
        ("Vary", "X-OpenStack-Nova-API-Version"),
    ]


class RawResponse:
    """What is sent: a status, bytes, headers."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, body: bytes, headers: Iterable[tuple[str, str]] = ()) -> None:
        self.status = status
        self.body = body
        self.headers = list(headers)


@cache
def _usual_router() -> Router:
    """One router for all applications of a process: it has nothing of a context, and making it takes as long as ten requests."""
    return Router(TABLE, CHANGES)


class ComputeApp:
    """The Compute API over one application context."""

    def __init__(
        self,
        context: AppContext,
        authenticate: Authenticate,
        *,
        table: Iterable[Route] = TABLE,
        changes: tuple[VersionChange, ...] = CHANGES,
    ) -> None:
        self.context = context
        self._authenticate = authenticate
        usual = table is TABLE and changes is CHANGES
        self.router = _usual_router() if usual else Router(table, changes)
        self._inside: Callable[[Scope, Receive, Send], Awaitable[None]] = self._answer
        if context.config.cors_origins:
            self._inside = CORSMiddleware(
                self._answer,
                allow_origins=list(context.config.cors_origins),
                allow_methods=["GET", "PUT", "POST", "DELETE", "PATCH"],
                allow_headers=[
                    "X-Auth-Token", "X-Openstack-Request-Id", "X-Identity-Status", "X-Roles", "X-Service-Catalog",
                    "X-User-Id", "X-Tenant-Id", "X-OpenStack-Nova-API-Version", "OpenStack-API-Version",
                ],
                expose_headers=[
                    "X-Auth-Token", "X-Openstack-Request-Id", "X-Subject-Token", "X-Service-Token",
                    "X-OpenStack-Nova-API-Version", "OpenStack-API-Version",
                ],
            )  # fmt: skip

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["type"] == "http":
            await self._inside(scope, receive, send)

    # ------------------------------------------------------------------------------------------ one request

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/healthcheck":
            await _send(send, RawResponse(200, b"OK", [("Content-Type", "text/plain; charset=UTF-8")]))
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        request_id = request("compute").seed or f"req-{new_uuid()}"
        log_request_id.set(request_id)
        began = time.perf_counter()
        try:
            answer = await self._route(scope, headers, receive, request_id)
        except Problem as problem:
            answer = self._problem(problem, request_id)
        except Exception:
            log.exception("%s: unexpected failure of %s %s", request_id, scope["method"], scope["path"])
            answer = RawResponse(500, http_errors.fault(500, http_errors.UNEXPECTED))
        answer.headers.append(("x-openstack-request-id", request_id))
        answer.headers.append(("x-compute-request-id", request_id))
        await _send(send, answer)
        if log.isEnabledFor(logging.INFO):
            spent_ms = (time.perf_counter() - began) * 1000
            log.info("%s %s %s %d %.1f ms", request_id, scope["method"], scope["path"], answer.status, spent_ms)

    def _problem(self, problem: Problem, request_id: str) -> RawResponse:
        status, body = http_errors.answer(problem)
        if status >= 500 and status != 501:
            log.error("%s: %s (%s)", request_id, problem.named or problem.public, problem.private)
        extra: list[tuple[str, str]] = []
        if isinstance(problem, Unauthenticated):
            extra.append(("WWW-Authenticate", f'Keystone uri="{self.context.config.identity_url}"'))
        if isinstance(problem, Unavailable | TooManyRequests):
            extra.append(("Retry-After", str(math.ceil(max(problem.retry_after_s, RETRY_LEAST_S)))))
        return RawResponse(status, body, extra)

    async def _route(self, scope: Scope, headers: Headers, receive: Receive, request_id: str) -> RawResponse:
        base_url = base_url_of(scope, self.context.config.public_url)
        path: str = scope.get("raw_path", b"").decode("ascii", "replace").split("?")[0] or scope["path"]
        path = SLASHES.sub("/", path)
        segments = tuple(unquote(part) for part in path.removeprefix("/").split("/"))
        root = segments[0]
        if root not in {"v2.1", "v2"}:
            if root == "":
                return RawResponse(200, write_json(versions.listed(base_url)))
            return RawResponse(300, write_json(versions.choices(base_url, path)))
        legacy = root == "v2"
        if segments[1:] in {(), ("",)}:
            return self._version_document(base_url, headers, legacy)
        if declares_more(headers.get("content-length"), self.context.config.body_max_bytes):
            raise TooLarge("Request is too large.")
        token = headers.get("x-auth-token")
        if not token:
            raise Unauthenticated("The request you have made requires authentication.")
        callers_id = _callers_id(headers)
        global_request_id.set(callers_id or request_id)
        principal = await self._authenticate(token, headers.get("x-service-token"))
        principal.require_call("compute", scope["method"], unquote(path))
        charge(scope, principal)
        body = await self._body(receive)
        version = OLDEST if legacy else negotiate(headers.get(MODERN), headers.get(LEGACY))
        try:
            url_project, match, path_after = self._find(scope["method"], segments[1:])
            call: AnyCall = Call(
                principal=principal,
                version=version,
                body=None,
                query=_query(scope.get("query_string", b"")),
                path={},
                context=self.context,
                bridge=None,  # type: ignore[arg-type]  # set with the route, below
                request_id=request_id,
                global_request_id=callers_id,
                base_url=base_url,
                url_project=url_project,
                url_path=path_after,
                token=token,
                legacy=legacy,
                headers=headers,
            )
            answer = await self._call(call, match, scope["method"], headers, body)
        except Problem as problem:
            answer = self._problem(problem, request_id)
        except Exception:
            log.exception("%s: unexpected failure of %s %s", request_id, scope["method"], scope["path"])
            answer = RawResponse(500, http_errors.fault(500, http_errors.UNEXPECTED))
        if not legacy:
            answer.headers.extend(version_headers(version))
        return answer

    def _version_document(self, base_url: str, headers: Headers, legacy: bool) -> RawResponse:
        if legacy:
            return RawResponse(200, write_json(versions.one(base_url, "v2.0")))
        version = negotiate(headers.get(MODERN), headers.get(LEGACY))
        return RawResponse(200, write_json(versions.one(base_url, "v2.1")), version_headers(version))

    def _find(self, method: str, segments: tuple[str, ...]) -> tuple[str | None, Match, str]:
        project: str | None = None
        if not self.router.is_first_segment(segments[0]) and PROJECT_IN_URL.match(segments[0]):
            project, segments = segments[0], segments[1:]
        # An empty name (of a path that ends with a slash) belongs to no resource.
        match = self.router.find(method, segments) if segments and all(segments) else None
        if match is None:
            raise NotFound(NO_RESOURCE)
        return project, match, "/".join(segments)

    async def _call(self, call: AnyCall, match: Match, method: str, headers: Headers, raw: bytes) -> RawResponse:
        has_body = method in {"POST", "PUT", "PATCH"} and raw != b""
        kind = headers.get("content-type", "").split(";")[0].strip().lower()
        if has_body and kind not in JSON_TYPES:
            raise WrongMediaType("Unsupported Content-Type")
        body: Json = None
        if None not in match.by_action:
            body = read_json(raw)
            ready = _action(match, body)
        else:
            ready = match.by_action[None]
            body = read_json(raw) if has_body else None
        if call.url_project is not None and call.url_project != call.principal.project:
            raise Invalid(
                f"Malformed request URL: URL's project_id '{call.url_project}' doesn't match Context's project_id "
                f"'{call.principal.project}'"
            )
        if not ready.lives_at(call.version):
            raise NotFound(NO_RESOURCE)
        route = ready.route
        request("compute").annotate(route=route.path if route.action is None else f"{route.path}:{route.action}")
        call.bridge = ready.bridge(call.version)
        call.path = dict(zip(ready.names, match.values, strict=True))
        if call.query:
            call.query = _known(route, method, call)
        for translate in call.bridge.queries:
            call.query = translate(call.query)
        if route.takes is not None:
            call.body = decode(call.bridge.carry_up(body), route.takes, soft=call.legacy)
        if route.rule is not None:
            call.require(route.rule)
        return _finish(call, await route.handler(call))

    async def _body(self, receive: Receive) -> bytes:
        most = self.context.config.body_max_bytes
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Invalid("The client went away.")
            chunk: bytes = message.get("body", b"")
            size += len(chunk)
            if size > most:
                raise TooLarge("Request is too large.")
            if chunk:
                chunks.append(chunk)
            if not message.get("more_body", False):
                return b"".join(chunks)


def _callers_id(headers: Headers) -> str | None:
    """The request id that the caller goes by, when it has the form of one."""
    request_id = headers.get("x-openstack-request-id", "")
    return request_id if CALLERS_REQUEST_ID.match(request_id) else None


def _known(route: Route, method: str, call: AnyCall) -> Query:
    """The query parameters that the route knows; only GET refuses parameters that no route of its kind has ever read."""
    if route.params.known or method == "GET":
        return route.params.check(call.query, call.version)
    return {}


def _action(match: Match, body: Json) -> CompiledRoute:
    """The route of the action that a body names by its one key."""
    if not isinstance(body, dict) or len(body) != 1:
        raise Invalid("Malformed request body")
    name = next(iter(body))
    ready = match.by_action.get(name)
    if ready is None:
        raise Invalid(f"There is no such action: {name}")
    return ready


def _query(raw: bytes) -> Query:
    if not raw:
        return {}
    try:
        return parse_qs(raw.decode("latin-1"), keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX)
    except (ValueError, UnicodeDecodeError) as failure:
        raise Invalid("Query string is not UTF-8 encoded or too long") from failure


def _finish(call: AnyCall, reply: Response) -> RawResponse:
    """Carry the answer down to the version asked for, and write it."""
    bridge = call.bridge
    status = reply.status if reply.fixed_status or bridge.status is None else bridge.status
    headers = list(reply.headers.items())
    if reply.body is None:
        return RawResponse(status, b"", headers)
    if isinstance(reply.body, bytes):
        if bridge.down and not reply.finished:
            return RawResponse(status, write_json(bridge.carry_down(read_json(reply.body))), headers)
        return RawResponse(status, reply.body, headers)
    if bridge.down and not reply.finished:
        return RawResponse(status, write_json(bridge.carry_down(plain(reply.body))), headers)
    return RawResponse(status, write_json(reply.body), headers)


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await send({"type": "lifespan.shutdown.complete"})
            return


async def _send(send: Send, answer: RawResponse) -> None:
    headers = [(name.lower().encode("latin-1"), value.encode("utf-8")) for name, value in answer.headers]
    if answer.body and not any(name == b"content-type" for name, _ in headers):
        headers.append((b"content-type", b"application/json"))
    headers.append((b"content-length", str(len(answer.body)).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


__all__ = ["ComputeApp"]
