"""The one way out: what is sent, and which Problem each failure becomes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import msgspec
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from moorage.clients.http import Neighbour, ServiceTokens, embedded_transport, reason_of, request_id
from moorage.model.errors import (
    Conflict,
    Internal,
    NotFound,
    OverQuota,
    PreconditionFailed,
    Problem,
    Unauthenticated,
    Unavailable,
    UnknownOutcome,
)

Handler = Callable[[Request], Awaitable[Response]]


def app_of(handler: Handler) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        response = await handler(Request(scope, receive))
        await response(scope, receive, send)

    return app


def neighbour(handler: Handler, **more: Any) -> Neighbour:
    return Neighbour("network", "http://network", transport=embedded_transport(app_of(handler)), **more)


def answering(status: int, body: object = None) -> Handler:
    async def handler(_: Request) -> Response:
        return JSONResponse(body or {}, status)

    return handler


def failing(failure: Exception) -> Neighbour:
    def fail(_: httpx.Request) -> httpx.Response:
        raise failure

    return Neighbour("network", "http://network", transport=httpx.MockTransport(fail))


@pytest.mark.parametrize(
    ("status", "kind", "body", "sentence", "code"),
    [
        (
            409,
            Conflict,
            {"NeutronError": {"type": "MacAddressInUse", "message": "taken", "detail": ""}},
            "taken",
            "MacAddressInUse",
        ),
        (409, OverQuota, {"NeutronError": {"type": "OverQuota", "message": "port", "detail": ""}}, "port", "OverQuota"),
        (404, NotFound, {"error": {"code": 404, "message": "no user", "title": "Not Found"}}, "no user", "not_found"),
        (404, NotFound, {"itemNotFound": {"code": 404, "message": "no volume"}}, "no volume", "not_found"),
        (
            412,
            PreconditionFailed,
            {"NeutronError": {"type": "RevisionNumberConstraintFailed", "message": "old"}},
            "old",
            "RevisionNumberConstraintFailed",
        ),
        (401, Unauthenticated, {"error": {"message": "who?"}}, "who?", "unauthenticated"),
    ],
)
async def test_a_refusal_keeps_the_neighbours_words(
    status: int, kind: type[Problem], body: object, sentence: str, code: str
) -> None:
    with pytest.raises(Problem) as refused:
        await neighbour(answering(status, body)).call("POST", "/v2.0/ports", token="t", body={})
    assert type(refused.value) is kind
    assert (str(refused.value), refused.value.code) == (sentence, code)


@pytest.mark.parametrize(
    ("failure", "read", "write"),
    [
        (httpx.ConnectError("refused"), Unavailable, Unavailable),
        (httpx.ConnectTimeout("slow"), Unavailable, Unavailable),
        (httpx.PoolTimeout("full"), Unavailable, Unavailable),
        (httpx.ReadTimeout("slow"), Unavailable, UnknownOutcome),
        (httpx.ReadError("gone"), Unavailable, UnknownOutcome),
        (httpx.WriteError("gone"), Unavailable, UnknownOutcome),
        (httpx.RemoteProtocolError("cut"), Unavailable, UnknownOutcome),
    ],
)
async def test_a_call_that_was_never_sent_is_told_from_one_that_may_have_worked(
    failure: Exception, read: type[Problem], write: type[Problem]
) -> None:
    for method, kind in (("GET", read), ("POST", write), ("PUT", write), ("DELETE", write)):
        with pytest.raises(Unavailable) as lost:
            await failing(failure).call(method, "/v2.0/ports", token="t")
        assert type(lost.value) is kind, method


@pytest.mark.parametrize(
    ("status", "write"),
    [(500, UnknownOutcome), (502, UnknownOutcome), (504, UnknownOutcome), (503, Unavailable), (429, Unavailable)],
)
async def test_a_gateway_that_gives_up_says_nothing_about_the_work(status: int, write: type[Problem]) -> None:
    for method, kind in (("GET", Unavailable), ("POST", write)):
        with pytest.raises(Unavailable) as lost:
            await neighbour(answering(status)).call(method, "/v2.0/ports", token="t")
        assert type(lost.value) is kind


async def test_the_deadline_ends_a_call_that_hangs() -> None:
    async def hang(_: Request) -> Response:
        await asyncio.Event().wait()
        raise AssertionError

    for method, kind in (("GET", Unavailable), ("PUT", UnknownOutcome)):
        with pytest.raises(Unavailable) as late:
            await neighbour(hang).call(method, "/v2.0/ports", token="t", deadline_s=0.05)
        assert type(late.value) is kind


async def test_an_answer_that_is_no_json_is_not_believed() -> None:
    async def odd(_: Request) -> Response:
        return Response(b"<html>hello</html>")

    with pytest.raises(Internal):
        await neighbour(odd).call("GET", "/v2.0/ports", token="t")


async def test_the_request_id_and_the_users_token_travel_along() -> None:
    seen: dict[str, str] = {}

    async def look(request: Request) -> Response:
        seen.update(request.headers)
        return JSONResponse({})

    told = request_id.set("req-1")
    try:
        await neighbour(look).call(
            "GET", "/v2.0/ports", token="user-token", params={"fields": ["id", "name"], "limit": 3}
        )
    finally:
        request_id.reset(told)
    assert (seen["x-openstack-request-id"], seen["x-auth-token"]) == ("req-1", "user-token")


class Keystone:
    """Gives out tokens that live an hour, or as long as it is told."""

    def __init__(self, life: str = "2030-01-01T01:00:00Z") -> None:
        self.given = 0
        self.life = life

    async def __call__(self, _: Request) -> Response:
        self.given += 1
        token = {"token": {"issued_at": "2030-01-01T00:00:00Z", "expires_at": self.life}}
        return JSONResponse(token, 201, headers={"X-Subject-Token": f"token-{self.given}"})


def tokens_of(keystone: Handler) -> ServiceTokens:
    identity = Neighbour("identity", "http://identity/v3", transport=embedded_transport(app_of(keystone)))
    return ServiceTokens(identity, user="moorage", password="secret")


async def test_a_service_token_is_kept_and_replaced_when_it_is_refused() -> None:
    keystone, used = Keystone(), []

    async def picky(request: Request) -> Response:
        used.append(request.headers["x-auth-token"])
        return JSONResponse({"ports": []}, 401 if used[-1] == "token-1" and len(used) > 2 else 200)

    network = neighbour(picky, tokens=tokens_of(keystone))
    await asyncio.gather(*(network.call("GET", "/v2.0/ports") for _ in range(2)))
    assert keystone.given == 1
    await network.call("GET", "/v2.0/ports")
    assert (keystone.given, used[-2:]) == (2, ["token-1", "token-2"])


async def test_a_refused_token_is_replaced_once_for_all_who_held_it() -> None:
    keystone = Keystone()

    async def revoked(request: Request) -> Response:
        return JSONResponse({}, 401 if request.headers["x-auth-token"] == "token-1" else 200)

    network = neighbour(revoked, tokens=tokens_of(keystone))
    await asyncio.gather(*(network.call("GET", "/v2.0/ports") for _ in range(8)))
    assert keystone.given == 2


async def test_a_token_near_its_end_is_not_used() -> None:
    keystone = Keystone(life="2030-01-01T00:00:00Z")
    tokens = tokens_of(keystone)
    assert [await tokens.get(), await tokens.get()] == ["token-1", "token-2"]


async def test_credentials_that_nobody_takes_are_an_outage_not_the_users_fault() -> None:
    network = neighbour(answering(401), tokens=tokens_of(Keystone()))
    with pytest.raises(Unavailable) as refused:
        await network.call("POST", "/v2.0/ports", body={})
    assert (type(refused.value), refused.value.code) == (Unavailable, "credentials")
    with pytest.raises(Unavailable) as nobody:
        await neighbour(answering(200), tokens=tokens_of(answering(401))).call("GET", "/v2.0/ports")
    assert nobody.value.code == "credentials"


def test_every_dialect_of_refusal_is_read() -> None:
    assert reason_of(b"") == ("", "")
    assert reason_of(b"<html><title>404</title><body><h1>404 Not Found</h1>No image<br /></body></html>") == (
        "",
        "No image",
    )
    assert reason_of(msgspec.json.encode({"errors": [{"detail": "no room", "code": "placement.x"}]})) == (
        "placement.x",
        "no room",
    )
    assert reason_of(msgspec.json.encode({"NeutronError": "plain"})) == ("", "plain")
    assert reason_of(b"[1]") == ("", "[1]")
