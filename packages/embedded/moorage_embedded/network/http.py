"""HTTP in: one dispatcher over the path's parts; a body is read within a limit, a verb is run, an answer encoded."""

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar
from urllib.parse import unquote

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from moorage.model.admission import charge, declares_more
from moorage.model.errors import Problem, TooManyRequests, Unauthenticated, Unavailable
from moorage.model.principal import Principal
from moorage.sql import Database, Tx
from moorage_embedded.network.faults import Fault, bad
from moorage_embedded.network.guarantees import (
    CLAIM_TRIES_MAX,
    ChangeGuarantees,
    ClaimsWanted,
    GuaranteeChange,
    not_here,
    too_much,
)
from moorage_embedded.network.outbox import Outbox
from moorage_embedded.network.policy import Who
from moorage_embedded.network.request import Call, Settings
from moorage_embedded.network.routes import find_route
from moorage_embedded.network.store import Store

T = TypeVar("T")
BODY_MAX_BYTES = 1024 * 1024
QUERY_MAX_BYTES = 64 * 1024
ValidateToken: TypeAlias = Callable[[str], Awaitable[Principal]]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


@dataclass
class Ask:
    """A request, once it is known who asks and what is said."""

    method: str
    parts: tuple[str, ...]
    pairs: list[tuple[str, str]]
    body: Any
    if_match: str | None
    url: str


class Runner:
    """Runs verbs in transactions, and hands what they say of others to the outbox afterwards."""

    def __init__(
        self, database: Database, settings: Settings, outbox: Outbox, guarantees: ChangeGuarantees | None = None
    ) -> None:
        self._database = database
        self.settings = settings
        self._outbox = outbox
        self._guarantees = guarantees

    async def write(self, who: Who, work: Callable[[Call], T]) -> T:
        """One transaction; what it changes of claimed guarantees is changed in placement before it is committed."""
        taken: tuple[GuaranteeChange, ...] = ()
        for _ in range(CLAIM_TRIES_MAX):
            try:
                return await self._write(who, work, taken)
            except ClaimsWanted as wanted:  # for the first time, or somebody changed something since
                await self._give_back(taken)
                taken = ()
                if self._guarantees is None:
                    raise not_here(wanted.changes) from None
                if not await self._guarantees(wanted.changes, False):
                    raise too_much(wanted.changes) from None
                taken = wanted.changes
            except Fault:  # whatever else goes wrong, nobody knows what was committed
                await self._give_back(taken)
                raise
        await self._give_back(taken)
        raise Fault(503, "ServiceUnavailable", "what is guaranteed keeps changing; try again later")

    async def _give_back(self, taken: Sequence[GuaranteeChange]) -> None:
        if taken and self._guarantees is not None:
            await self._guarantees([each.taken_back() for each in reversed(taken)], True)

    async def _write(self, who: Who, work: Callable[[Call], T], taken: tuple[GuaranteeChange, ...]) -> T:
        calls: list[Call] = []

        def tell(tx: Tx) -> T:
            call = Call(Store(tx), who, self.settings)
            calls[:] = [call]  # a deadlock runs us again
            answer = work(call)
            if (wanted := tuple(call.claims.values())) and wanted != taken:
                raise ClaimsWanted(wanted)
            return answer

        answer = await self._database.write(tell)
        if taken and not calls[0].claims:
            await self._give_back(taken)  # somebody else changed it, and nothing was left to change
        self._outbox.put(calls[0].events, calls[0].segments)
        return answer

    async def read(self, who: Who, work: Callable[[Call], T]) -> T:
        return await self._database.read(lambda tx: work(Call(Store(tx), who, self.settings)))


class Wire:
    """The ASGI endpoint under `/v2.0`, and the version documents above it."""

    def __init__(self, runner: Runner, public_url: str, validate_token: ValidateToken) -> None:
        self._runner = runner
        self._public = public_url.rstrip("/")
        self._validate = validate_token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except Fault as fault:
            response = _problem(fault)
        except ClientDisconnect:  # nobody hears this, but the protocol wants an answer
            response = _problem(bad("The client went away."))
        except Unavailable as problem:
            response = _problem(Fault(503, "ServiceUnavailable", problem.public))
        except TooManyRequests as problem:
            response = _problem(Fault(429, "HTTPTooManyRequests", problem.public))
            response.headers["retry-after"] = str(math.ceil(problem.retry_after_s))
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        path, query = str(request.scope["path"]), str(request.scope["query_string"], "latin-1")
        parts = _parts(request.scope)
        if not parts:
            return _json(self._versions())
        if parts[0] != "v2.0":
            raise Fault(404, "HTTPNotFound", "The resource could not be found.")
        if len(parts) == 1:
            return _json(self._resources())
        principal = await self._principal(request)
        charge(request.scope, principal)
        who = Who(principal)
        route = find_route(request.method, parts[1:])
        if "\0" in path or "%00" in query:
            raise bad("The address contains a NUL character")
        if len(query) > QUERY_MAX_BYTES:
            raise bad("The query is too long")
        ask = Ask(
            request.method,
            parts[1:],
            list(request.query_params.multi_items()),
            await _body(request) if request.method in {"POST", "PUT"} and not _names_a_tag(parts) else None,
            request.headers.get("if-match"),
            f"{self._public}{path}",
        )
        run = self._runner.write if route.writes else self._runner.read
        answer = await run(who, lambda call: route.verb(call, ask))
        return _json(answer, route.status) if answer is not None else Response(status_code=204)

    async def _principal(self, request: Request) -> Principal:
        token = request.headers.get("x-auth-token")
        if not token:
            raise _unauthenticated()
        try:
            return await self._validate(token)
        except Unauthenticated:
            raise _unauthenticated() from None
        except Unavailable:
            raise
        except Problem as problem:
            raise Fault(401, "HTTPUnauthorized", problem.public) from None

    def _versions(self) -> Any:
        links = [{"rel": "self", "href": f"{self._public}/v2.0/"}]
        return {"versions": [{"id": "v2.0", "status": "CURRENT", "links": links}]}

    def _resources(self) -> Any:
        return {
            "resources": [
                {
                    "name": name,
                    "collection": f"{name}s",
                    "links": [{"rel": "self", "href": f"{self._public}/v2.0/{name}s"}],
                }
                for name in ("subnet", "subnetpool", "network", "port")
            ]
        }


def _parts(scope: Scope) -> tuple[str, ...]:
    """The words of the path: a slash within one is no border, or an id of slashes would mean the whole list."""
    raw = scope.get("raw_path")
    text = raw.decode("latin-1").partition("?")[0] if raw else str(scope["path"])
    return tuple(unquote(part) for part in text.removesuffix(".json").split("/") if part)


def _names_a_tag(parts: tuple[str, ...]) -> bool:
    """`PUT .../tags/blue` says all in its path; what is in its body, clients do not agree on, and nobody reads."""
    return len(parts) > 2 and parts[-2] == "tags"


def _unauthenticated() -> Fault:
    return Fault(401, "HTTPUnauthorized", "The request you have made requires authentication.")


async def _body(request: Request) -> Any:
    if declares_more(request.headers.get("content-length"), BODY_MAX_BYTES):
        raise Fault(413, "HTTPRequestEntityTooLarge", f"The body is larger than {BODY_MAX_BYTES} bytes.")
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > BODY_MAX_BYTES:
            raise Fault(413, "HTTPRequestEntityTooLarge", f"The body is larger than {BODY_MAX_BYTES} bytes.")
        chunks.append(chunk)
    text = b"".join(chunks)
    if not text:
        return {}
    if b"\\u0000" in text:
        raise bad("Body contains invalid data: a NUL character")
    try:
        said = _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise bad("Malformed request body: it is not JSON.") from None
    if not isinstance(said, dict):
        raise bad("Body contains invalid data")
    return said


def _json(answer: Any, status: int = 200) -> Response:
    return Response(_encode(answer), status, media_type="application/json")


def _problem(fault: Fault) -> Response:
    return _json(fault.body(), fault.status)
