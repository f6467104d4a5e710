"""The Placement API as an ASGI application: principal, version and route of a request, and every error in Placement's form."""

import logging
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from html import escape
from typing import NamedTuple

import msgspec
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from moorage.api.placement.http import MAX_VERSION, MIN_VERSION, Rep, Req, Version, http_date, need_json, pairs
from moorage.api.placement.policy import PlacementPolicy
from moorage.api.placement.route_table import SERVICE, MethodNotAllowed, find_route
from moorage.model import errors
from moorage.model.admission import charge, declares_more
from moorage.model.errors import Problem
from moorage.model.ids import new_uuid
from moorage.model.json_types import JsonObject
from moorage.model.principal import Principal
from moorage.model.tracing import request as current_request
from moorage.placement.engine import Engine
from moorage.placement.service import error_codes
from moorage.placement.service.group_commit import GroupCommit
from moorage.sql import Database

log = logging.getLogger(__name__)

BODY_BYTES_MAX = 8 * 1024 * 1024
HEADER = "openstack-api-version"

Authenticate = Callable[[Mapping[str, str]], Awaitable[Principal]]
"""Headers (lower case) → the principal; raises Unauthenticated."""


STATUS: dict[type[Problem], tuple[int, str]] = {
    errors.Invalid: (400, "Bad Request"),
    errors.Unauthenticated: (401, "Unauthorized"),
    errors.Forbidden: (403, "Forbidden"),
    errors.NotFound: (404, "Not Found"),
    errors.WrongMethod: (405, "Method Not Allowed"),
    errors.NotAcceptable: (406, "Not Acceptable"),
    errors.Conflict: (409, "Conflict"),
    errors.TooLarge: (413, "Request Entity Too Large"),
    errors.WrongMediaType: (415, "Unsupported Media Type"),
    errors.TooManyRequests: (429, "Too Many Requests"),
    errors.Unavailable: (503, "Service Unavailable"),
}


def _status(problem: Problem) -> tuple[int, str]:
    for kind in type(problem).__mro__:
        if kind in STATUS:
            return STATUS[kind]
    return 500, "Internal Server Error"


@lru_cache(maxsize=256)
def negotiate(header: str | None) -> Version:
    """The version that `OpenStack-API-Version` names; raises NotAcceptable or Invalid."""
    if not header:
        return MIN_VERSION
    for part in reversed(header.split(",")):
        words = part.strip().split(None, 1)
        if len(words) != 2 or words[0].lower() != SERVICE:
            continue
        if words[1] == "latest":
            return MAX_VERSION
        major, _, minor = words[1].partition(".")
        try:
            version = (int(major), int(minor))
        except ValueError as failure:
            raise errors.Invalid(f"invalid version string: {words[1]}") from failure
        if not MIN_VERSION <= version <= MAX_VERSION:
            raise errors.NotAcceptable(f"Unacceptable version header: {words[1]}")
        return version
    return MIN_VERSION


@lru_cache(maxsize=256)
def accepts_json(accept: str | None) -> bool:
    """Whether an `Accept` header has a place for JSON."""
    if not accept:
        return True
    for part in accept.lower().split(","):
        kind, _, parameters = part.partition(";")
        weight = re.search(r"q=([0-9.]+)", parameters)
        if kind.strip() in ("application/json", "application/*", "*/*") and (weight is None or weight[1].strip("0.")):
            return True
    return False


class _Answer(NamedTuple):
    """What is sent."""

    status: int
    headers: dict[str, str]
    content: bytes = b""


class PlacementApp:
    """Everything around a handler: ASGI without a framework, whose layers would cost as much as a whole request does."""

    def __init__(
        self, engine: Engine, region: Database, authenticate: Authenticate, policy: PlacementPolicy, prefix: str
    ) -> None:
        self._engine = engine
        self._region = region
        self._authenticate = authenticate
        self._policy = policy
        self._prefix = prefix
        self._writes = GroupCommit(engine, region)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close"})
        elif scope["type"] == "http" and (answer := await self._serve(scope, receive)) is not None:
            headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers.items()]
            if answer.status != 204:
                headers.append((b"content-length", b"%d" % len(answer.content)))
            await send({"type": "http.response.start", "status": answer.status, "headers": headers})
            await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else answer.content})

    async def _serve(self, scope: Scope, receive: Receive) -> _Answer | None:
        """None: the client has gone."""
        request_id = current_request(SERVICE).seed or "req-" + new_uuid()
        version: Version | None = None
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        method: str = scope["method"]
        try:
            path = self._inside(scope["path"])
            if declares_more(headers.get("content-length"), BODY_BYTES_MAX):
                raise errors.TooLarge(f"a body may have {BODY_BYTES_MAX} bytes at most")
            principal = None if not path.strip("/") else await self._authenticate(headers)
            if principal is not None:
                principal.require_call("placement", method, path, scope["path"])
            version = negotiate(headers.get(HEADER))
            if principal is None:
                if method != "GET":
                    raise MethodNotAllowed(method, "GET")
                return self._send(_versions(), version, request_id)
            charge(scope, principal)
            body = await _body(receive)
            if body is None:
                return None
            rep = await self._answer(scope, path, headers, body, principal, version, request_id)
            if "location" in rep.headers:
                url = Request(scope).url
                rep.headers["location"] = f"{url.scheme}://{url.netloc}{rep.headers['location']}"
        except Problem as problem:
            return self._fault(problem, version, request_id, headers.get("accept"))
        except Exception as failure:
            log.exception("unexpected failure of %s %s", method, scope["path"])
            return self._fault(errors.Internal("unexpected failure", private=repr(failure)), version, request_id)
        return self._send(rep, version, request_id)

    def _inside(self, path: str) -> str:
        """The path below the prefix; raises NotFound for a path outside it."""
        if not f"{path}/".startswith(f"{self._prefix}/"):
            raise errors.NotFound("The resource could not be found.")
        return path[len(self._prefix) :]

    async def _answer(
        self,
        scope: Scope,
        path: str,
        headers: dict[str, str],
        body: bytes,
        principal: Principal,
        version: Version,
        request_id: str,
    ) -> Rep:
        method: str = scope["method"]
        if body and not headers.get("content-type"):
            raise errors.Invalid("content-type header required when content-length > 0")
        entry, parameters = find_route(method, path, version)
        if method == "GET" and not entry.bare and not accepts_json(headers.get("accept")):
            raise errors.NotAcceptable("Only application/json is provided")
        req = Req(
            method=method,
            path=parameters,
            query=pairs(scope["query_string"]),
            headers=headers,
            body=body,
            version=version,
            prefix=self._prefix,
            principal=principal,
            engine=self._engine,
            region=self._region,
            writes=self._writes,
            allows=self._policy.allows,
            request_id=request_id,
        )
        target = {
            "project_id": req.last("project_id") if path == "/usages" else principal.project,
            "user_id": principal.user,
        }
        if entry.takes_json:
            need_json(headers)
        if not self._policy.allows(principal, entry.rule, target):
            raise errors.Forbidden(f"Policy does not allow {entry.rule} to be performed.")
        return await entry.handler(req)

    def _send(self, rep: Rep, version: Version, request_id: str) -> _Answer:
        headers = {"x-openstack-request-id": request_id, **_versioned(version), **rep.headers}
        content = rep.raw if rep.raw is not None else b"" if rep.body is None else msgspec.json.encode(rep.body)
        if rep.body is not None or rep.raw is not None:
            headers["content-type"] = "application/json"
        if rep.stamped and version >= (1, 15):
            headers["cache-control"] = "no-cache"
            if rep.dated:
                headers["last-modified"] = http_date(rep.modified)
        return _Answer(rep.status, headers, content)

    def _fault(self, problem: Problem, version: Version | None, request_id: str, accept: str | None = None) -> _Answer:
        status, title = _status(problem)
        error: JsonObject = {"status": status, "title": title, "detail": problem.public}
        if version is not None and version >= (1, 23):
            error["code"] = problem.code if problem.code.startswith("placement.") else error_codes.UNDEFINED
        error["request_id"] = request_id
        if status == 406 and version is None:
            error |= {"max_version": _text(MAX_VERSION), "min_version": _text(MIN_VERSION)}
        headers = {"content-type": "application/json", "x-openstack-request-id": request_id}
        if version is not None:
            headers |= _versioned(version)
        if isinstance(problem, errors.TooManyRequests):
            headers["retry-after"] = str(math.ceil(problem.retry_after_s))
        if isinstance(problem, MethodNotAllowed):
            headers["allow"] = problem.methods
        if status == 401:
            headers["www-authenticate"] = 'Keystone uri=""'
        if not accepts_json(accept):
            if "html" not in str(accept):
                plain = f"{status} {title}\n\n{problem.public}\n"
                return _Answer(status, headers | {"content-type": "text/plain; charset=UTF-8"}, plain.encode())
            text = f"<html><head><title>{status} {title}</title></head><body>{escape(problem.public)}</body></html>"
            return _Answer(status, headers | {"content-type": "text/html; charset=UTF-8"}, text.encode())
        return _Answer(status, headers, msgspec.json.encode({"errors": [error]}))


async def _body(receive: Receive) -> bytes | None:
    """The whole body; None when the client went away meanwhile. Raises TooLarge."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > BODY_BYTES_MAX:
            raise errors.TooLarge(f"a body may have {BODY_BYTES_MAX} bytes at most")
        if not message.get("more_body", False):
            return b"".join((*parts, part)) if parts else part
        parts.append(part)


def _text(version: Version) -> str:
    return f"{version[0]}.{version[1]}"


def _versioned(version: Version) -> dict[str, str]:
    return {HEADER: f"{SERVICE} {version[0]}.{version[1]}", "vary": HEADER}


def _versions() -> Rep:
    one = {
        "id": "v1.0",
        "max_version": _text(MAX_VERSION),
        "min_version": _text(MIN_VERSION),
        "status": "CURRENT",
        "links": [{"rel": "self", "href": ""}],
    }
    return Rep(body={"versions": [one]})


def make_placement_app(
    engine: Engine,
    region: Database,
    authenticate: Authenticate,
    *,
    policy: PlacementPolicy | None = None,
    prefix: str = "",
) -> PlacementApp:
    """The application; `prefix` is where it is reached and where links begin (`/placement` beside a whole cloud)."""
    return PlacementApp(engine, region, authenticate, policy or PlacementPolicy(), prefix)
