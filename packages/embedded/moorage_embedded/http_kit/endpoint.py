"""The ASGI application of a service: it checks the token, calls the service, and turns what is raised into an answer."""

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import ClassVar, TypeAlias

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from moorage.model import errors
from moorage.model.admission import charge
from moorage.model.errors import Problem, TooManyRequests
from moorage.model.principal import Principal
from moorage_embedded.http_kit.answers import HttpFault

ValidateToken: TypeAlias = Callable[[str], Awaitable[Principal]]
STATUS: tuple[tuple[type[Problem], int], ...] = (
    (errors.Unauthenticated, 401),
    (errors.Forbidden, 403),
    (errors.NotFound, 404),
    (errors.WrongMethod, 405),
    (errors.Conflict, 409),
    (errors.TooLarge, 413),
    (errors.TooManyRequests, 429),
    (errors.NotBuilt, 501),
    (errors.Unavailable, 503),
    (errors.Refusal, 400),
)
UNEXPECTED = "An unexpected error prevented the server from fulfilling your request."

log = logging.getLogger(__name__)


def fault_of(problem: Problem) -> HttpFault:
    """How a problem is answered; what went wrong inside is in the log alone."""
    for kind, status in STATUS:
        if isinstance(problem, kind):
            headers: dict[str, str] = {}
            if isinstance(problem, TooManyRequests):
                headers["Retry-After"] = str(math.ceil(problem.retry_after_s))
            return HttpFault(status, problem.public, headers)
    log.error("internal problem: %s", problem.private)
    return HttpFault(500, UNEXPECTED)


class Endpoint(ABC):
    """One service; a subclass says how it answers, and what its error bodies look like."""

    answers_crashes: ClassVar[bool] = False
    """A crash is logged and answered with 500 here; else by the server that runs the application."""

    def __init__(self, validate_token: ValidateToken) -> None:
        self._validate = validate_token

    @abstractmethod
    async def answer(self, request: Request) -> Response:
        """The answer to one request. May raise HttpFault, and any Problem."""

    @abstractmethod
    def refusal(self, request: Request, fault: HttpFault) -> Response:
        """The error body of this API."""

    def unauthenticated(self) -> HttpFault:
        return HttpFault(401, "The request you have made requires authentication.", {"WWW-Authenticate": "Keystone"})

    def finish(self, request: Request, response: Response) -> None:  # noqa: B027  not every service has such headers
        """Adds the headers that every answer has."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        try:
            response = await self.answer(request)
        except HttpFault as fault:
            response = self.refusal(request, fault)
        except Problem as problem:
            response = self.refusal(request, fault_of(problem))
        except ClientDisconnect:  # nobody reads this answer, but the protocol wants one
            response = self.refusal(request, HttpFault(400, "The request broke off."))
        except Exception:
            if not self.answers_crashes:
                raise
            log.exception("%s %s failed", request.method, request.url.path)
            response = self.refusal(request, HttpFault(500, UNEXPECTED))
        self.finish(request, response)
        await response(scope, receive, send)

    async def principal(self, request: Request) -> Principal:
        """Who calls, and the call is counted. Raises HttpFault with 401 for a token that is not valid, and TooManyRequests."""
        try:
            principal = await self.identify(request)
        except (errors.Unavailable, TooManyRequests):
            raise
        except Problem:
            raise self.unauthenticated() from None
        charge(request.scope, principal)
        return principal

    async def identify(self, request: Request) -> Principal:
        """Raises HttpFault where there is no token, and what the check of the token raises."""
        token = request.headers.get("x-auth-token")
        if not token:
            raise self.unauthenticated()
        return await self._validate(token)


def check_query(request: Request, limit_bytes: int) -> list[tuple[str, str]]:
    """The names and values of the query. Raises HttpFault when it is too long or holds the character NUL."""
    query: bytes = request.scope["query_string"]
    if len(query) > limit_bytes:
        raise HttpFault(400, "The query is too long.")
    pairs = request.query_params.multi_items() if query else []
    if "\0" in request.scope["path"] or any("\0" in text for pair in pairs for text in pair):
        raise HttpFault(400, "The address contains the character NUL.")
    return pairs
