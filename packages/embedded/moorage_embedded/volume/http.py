"""HTTP in: the path's parts, the microversion, the token, a verb, an answer; refusals in Cinder's shape."""

import re
from collections.abc import Awaitable, Callable
from typing import TypeAlias
from urllib.parse import quote, unquote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from moorage.model.admission import charge
from moorage.model.errors import Problem, TooManyRequests, Unavailable
from moorage.model.ids import new_uuid
from moorage.model.principal import Principal
from moorage_embedded.volume import versions
from moorage_embedded.volume.faults import Fault, answer_of, bad, no_such_path, too_often
from moorage_embedded.volume.policy import Who
from moorage_embedded.volume.request import Call, Desk, json
from moorage_embedded.volume.routes import FIRST, find_verb

ValidateToken: TypeAlias = Callable[[str], Awaitable[Principal]]
_PROJECT = re.compile(r"[0-9a-f-]+")


class Wire:
    """The ASGI endpoint under `/v3` and `/v3/{project}`, and the version documents above it."""

    def __init__(self, context: Desk, validate_token: ValidateToken) -> None:
        self._context = context
        self._validate = validate_token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        version: int | None = None
        id = f"req-{new_uuid()}"
        try:
            version = versions.asked_for(request.headers.get(versions.HEADER))
            response = await self._answer(request, version, id)
        except Fault as fault:
            response = answer_of(fault)
        except Unavailable as problem:
            response = answer_of(Fault(503, problem.public))
        except TooManyRequests as problem:
            response = answer_of(too_often(problem))
        except ClientDisconnect:  # nobody hears this, but the protocol wants an answer
            response = answer_of(bad("The request broke off."))
        if version is not None:
            response.headers[versions.HEADER] = f"volume 3.{version}"
            response.headers["Vary"] = versions.HEADER
        response.headers["x-openstack-request-id"] = response.headers["x-compute-request-id"] = id
        await response(scope, receive, send)

    async def _answer(self, request: Request, version: int, id: str) -> Response:
        parts = _parts(request.scope)
        if not parts:
            return json(versions.document(self._context.public_url), 300)
        if parts == ("healthcheck",):
            return Response("OK", media_type="text/plain")
        if parts[0] != "v3":
            raise no_such_path()
        if len(parts) == 1:
            return json(versions.document(self._context.public_url))
        if request.url.path.endswith("/"):
            raise no_such_path()  # an id that is empty is no list
        if len(request.url.query) > self._context.settings.query_max_bytes:
            raise bad("The query is too long.")
        principal = await self._principal(request)
        charge(request.scope, principal)
        who = Who(principal)
        rest, prefix = parts[1:], "/v3"
        if rest[0] not in FIRST and _PROJECT.fullmatch(rest[0]):
            if rest[0] != who.project:
                raise bad("Malformed request url")
            rest, prefix = rest[1:], f"/v3/{rest[0]}"
        if not rest:
            raise no_such_path()
        if rest[-1].endswith(".json"):
            rest = (*rest[:-1], rest[-1].removesuffix(".json"))
        pairs = list(request.query_params.multi_items())
        if any("\0" in word for word in (*parts, *(said for pair in pairs for said in pair))):
            raise bad("The address holds a character that no name has.")
        verb = find_verb(request.method, rest)
        return await verb(Call(self._context, who, principal, request, rest, prefix, pairs, version, id))

    async def _principal(self, request: Request) -> Principal:
        token = request.headers.get("x-auth-token")
        if not token:
            raise _unauthenticated()
        try:
            principal = await self._validate(token)
            service = request.headers.get("x-service-token")
            if service and not principal.service_roles:
                principal = _with_service(principal, await self._validate(service))
        except Unavailable:
            raise
        except Problem:
            raise _unauthenticated() from None
        return principal


def _with_service(principal: Principal, service: Principal) -> Principal:
    from msgspec.structs import replace

    return replace(principal, service_roles=service.roles)


def _unauthenticated() -> Fault:
    return Fault(401, "The request you have made requires authentication.", {"WWW-Authenticate": "Keystone"})


def _parts(scope: Scope) -> tuple[str, ...]:
    """Split before decoding: a name may have a slash in it."""
    raw = scope.get("raw_path")
    text = raw.decode("ascii", "replace") if raw else quote(scope["path"])
    text = text.partition("?")[0].removeprefix(quote(scope.get("root_path", "")))
    return tuple(unquote(part) for part in text.split("/") if part)
