"""HTTP in: the path's parts, the token, a verb, an answer; refusals in the shape the client accepts."""

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
from moorage_embedded.image import discovery
from moorage_embedded.image.faults import Fault, answer_of, bad, too_often, unauthenticated
from moorage_embedded.image.policy import Who
from moorage_embedded.image.request import Call, Desk
from moorage_embedded.image.routes import find_verb

ValidateToken: TypeAlias = Callable[[str], Awaitable[Principal]]


class Wire:
    """The ASGI endpoint."""

    def __init__(self, context: Desk, validate_token: ValidateToken) -> None:
        self._context = context
        self._validate = validate_token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except Fault as fault:
            response = answer_of(fault, request.headers.get("accept", ""))
        except Unavailable as problem:
            response = answer_of(Fault(503, problem.public), request.headers.get("accept", ""))
        except TooManyRequests as problem:
            response = answer_of(too_often(problem), request.headers.get("accept", ""))
        except ClientDisconnect:  # nobody hears this, but the protocol wants an answer
            response = answer_of(bad("The request broke off."), "")
        response.headers["x-openstack-request-id"] = f"req-{new_uuid()}"
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        parts = _parts(request.scope)
        if not parts:
            return discovery.versions(self._context, 300)
        if parts == ("versions",):
            return discovery.versions(self._context, 200)
        if parts == ("healthcheck",):
            return Response("OK", media_type="text/plain")
        if len(request.url.query) > self._context.settings.query_max_bytes:
            raise bad("The query is too long.")
        principal = await self._principal(request)
        charge(request.scope, principal)
        who = Who(principal)
        if parts[0] != "v2" or (len(parts) > 1 and request.url.path.endswith("/")):
            raise Fault(404, "The resource could not be found.")
        verb = find_verb(request.method, parts[1:])
        pairs = list(request.query_params.multi_items())
        if any("\0" in word for word in (*parts, *(said for pair in pairs for said in pair))):
            raise bad("The address holds a character that no name has.")
        return await verb(Call(self._context, who, request, parts[1:], pairs))

    async def _principal(self, request: Request) -> Principal:
        token = request.headers.get("x-auth-token")
        if not token:
            raise unauthenticated(self._context.settings.identity_url)
        try:
            return await self._validate(token)
        except Unavailable:
            raise
        except Problem:
            raise unauthenticated(self._context.settings.identity_url) from None


def _parts(scope: Scope) -> tuple[str, ...]:
    """Split before decoding: a tag may have a slash in it."""
    raw = scope.get("raw_path")
    text = raw.decode("ascii", "replace") if raw else quote(scope["path"])
    text = text.partition("?")[0].removeprefix(quote(scope.get("root_path", "")))
    return tuple(unquote(part) for part in text.split("/") if part)
