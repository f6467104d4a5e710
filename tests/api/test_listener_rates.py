"""A client that sends too many requests gets 429 and Retry-After."""

import pytest
from tests.helpers.raw_http_client import Echo, get, listening

from moorage.api.app import ComputeApp
from moorage.main.http_limits import Rates
from moorage.main.rate_limits import RateLimits
from moorage.model.admission import CHARGE
from moorage.model.errors import TooManyRequests
from moorage.model.principal import Principal
from moorage.model.rate_buckets import RateBuckets
from moorage_testing.compute_app import ADMIN, MEMBER, STRANGER, authenticate, compute_api, token


def test_a_bucket_holds_a_burst_and_fills_by_the_second() -> None:
    now = [0.0]
    buckets = RateBuckets(2.0, 3, 100, lambda: now[0])
    assert [buckets.take("a") for _ in range(4)] == [0, 0, 0, 0.5]
    assert buckets.take("b") == 0
    now[0] = 0.5
    assert [buckets.take("a") for _ in range(2)] == [0, 0.5]
    now[0] = 1_000.0
    assert [buckets.take("a") for _ in range(4)] == [0, 0, 0, 0.5]


def test_a_table_of_buckets_is_bounded() -> None:
    buckets = RateBuckets(1.0, 1, 10, lambda: 0.0)
    assert buckets.take("first") == 0
    for number in range(1_000):
        assert buckets.take(str(number)) == 0
    assert len(buckets) == 10
    assert buckets.take("999") > 0


def test_service_users_and_the_unscoped_have_no_rate() -> None:
    limits = RateLimits(Rates(project_per_s=0.001, project_burst=1), lambda: 0.0)
    for principal in (
        Principal("u", project="p", roles=("service",)),
        Principal("u", project="p", service_roles=("service",)),
        Principal("u"),
    ):
        limits.charge_principal(principal)
        limits.charge_principal(principal)
    limits.charge_principal(MEMBER)
    with pytest.raises(TooManyRequests, match=r"more often than 0\.001 times in a second\. Ask again in 1000 s\."):
        limits.charge_principal(MEMBER)
    limits.charge_principal(STRANGER)


async def test_requests_of_an_address_are_rate_limited() -> None:
    rates = Rates(address_per_s=0.01, address_burst=2, count_loopback=True)
    async with listening(rates=rates) as there:
        answers = [await there.ask(get()) for _ in range(3)]
        assert [status for status, _, _ in answers] == [200, 200, 429]
        assert 90 <= int(answers[2][1]["retry-after"]) <= 100
        assert answers[2][2].startswith(b"This address asks too often")


async def test_behind_a_trusted_proxy_each_client_has_its_own_rate() -> None:
    rates = Rates(address_per_s=0.01, address_burst=1, count_loopback=True)
    async with listening(rates=rates, trusted_proxies=("127.0.0.1",)) as there:

        async def ask(*headers: bytes) -> int:
            return (await there.ask(get("/", *headers)))[0]

        assert [await ask(b"X-Forwarded-For: 192.0.2.1") for _ in range(2)] == [200, 429]
        assert await ask(b"X-Forwarded-For: 192.0.2.2") == 200
        assert await ask(b"X-Forwarded-For: 192.0.2.3, 192.0.2.1") == 429
        assert there.app.scopes[0]["client"] == ("192.0.2.1", 0)
    async with listening(rates=rates) as there:
        assert [(await there.ask(get("/", b"X-Forwarded-For: 192.0.2.%d" % n)))[0] for n in range(2)] == [200, 429]
        assert there.app.scopes[0]["client"][0] == "127.0.0.1"


async def test_local_clients_are_limited_only_when_configured() -> None:
    app = Echo()
    async with listening(app, rates=Rates(address_per_s=0.01, address_burst=1, project_per_s=0.01)) as there:
        assert [(await there.ask(get()))[0] for _ in range(3)] == [200] * 3
        assert CHARGE not in app.scopes[0]


async def test_requests_of_a_project_are_rate_limited(tmp_path: object) -> None:
    rates = Rates(project_per_s=0.01, project_burst=2, count_loopback=True)
    async with (
        compute_api(tmp_path) as client,
        listening(ComputeApp(client.context, authenticate), rates=rates) as there,
    ):  # type: ignore[arg-type]

        async def ask(principal: Principal) -> tuple[int, dict[str, str], bytes]:
            return await there.ask(get("/v2.1/limits", b"X-Auth-Token: " + token(principal).encode()))

        assert [(await ask(MEMBER))[0] for _ in range(2)] == [200, 200]
        status, headers, body = await ask(MEMBER)
        assert status == 429
        assert int(headers["retry-after"]) <= 100
        assert b'"overLimit":{"code":429' in body
        assert (await ask(ADMIN))[0] == 200
        assert (await there.ask(get("/v2.1/limits")))[0] == 401


async def test_only_a_trusted_proxy_can_name_the_client() -> None:
    for trusted, seen in ((("127.0.0.1",), "192.0.2.7"), ((), "127.0.0.1")):
        app = Echo()
        async with listening(app, trusted_proxies=trusted) as there:
            assert (await there.ask(get("/", b"X-Forwarded-For: 192.0.2.1, 192.0.2.7")))[0] == 200
            assert app.scopes[0]["client"][0] == seen
