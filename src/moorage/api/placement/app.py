"""The Placement API as an ASGI application: who asks, in which version, for what; and every error in Placement's form."""

import logging
import re
import uuid
from collections.abc import Awaitable, Callable, Mapping
from html import escape
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from moorage.api.placement import allocations, candidates, inventories, providers, vocabulary
from moorage.api.placement.policy import PlacementPolicy
from moorage.api.placement.web import MAX_VERSION, MIN_VERSION, Rep, Req, Version, http_date, need_json, pairs
from moorage.model import errors
from moorage.model.asker import Asker
from moorage.model.errors import Problem
from moorage.placement import codes
from moorage.placement.engine import Engine
from moorage.sql import Database

log = logging.getLogger(__name__)

BODY_BYTES_MAX = 8 * 1024 * 1024
HEADER = "openstack-api-version"
SERVICE = "placement"

Handler = Callable[[Req], Awaitable[Rep]]
Authenticate = Callable[[Mapping[str, str]], Awaitable[Asker]]
"""Headers (lower case) → who asks; raises Unauthenticated."""


class _Entry(msgspec.Struct, frozen=True):
    """A method of a path: its handler, policy rule, and the version that brought it (405 where the path is older)."""

    handler: Handler
    rule: str
    since: int = 0
    hidden_status: int = 404
    takes_json: bool = False
    bare: bool = False
    """It answers without a body, so it does not matter which kind is accepted."""


RP = "/resource_providers/{uuid}"
_P = "placement:resource_providers:"
ROUTES: dict[str, dict[str, _Entry]] = {
    "/resource_classes": {
        "GET": _Entry(vocabulary.list_classes, "placement:resource_classes:list", 2),
        "POST": _Entry(vocabulary.create_class, "placement:resource_classes:create", 2, takes_json=True),
    },
    "/resource_classes/{name}": {
        "GET": _Entry(vocabulary.show_class, "placement:resource_classes:show", 2),
        "PUT": _Entry(vocabulary.update_class, "placement:resource_classes:update", 2),
        "DELETE": _Entry(vocabulary.delete_class, "placement:resource_classes:delete", 2),
    },
    "/resource_providers": {
        "GET": _Entry(providers.index, _P + "list"),
        "POST": _Entry(providers.create, _P + "create", takes_json=True),
    },
    RP: {
        "GET": _Entry(providers.show, _P + "show"),
        "PUT": _Entry(providers.update, _P + "update", takes_json=True),
        "DELETE": _Entry(providers.delete, _P + "delete"),
    },
    RP + "/inventories": {
        "GET": _Entry(inventories.index, _P + "inventories:list"),
        "POST": _Entry(inventories.create, _P + "inventories:create", takes_json=True),
        "PUT": _Entry(inventories.replace, _P + "inventories:update", takes_json=True),
        "DELETE": _Entry(inventories.clear, _P + "inventories:delete", 5, 405),
    },
    RP + "/inventories/{resource_class}": {
        "GET": _Entry(inventories.show, _P + "inventories:show"),
        "PUT": _Entry(inventories.update, _P + "inventories:update", takes_json=True),
        "DELETE": _Entry(inventories.delete, _P + "inventories:delete"),
    },
    RP + "/usages": {"GET": _Entry(inventories.usages, _P + "usages")},
    RP + "/aggregates": {
        "GET": _Entry(providers.aggregates, _P + "aggregates:list", 1),
        "PUT": _Entry(providers.set_aggregates, _P + "aggregates:update", 1, takes_json=True),
    },
    RP + "/allocations": {"GET": _Entry(allocations.of_provider, _P + "allocations:list")},
    RP + "/traits": {
        "GET": _Entry(vocabulary.provider_traits, _P + "traits:list", 6),
        "PUT": _Entry(vocabulary.set_provider_traits, _P + "traits:update", 6, takes_json=True),
        "DELETE": _Entry(vocabulary.clear_provider_traits, _P + "traits:delete", 6),
    },
    "/allocations": {"POST": _Entry(allocations.post, "placement:allocations:manage", 13, takes_json=True)},
    "/allocations/{consumer}": {
        "GET": _Entry(allocations.show, "placement:allocations:list"),
        "PUT": _Entry(allocations.put, "placement:allocations:update", takes_json=True),
        "DELETE": _Entry(allocations.delete, "placement:allocations:delete"),
    },
    "/allocation_candidates": {"GET": _Entry(candidates.index, "placement:allocation_candidates:list", 10)},
    "/traits": {"GET": _Entry(vocabulary.list_traits, "placement:traits:list", 6)},
    "/traits/{name}": {
        "GET": _Entry(vocabulary.show_trait, "placement:traits:show", 6, bare=True),
        "PUT": _Entry(vocabulary.put_trait, "placement:traits:update", 6),
        "DELETE": _Entry(vocabulary.delete_trait, "placement:traits:delete", 6),
    },
    "/usages": {"GET": _Entry(allocations.total_usages, "placement:usages", 9)},
    "/reshaper": {"POST": _Entry(allocations.reshape, "placement:reshaper:reshape", 30, takes_json=True)},
}
_PATTERNS = [
    (re.compile("^" + re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path) + "$"), entries) for path, entries in ROUTES.items()
]

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
    errors.Unavailable: (503, "Service Unavailable"),
}


def _status(problem: Problem) -> tuple[int, str]:
    for kind in type(problem).__mro__:
        if kind in STATUS:
            return STATUS[kind]
    return 500, "Internal Server Error"


class _Allowed(errors.WrongMethod):
    """Names the methods that the path does know."""

    def __init__(self, method: str, methods: str) -> None:
        super().__init__(f"The method {method} is not allowed for this resource.")
        self.methods = methods


def negotiate(header: str | None) -> Version:
    """The version that `OpenStack-API-Version` asks of us; raises NotAcceptable or Invalid."""
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


def _find(method: str, path: str, version: Version) -> tuple[_Entry, dict[str, str]]:
    for pattern, entries in _PATTERNS:
        if (found := pattern.match(path)) is None:
            continue
        entry = entries.get(method)
        if entry is None:
            raise _Allowed(method, ", ".join(entries))
        if version < (1, entry.since):
            raise (
                errors.NotFound("The resource could not be found.")
                if entry.hidden_status == 404
                else _Allowed(method, ", ".join(entries))
            )
        return entry, found.groupdict()
    raise errors.NotFound("The resource could not be found.")


class _Door:
    """Everything around a handler."""

    def __init__(
        self, engine: Engine, region: Database, authenticate: Authenticate, policy: PlacementPolicy, prefix: str
    ) -> None:
        self._engine = engine
        self._region = region
        self._authenticate = authenticate
        self._policy = policy
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close"})
        elif scope["type"] == "http":
            await (await self.serve(Request(scope, receive)))(scope, receive, send)

    async def serve(self, request: Request) -> Response:
        request_id = "req-" + str(uuid.uuid4())
        version: Version | None = None
        headers = dict(request.headers.items())
        try:
            path = self._inside(request.scope["path"])
            asker = None if not path.strip("/") else await self._authenticate(headers)
            version = negotiate(headers.get(HEADER))
            if asker is None:
                if request.method != "GET":
                    raise _Allowed(request.method, "GET")
                return self._send(_versions(), version, request_id)
            rep = await self._answer(request, path, headers, asker, version, request_id)
            if "location" in rep.headers:
                rep.headers["location"] = f"{request.url.scheme}://{request.url.netloc}{rep.headers['location']}"
        except Problem as problem:
            return self._fault(problem, version, request_id, headers.get("accept"))
        except Exception as failure:
            log.exception("unexpected failure of %s %s", request.method, request.url.path)
            return self._fault(errors.Internal("unexpected failure", private=repr(failure)), version, request_id)
        return self._send(rep, version, request_id)

    def _inside(self, path: str) -> str:
        """The path below the prefix; raises NotFound for one beside it."""
        if not f"{path}/".startswith(f"{self._prefix}/"):
            raise errors.NotFound("The resource could not be found.")
        return path[len(self._prefix) :]

    async def _answer(
        self, request: Request, path: str, headers: dict[str, str], asker: Asker, version: Version, request_id: str
    ) -> Rep:
        body = await _body(request)
        if body and not headers.get("content-type"):
            raise errors.Invalid("content-type header required when content-length > 0")
        entry, parameters = _find(request.method, path, version)
        if request.method == "GET" and not entry.bare and not accepts_json(headers.get("accept")):
            raise errors.NotAcceptable("Only application/json is provided")
        req = Req(
            method=request.method,
            path=parameters,
            query=pairs(request.scope["query_string"]),
            headers=headers,
            body=body,
            version=version,
            prefix=self._prefix,
            asker=asker,
            engine=self._engine,
            region=self._region,
            allows=self._policy.allows,
            request_id=request_id,
        )
        target = {"project_id": req.last("project_id") if path == "/usages" else asker.project, "user_id": asker.user}
        if entry.takes_json:
            need_json(headers)
        if not self._policy.allows(asker, entry.rule, target):
            raise errors.Forbidden(f"Policy does not allow {entry.rule} to be performed.")
        return await entry.handler(req)

    def _send(self, rep: Rep, version: Version, request_id: str) -> Response:
        headers = {"x-openstack-request-id": request_id, **_versioned(version), **rep.headers}
        content = rep.raw if rep.raw is not None else b"" if rep.body is None else msgspec.json.encode(rep.body)
        if rep.body is not None or rep.raw is not None:
            headers["content-type"] = "application/json"
        if rep.stamped and version >= (1, 15):
            headers["cache-control"] = "no-cache"
            if rep.dated:
                headers["last-modified"] = http_date(rep.modified)
        return Response(content, rep.status, headers)

    def _fault(self, problem: Problem, version: Version | None, request_id: str, accept: str | None = None) -> Response:
        status, title = _status(problem)
        error: dict[str, Any] = {"status": status, "title": title, "detail": problem.public}
        if version is not None and version >= (1, 23):
            error["code"] = problem.code if problem.code.startswith("placement.") else codes.UNDEFINED
        error["request_id"] = request_id
        if status == 406 and version is None:
            error |= {"max_version": _text(MAX_VERSION), "min_version": _text(MIN_VERSION)}
        headers = {"content-type": "application/json", "x-openstack-request-id": request_id}
        if version is not None:
            headers |= _versioned(version)
        if isinstance(problem, _Allowed):
            headers["allow"] = problem.methods
        if status == 401:
            headers["www-authenticate"] = 'Keystone uri=""'
        if not accepts_json(accept):
            if "html" not in str(accept):
                said = f"{status} {title}\n\n{problem.public}\n"
                return Response(said.encode(), status, headers | {"content-type": "text/plain; charset=UTF-8"})
            text = f"<html><head><title>{status} {title}</title></head><body>{escape(problem.public)}</body></html>"
            return Response(text.encode(), status, headers | {"content-type": "text/html; charset=UTF-8"})
        return Response(msgspec.json.encode({"errors": [error]}), status, headers)


async def _body(request: Request) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > BODY_BYTES_MAX:
            raise errors.TooLarge(f"a body may have {BODY_BYTES_MAX} bytes at most")
        parts.append(part)
    return b"".join(parts)


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
) -> ASGIApp:
    """The application; `prefix` is where it is reached and where links begin (`/placement` beside a whole cloud)."""
    return _Door(engine, region, authenticate, policy or PlacementPolicy(), prefix)
