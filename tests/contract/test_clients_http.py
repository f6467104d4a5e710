"""The HTTP client of services: what it sends, which Problem each failure becomes, and when it stops calling a service."""

import asyncio
import contextlib
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import msgspec
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from tests.helpers.http_handlers import Lease, answering, app_of, counting, service_client

from moorage.clients.circuit_breaker import FAILURES_MAX
from moorage.clients.connection_pools import CONNECTIONS_MAX
from moorage.clients.deadline import LEASE_MARGIN_S
from moorage.clients.http import ServiceClient, embedded_transport
from moorage.clients.replies import reason_of
from moorage.clients.service_tokens import ServiceTokens
from moorage.model.errors import (
    CircuitOpen,
    Conflict,
    NotFound,
    OverQuota,
    PreconditionFailed,
    Problem,
    Unauthenticated,
    Unavailable,
    UnknownOutcome,
)
from moorage.model.task_context import global_request_id, lease_left


def failing(failure: Exception) -> ServiceClient:
    def fail(_: httpx.Request) -> httpx.Response:
        raise failure

    return ServiceClient("network", "http://network", transport=httpx.MockTransport(fail))


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
async def test_a_refusal_keeps_the_services_message(
    status: int, kind: type[Problem], body: object, sentence: str, code: str
) -> None:
    with pytest.raises(Problem) as refused:
        await service_client(answering(status, body)).call("POST", "/v2.0/ports", token="t", body={})
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
        (httpx.DecodingError("no gzip"), Unavailable, UnknownOutcome),
    ],
)
async def test_a_call_never_sent_is_distinguished_from_an_unknown_outcome(
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
async def test_a_gateway_timeout_has_an_unknown_outcome(status: int, write: type[Problem]) -> None:
    for method, kind in (("GET", Unavailable), ("POST", write)):
        with pytest.raises(Unavailable) as lost:
            await service_client(answering(status)).call(method, "/v2.0/ports", token="t")
        assert type(lost.value) is kind


async def test_the_deadline_ends_a_call_that_hangs() -> None:
    async def hang(_: Request) -> Response:
        await asyncio.Event().wait()
        raise AssertionError

    for method, kind in (("GET", Unavailable), ("PUT", UnknownOutcome)):
        with pytest.raises(Unavailable) as late:
            await service_client(hang).call(method, "/v2.0/ports", token="t", deadline_s=0.05)
        assert type(late.value) is kind


async def test_cancelled_calls_release_their_connections() -> None:
    """httpcore keeps some of theirs as busy; wherever a call is given up, there are connections for the next ones."""

    serving: list[asyncio.Task[None]] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.append(asyncio.create_task(answer(reader, writer)))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    network = ServiceClient("network", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", call_deadline_s=60.0)

    async def given_up(steps: int) -> None:
        call = asyncio.create_task(network.call("GET", "/v2.0/ports", token="t"))
        for _ in range(steps):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)

    for steps in range(8, 18):
        for _ in range(CONNECTIONS_MAX):
            await given_up(steps)
    replies = await asyncio.gather(*(network.call("GET", "/v2.0/ports", token="t") for _ in range(CONNECTIONS_MAX)))
    assert [reply.status for reply in replies] == [200] * CONNECTIONS_MAX
    await network.close()
    server.close()
    await asyncio.wait_for(asyncio.gather(*serving), 180.0)


@pytest.mark.parametrize("status", [500, 502, 503, 504])
async def test_a_service_that_keeps_failing_is_not_called(status: int) -> None:
    """N19: the caller hears at once, as of a call that was never sent; other kinds of calls go on."""
    handler, asked = counting(status)
    network = service_client(handler)
    for _ in range(FAILURES_MAX):
        with pytest.raises(Unavailable):
            await network.call("PUT", "/v2.0/ports/1", token="t")
    with pytest.raises(CircuitOpen) as refused:
        await network.call("PUT", "/v2.0/ports/2", token="t")
    assert refused.value.retry_after_s > 0
    assert "network service" in str(refused.value)
    with pytest.raises(Unavailable) as other:
        await network.call("GET", "/v2.0/ports", token="t")
    assert not isinstance(other.value, CircuitOpen)
    assert asked == ["/v2.0/ports/1"] * FAILURES_MAX + ["/v2.0/ports"]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 412, 413, 429])
async def test_a_service_that_refuses_is_called_again(status: int) -> None:
    handler, asked = counting(status)
    network = service_client(handler)
    for _ in range(3 * FAILURES_MAX):
        with pytest.raises(Problem):
            await network.call("PUT", "/v2.0/ports/1", token="t")
    assert len(asked) == 3 * FAILURES_MAX


async def test_calls_cancelled_by_us_are_no_failure_of_the_service() -> None:
    async def hang(_: Request) -> Response:
        await asyncio.Event().wait()
        raise AssertionError

    network = service_client(hang)
    for _ in range(2 * FAILURES_MAX):
        lease_left.set(Lease(LEASE_MARGIN_S + 0.01))
        with pytest.raises(Unavailable):
            await network.call("PUT", "/v2.0/ports/1", token="t", deadline_s=30.0)
        lease_left.set(None)
        call = asyncio.create_task(network.call("PUT", "/v2.0/ports/1", token="t"))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    assert not network.breaker.open_circuits()
    for _ in range(FAILURES_MAX):
        with pytest.raises(Unavailable):
            await network.call("PUT", "/v2.0/ports/1", token="t", deadline_s=0.01)
    assert network.breaker.open_circuits()


async def test_an_identity_outage_does_not_open_the_circuit_of_other_services() -> None:
    identity = ServiceClient("identity", "http://identity/v3", transport=embedded_transport(app_of(answering(503))))
    handler, asked = counting(200)
    network = service_client(handler, tokens=ServiceTokens(identity, user="moorage", password="secret"))
    for _ in range(2 * FAILURES_MAX):
        with pytest.raises(Unavailable):
            await network.call("GET", "/v2.0/ports")
    assert identity.breaker.open_circuits()
    assert not network.breaker.open_circuits()
    assert not asked


async def test_no_call_begins_near_the_end_of_a_lease() -> None:
    """RULES §3: a call starts only if it would be over 2 s before the lease is."""
    asked = 0

    async def count(_: Request) -> Response:
        nonlocal asked
        asked += 1
        return JSONResponse({})

    token = lease_left.set(Lease(LEASE_MARGIN_S - 0.1))
    for method in ("GET", "POST", "PUT", "DELETE"):
        with pytest.raises(Unavailable) as refused:
            await service_client(count).call(method, "/v2.0/ports", token="t")
        assert (type(refused.value), refused.value.code) == (Unavailable, "lease_ends"), method
    assert asked == 0
    lease_left.reset(token)
    await service_client(count).call("GET", "/v2.0/ports", token="t")
    assert asked == 1


async def test_a_call_is_cancelled_before_its_lease_ends() -> None:
    lease = Lease(LEASE_MARGIN_S + 1.0)
    left: list[float] = []

    async def hang(_: Request) -> Response:
        try:
            await asyncio.Event().wait()
        finally:
            left.append(lease())
        raise AssertionError

    lease_left.set(lease)
    async with asyncio.timeout(180):
        with pytest.raises(UnknownOutcome):
            await service_client(hang).call("PUT", "/v2.0/ports", token="t", deadline_s=30.0)
    assert 0 < left[0] <= LEASE_MARGIN_S + 0.01


async def test_a_call_continues_when_its_lease_is_renewed() -> None:
    lease = Lease(LEASE_MARGIN_S + 1.0)

    async def slow(_: Request) -> Response:
        lease.renew(LEASE_MARGIN_S + 60.0)
        await asyncio.sleep(1.1)  # the deed itself takes longer than was left when it began
        return JSONResponse({"ports": []})

    lease_left.set(lease)
    assert (await service_client(slow).call("GET", "/v2.0/ports", token="t")).body == {"ports": []}
    lease.renew(60.0)
    with pytest.raises(UnknownOutcome):  # its own time still counts
        await service_client(slow).call("PUT", "/v2.0/ports", token="t", deadline_s=0.05)


async def test_a_non_json_answer_is_an_error() -> None:
    async def odd(_: Request) -> Response:
        return Response(b"<html>hello</html>")

    for method, kind in (("GET", Unavailable), ("POST", UnknownOutcome)):  # a write was carried out, nobody knows how
        with pytest.raises(Unavailable, match="cannot be read") as unread:
            await service_client(odd).call(method, "/v2.0/ports", token="t")
        assert type(unread.value) is kind


@pytest.mark.parametrize(
    ("said", "wait_s"),
    [("7", 7.0), ("Fri, 31 Dec 1999 23:59:59 GMT", 0.0), ("soon", 0.0), ("-3", 0.0), (None, 0.0)],
)
async def test_retry_after_is_kept(said: str | None, wait_s: float) -> None:
    async def busy(_: Request) -> Response:
        return JSONResponse({}, 503, headers={} if said is None else {"Retry-After": said})

    with pytest.raises(Unavailable) as refused:
        await service_client(busy).call("POST", "/v2.0/ports", token="t")
    assert refused.value.retry_after_s == wait_s


async def test_retry_after_with_a_date_is_parsed() -> None:
    async def busy(_: Request) -> Response:
        at = datetime.now(UTC) + timedelta(seconds=30)
        return JSONResponse({}, 429, headers={"Retry-After": format_datetime(at, usegmt=True)})

    with pytest.raises(Unavailable) as refused:
        await service_client(busy).call("POST", "/v2.0/ports", token="t")
    assert 25.0 < refused.value.retry_after_s <= 30.0


async def test_the_request_id_and_the_users_token_travel_along() -> None:
    seen: dict[str, str] = {}

    async def look(request: Request) -> Response:
        seen.update(request.headers)
        return JSONResponse({})

    told = global_request_id.set("req-1")
    try:
        await service_client(look).call(
            "GET", "/v2.0/ports", token="user-token", params={"fields": ["id", "name"], "limit": 3}
        )
    finally:
        global_request_id.reset(told)
    assert (seen["x-openstack-request-id"], seen["x-auth-token"]) == ("req-1", "user-token")


def test_every_error_format_is_parsed() -> None:
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
