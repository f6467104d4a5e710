"""The HTTP client's service tokens: kept, renewed when refused, and shared by calls."""

import asyncio

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from tests.helpers.http_handlers import Handler, Lease, answering, app_of, counting, service_client

from moorage.clients import http, service_tokens
from moorage.clients.circuit_breaker import FAILURES_MAX, Breaker
from moorage.clients.deadline import LEASE_MARGIN_S, Deadline
from moorage.clients.http import ServiceClient, embedded_transport
from moorage.clients.service_tokens import ServiceTokens
from moorage.model.errors import (
    CircuitOpen,
    Unavailable,
)
from moorage.model.task_context import lease_left


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
    identity = ServiceClient("identity", "http://identity/v3", transport=embedded_transport(app_of(keystone)))
    return ServiceTokens(identity, user="moorage", password="secret")


async def test_a_service_token_is_kept_until_it_is_refused() -> None:
    keystone, used = Keystone(), []

    async def picky(request: Request) -> Response:
        used.append(request.headers["x-auth-token"])
        return JSONResponse({"ports": []}, 401 if used[-1] == "token-1" and len(used) > 2 else 200)

    network = service_client(picky, tokens=tokens_of(keystone))
    await asyncio.gather(*(network.call("GET", "/v2.0/ports") for _ in range(2)))
    assert keystone.given == 1
    await network.call("GET", "/v2.0/ports")
    assert (keystone.given, used[-2:]) == (2, ["token-1", "token-2"])


async def test_a_refused_token_is_replaced_once_for_all_callers() -> None:
    keystone = Keystone()

    async def revoked(request: Request) -> Response:
        return JSONResponse({}, 401 if request.headers["x-auth-token"] == "token-1" else 200)

    network = service_client(revoked, tokens=tokens_of(keystone))
    await asyncio.gather(*(network.call("GET", "/v2.0/ports") for _ in range(8)))
    assert keystone.given == 2


@pytest.mark.parametrize("given", [0, 1])
async def test_a_call_that_waits_for_a_token_was_not_sent(given: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor was one that is to be made again because its token was refused."""
    keystone, limits = Keystone(), list[Deadline]()

    class Seen(Deadline):
        def __init__(self, own_s: float) -> None:
            super().__init__(own_s)
            limits.append(self)

    async def hang(request: Request) -> Response:
        if keystone.given < given:
            return await keystone(request)
        limits[0]._limit.reschedule(asyncio.get_running_loop().time())
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(http, "Deadline", Seen)
    network = service_client(answering(401), tokens=tokens_of(hang))
    with pytest.raises(Unavailable) as late:
        await network.call("POST", "/v2.0/ports", body={})
    assert (type(late.value), network.lost, network.calls["POST ports"]) == (Unavailable, 0, given)


async def test_a_hanging_identity_service_is_named_as_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    """All who wait for a token share one call, whose own deadline ends it; so its failures count, and then nobody waits."""
    monkeypatch.setattr(service_tokens, "TOKEN_DEADLINE_S", 0.05)
    asked = 0

    async def hang(_: Request) -> Response:
        nonlocal asked
        asked += 1
        await asyncio.Event().wait()
        raise AssertionError

    transport, left_alone = embedded_transport(app_of(hang)), Breaker("identity", rest_s=600.0)
    identity = ServiceClient(
        "identity", "http://identity/v3", transport=transport, call_deadline_s=180.0, breaker=left_alone
    )
    handler, sent = counting(200)
    tokens = ServiceTokens(identity, user="moorage", password="secret")
    network = service_client(handler, tokens=tokens, call_deadline_s=180.0)
    for _ in range(FAILURES_MAX):
        calls = [network.call("POST", "/v2.0/ports", body={}) for _ in range(8)]
        for each in await asyncio.gather(*calls, return_exceptions=True):
            assert (type(each), str(each)) == (Unavailable, "the identity service did not answer")
    with pytest.raises(CircuitOpen, match="the identity service did not answer"):
        await network.call("POST", "/v2.0/ports", body={})
    assert (asked, sent, network.breaker.open_circuits()) == (FAILURES_MAX, [], ())


async def test_cancelling_one_caller_does_not_cancel_the_token_call() -> None:
    keystone, go_on, asked = Keystone(), asyncio.Event(), list[str]()

    async def slow(request: Request) -> Response:
        asked.append(request.url.path)
        await go_on.wait()
        return await keystone(request)

    network = service_client(answering(200), tokens=tokens_of(slow))
    lease_left.set(Lease(LEASE_MARGIN_S + 0.2))
    first = asyncio.create_task(network.call("GET", "/v2.0/ports"))
    await asyncio.sleep(0)
    lease_left.set(None)
    second, third = (asyncio.create_task(network.call("GET", "/v2.0/ports")) for _ in range(2))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(Unavailable, match="was not asked"):
        await first
    go_on.set()
    assert (await third).status == 200
    assert (len(asked), keystone.given) == (1, 1)


async def test_calls_to_a_recovered_identity_service_close_its_circuit() -> None:
    """They need a token first: the call for it must be let through though one of them is what looks whether it is back."""
    is_out = True

    def answer(request: httpx.Request) -> httpx.Response:
        if is_out:
            raise httpx.ConnectError("refused")
        return httpx.Response(201, headers={"X-Subject-Token": "ours"}, json={})

    breaker, transport = Breaker("identity", rest_s=0.0), httpx.MockTransport(answer)
    asking = ServiceClient("identity", "http://identity/v3", transport=transport, breaker=breaker)
    tokens = ServiceTokens(asking, user="moorage", password="secret")
    identity = ServiceClient("identity", "http://identity/v3", tokens=tokens, transport=transport, breaker=breaker)
    for _ in range(2 * FAILURES_MAX):
        with pytest.raises(Unavailable):
            await identity.call("GET", "/auth/tokens")
    assert breaker.open_circuits()
    is_out = False
    assert (await identity.call("GET", "/auth/tokens")).status == 201
    assert not breaker.open_circuits()


async def test_an_answer_without_a_token_is_an_outage() -> None:
    with pytest.raises(Unavailable, match="without a token"):
        await service_client(answering(200), tokens=tokens_of(answering(200))).call("GET", "/v2.0/ports")


async def test_a_token_near_its_end_is_not_used() -> None:
    keystone = Keystone(life="2030-01-01T00:00:00Z")
    tokens = tokens_of(keystone)
    assert [await tokens.get(), await tokens.get()] == ["token-1", "token-2"]


async def test_refused_service_credentials_are_an_outage() -> None:
    network = service_client(answering(401), tokens=tokens_of(Keystone()))
    with pytest.raises(Unavailable) as refused:
        await network.call("POST", "/v2.0/ports", body={})
    assert (type(refused.value), refused.value.code) == (Unavailable, "credentials")
    with pytest.raises(Unavailable) as nobody:
        await service_client(answering(200), tokens=tokens_of(answering(401))).call("GET", "/v2.0/ports")
    assert nobody.value.code == "credentials"
