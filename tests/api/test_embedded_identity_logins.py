"""Logins at the embedded identity service: failed logins are delayed or locked, password hashes are expensive, and invalid input is not stored."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import bcrypt
import httpx
import pytest
import sqlalchemy as sa
from tests.api.test_embedded_identity_tokens import FIRST, Clock, Cloud, on

from moorage.main.config import Config
from moorage.model.errors import Unauthenticated, Unavailable
from moorage.sql import open_database
from moorage_embedded.identity import passwords, store
from moorage_embedded.identity.app import IdentitySettings, make_identity
from moorage_embedded.identity.lockout import ACCOUNTS, DEFAULTS, KEPT_MAX, AttemptBuckets, LockoutLimits, home_of
from moorage_embedded.identity.passwords import ROUNDS, Passwords
from moorage_testing.logins import ROUNDS_MIN
from moorage_testing.waiting import PATIENCE_S

Open = Callable[..., Any]
FEW = LockoutLimits(lockout_failure_attempts=3, lockout_duration_s=600.0, failures_per_minute=0)


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    """The service on this directory, with these limits, asked from this address."""

    @asynccontextmanager
    async def opened(
        limits: LockoutLimits = DEFAULTS, *, clock: Clock | None = None, rounds: int = 4, address: str = "203.0.113.5"
    ) -> AsyncIterator[Cloud]:  # fmt: skip
        database = await open_database(f"sqlite:///{tmp_path}/identity.db", name="identity")
        clock = clock or Clock()
        service = make_identity(
            database,
            public_url="http://cloud:5000",
            bootstrap=FIRST,
            key=b"k" * 32,
            clock=clock,
            settings=IdentitySettings(password_rounds=rounds, limits=limits),
        )
        await service.start()
        transport = httpx.ASGITransport(service.app, client=(address, 40_000))
        async with httpx.AsyncClient(transport=transport, base_url="http://cloud:5000") as http:
            yield Cloud(service, http, clock)
        service.close()
        await database.close()

    return opened


# ------------------------------------------------------------------------------------------------------- lockout


async def test_failures_in_a_row_lock_an_account_for_a_while(opened: Open) -> None:
    clock = Clock()
    async with opened(FEW, clock=clock) as cloud:
        for _ in range(2):
            assert (await cloud.login("demo", "wrong")).status_code == 401
        assert (await cloud.login("demo", "demo-secret")).status_code == 201, "two are none"
        for _ in range(3):
            refused = await cloud.login("demo", "wrong")
        locked = await cloud.login("demo", "demo-secret")
        assert (locked.status_code, locked.json()) == (401, refused.json()), "nobody is told which it was"
        assert (await cloud.login("admin", "secret")).status_code == 201, "others are not locked"
    async with opened(FEW, clock=clock) as cloud:
        assert (await cloud.login("demo", "demo-secret")).status_code == 401, "it outlives the process"
        clock.now += 601.0
        assert (await cloud.login("demo", "wrong")).status_code == 401
        assert (await cloud.login("demo", "demo-secret")).status_code == 201, "and begins anew afterwards"


async def test_a_change_of_password_is_a_guess_too(opened: Open) -> None:
    async with opened(FEW) as cloud:
        admin = await cloud.admin()
        users = (await cloud.ask("GET", "/users", admin, params={"name": "demo"})).json()["users"]
        body = {"user": {"original_password": "wrong", "password": "other"}}
        for _ in range(3):
            reply = await cloud.ask("POST", f"/users/{users[0]['id']}/password", json=body)
            assert reply.status_code == 401
        assert (await cloud.login("demo", "demo-secret")).status_code == 401
        assert (await cloud.ask("DELETE", f"/users/{users[0]['id']}", admin)).status_code == 204
        database = cloud.service._context.database
        assert await database.read(lambda tx: tx.rows(sa.select(store.failed_logins))) == []


async def test_some_users_are_never_locked(opened: Open) -> None:
    async with opened(FEW) as cloud:
        admin = await cloud.admin()
        users = (await cloud.ask("GET", "/users", admin, params={"name": "demo"})).json()["users"]
        body = {"user": {"options": {"ignore_lockout_failure_attempts": True}}}
        assert (await cloud.ask("PATCH", f"/users/{users[0]['id']}", admin, json=body)).status_code == 200
        for _ in range(5):
            await cloud.login("demo", "wrong")
        assert (await cloud.login("demo", "demo-secret")).status_code == 201


async def test_failed_logins_keep_remembered_users(opened: Open) -> None:
    async with opened(FEW) as cloud:
        token = await cloud.admin()
        await cloud.service.validate(token)
        before = dict(cloud.service._context._remembered)
        await cloud.login("demo", "wrong")
        assert before.items() <= cloud.service._context._remembered.items()


async def test_without_configuration_nobody_is_locked_as_in_keystone(opened: Open) -> None:
    assert Config().security_compliance.lockout_failure_attempts == 0
    async with opened() as cloud:
        for _ in range(20):
            await cloud.login("demo", "wrong")
        assert (await cloud.login("demo", "demo-secret")).status_code == 201


# ------------------------------------------------------------------------------------------------------ throttle


async def test_an_address_that_guesses_waits(opened: Open) -> None:
    clock = Clock()
    async with opened(LockoutLimits(failures_per_minute=6), clock=clock) as cloud:
        for _ in range(6):
            assert (await cloud.login("admin", "wrong")).status_code == 401
        reply = await cloud.login("admin", "secret")
        assert reply.status_code == 429, "the right one is not told from a wrong one"
        assert reply.headers["retry-after"] == "10"
        assert reply.json()["error"]["code"] == 429
        assert "try again in 10 seconds" in reply.json()["error"]["message"]
        assert (await cloud.login("demo", "demo-secret")).status_code == 201, "whoever shares the address goes on"
        clock.now += 10.0
        assert (await cloud.login("admin", "secret")).status_code == 201
        for number in range(6 * ACCOUNTS):
            await cloud.login(f"nobody-{number}", "wrong")
        assert (await cloud.login("demo", "demo-secret")).status_code == 429, "but for one who tries all names"
        assert (await cloud.ask("GET", "/auth/projects")).status_code == 401


async def test_credentials_of_applications_are_guessed_too(opened: Open) -> None:
    async with opened(LockoutLimits(failures_per_minute=2)) as cloud:
        guess = {"id": "abc", "secret": "wrong"}
        codes = [
            (await cloud.auth({"methods": ["application_credential"], "application_credential": guess})).status_code
            for _ in range(4)
        ]
        assert codes == [401, 401, 429, 429]
        stale = [(await cloud.auth({"methods": ["token"], "token": {"id": "x"}})).status_code for _ in range(4)]
        assert stale == [401] * 4, "nobody guesses tokens"


async def test_logins_without_an_ip_address_never_wait(opened: Open) -> None:
    async with opened(LockoutLimits(failures_per_minute=1), address="inside") as cloud:
        for _ in range(3):
            assert (await cloud.login("admin", "wrong")).status_code == 401
        assert (await cloud.login("admin", "secret")).status_code == 201


def test_the_number_of_remembered_addresses_is_limited() -> None:
    buckets = AttemptBuckets(1, lambda: 0.0)
    for number in range(KEPT_MAX + 5):
        buckets.take(str(number))
    assert len(buckets._left) == KEPT_MAX
    assert buckets.wait_s("0") == 0.0
    assert buckets.wait_s(str(KEPT_MAX)) > 0.0


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8:0:1::1", "2001:db8:0:1:ffff::2", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("fe80::1%eth0", "fe80::2", True),
        ("testclient", "testclient", True),
    ],
)
def test_addresses_of_one_ipv6_network_count_as_one(one: str, other: str, same: bool) -> None:
    assert (home_of(one) == home_of(other)) is same


# ----------------------------------------------------------------------------------------------------- passwords


def cost(stored: str) -> int:
    return int(stored.split("$")[2])


async def stored_of(cloud: Cloud, name: str) -> str:
    rows = await cloud.service._context.database.read(lambda tx: store.find(tx, "users", {"name": name}))
    return str(rows[0]["password_hash"])


async def test_the_cost_is_keystones_and_cheaper_hashes_are_replaced(opened: Open) -> None:
    assert ROUNDS == Config().security_compliance.password_hash_rounds == 12
    async with opened() as cloud:
        admin = await cloud.admin()
        made = {"user": {"name": "old", "domain_id": "default", "password": "of old"}}
        assert (await cloud.ask("POST", "/users", admin, json=made)).status_code == 201
        assert cost(await stored_of(cloud, "old")) == cost(await stored_of(cloud, "demo")) == 4
    async with opened(rounds=5) as cloud:
        assert cost(await stored_of(cloud, "demo")) == 5, "those of the configuration, at the start"
        token = await cloud.admin()
        old = await stored_of(cloud, "old")
        assert (await cloud.login("old", "wrong")).status_code == 401
        assert await stored_of(cloud, "old") == old
        reply = await cloud.login("old", "of old")
        assert reply.status_code == 201
        assert cost(await stored_of(cloud, "old")) == 5, "the others, at the login"
        assert bcrypt.checkpw(passwords._prepared("of old"), (await stored_of(cloud, "old")).encode())
        await cloud.service.validate(token)
        shown = await cloud.ask("GET", "/auth/projects", reply.headers["x-subject-token"])
        assert shown.status_code == 200, "tokens stay good"
        assert (await cloud.login("old", "of old")).status_code == 201


async def test_secrets_of_application_credentials_become_dear_too(opened: Open) -> None:
    async with opened() as cloud:
        token = await cloud.token("demo", "demo-secret", on("demo"))
        me = (await cloud.ask("GET", "/auth/tokens", token, headers={"X-Subject-Token": token})).json()["token"]["user"]
        body = {"application_credential": {"name": "a", "secret": "of mine"}}
        made = await cloud.ask("POST", f"/users/{me['id']}/application_credentials", token, json=body)
        credential = made.json()["application_credential"]["id"]
    async with opened(rounds=5) as cloud:
        proof = {
            "methods": ["application_credential"],
            "application_credential": {"id": credential, "secret": "of mine"},
        }
        assert (await cloud.auth(proof)).status_code == 201
        row = await cloud.service._context.database.read(
            lambda tx: store.get(tx, "application_credentials", credential)
        )
        assert row is not None
        assert cost(row["secret_hash"]) == 5


async def test_password_checks_run_in_a_limited_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "WAITING_MAX", 4)
    kept = Passwords(ROUNDS_MIN)
    stored = await kept.hash("right")
    went_on, check = threading.Event(), bcrypt.checkpw
    stop = asyncio.Event()

    def checked(*given: bytes) -> bool:
        assert went_on.wait(PATIENCE_S), "the loop stands still while a password is checked"
        return check(*given)

    async def beat() -> None:
        """The loop goes on while the first check waits for that."""
        for _ in range(100):
            await asyncio.sleep(0)
        went_on.set()
        await stop.wait()

    monkeypatch.setattr(bcrypt, "checkpw", checked)
    beating = asyncio.create_task(beat())
    same = await asyncio.gather(*(kept.fits("right", stored) for _ in range(50)))
    assert same == [True] * 50, "who asks the same shares one check"
    several = await asyncio.gather(*(kept.fits(f"wrong {n}", stored) for n in range(20)), return_exceptions=True)
    stop.set()
    await beating
    assert several[:4] == [False] * 4
    assert {type(each) for each in several[4:]} == {Unavailable}
    kept.close()


async def test_a_login_of_an_unknown_user_takes_as_long_as_a_known_one() -> None:
    """In seconds of CPU: what else a busy machine does must not count."""
    kept = Passwords(9)
    stored = await kept.hash("right")
    await kept.fits("x", None)

    async def took(call: Callable[[], Awaitable[bool]]) -> float:
        began = time.process_time()
        assert await call() is False
        return time.process_time() - began

    somebody = min([await took(lambda n=n: kept.fits(f"a{n}", stored)) for n in range(5)])
    nobody = min([await took(lambda n=n: kept.fits(f"b{n}", None)) for n in range(5)])
    assert 0.3 < nobody / somebody < 3.0
    kept.close()


# ---------------------------------------------------------------------------------------------- scopes and tokens


async def test_invalid_scopes_are_not_remembered(opened: Open) -> None:
    async with opened() as cloud:
        token = await cloud.admin()
        identity = {"methods": ["token"], "token": {"id": token}}
        plain = await cloud.auth(identity, on("admin"))
        assert plain.status_code == 201
        before = len(cloud.service._context._remembered)
        for number in range(20):
            junk = {"project": {**on("admin")["project"], "junk": f"{number}" + "A" * 10_000}, "more": number}
            reply = await cloud.auth(identity, junk)
            assert reply.status_code == 201
            assert reply.json()["token"]["project"] == plain.json()["token"]["project"]
        assert len(cloud.service._context._remembered) == before
        for scope in (
            {"project": {"id": "A" * 256}},
            {"project": {"name": "A" * 256, "domain": {"id": "default"}}},
            {"domain": {"name": "A" * 256}},
            {"project": {"id": "nobody's"}},
            {"OS-TRUST:trust": {"id": "x"}},
        ):
            assert (await cloud.auth(identity, scope)).status_code == 401, scope
        for wrong in ([], "x", {"x": 1}, {"project": 1}, {"project": {}}, {"system": {"all": 1}}, {"domain": 1}):
            assert (await cloud.auth(identity, wrong)).status_code == 400, wrong
        kept = cloud.service._context._remembered
        assert len(kept) == before + 1, "the project that may be there tomorrow"
        assert max(len(repr(key)) for key in kept) < 1_000


async def test_a_token_has_one_encoding(opened: Open) -> None:
    async with opened() as cloud:
        token = await cloud.admin()
        last = token.rstrip("=")[-1]
        alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
        padding = -len(token) % 4
        others = [token[:-1] + alphabet[(alphabet.index(last) & ~(4**padding - 1)) + n] for n in range(4**padding)]
        wrong = [token[:20] + junk + token[20:] for junk in ("!", " ", "\n", "=", "%", "\x00", ".", "é")]
        wrong += [token + "!", "!" + token, token + "=" * (padding + 1), token + "A", token[:-1], token + "\n"]
        wrong += [each for each in others if each != token]
        for each in wrong:
            headers = {"X-Subject-Token": each} if each.isascii() and each.isprintable() else None
            assert not await valid(cloud, each), repr(each)
            if headers is not None:
                assert (await cloud.ask("GET", "/auth/tokens", token, headers=headers)).status_code == 404, repr(each)
        assert await valid(cloud, token)


async def valid(cloud: Cloud, token: str) -> bool:
    try:
        await cloud.service.validate(token)
    except Unauthenticated:
        return False
    return True


async def test_behind_a_trusted_proxy_the_forwarded_address_is_limited(opened: Open) -> None:
    async with opened(LockoutLimits(failures_per_minute=1)) as cloud:
        inner = cloud.service.app
        body = {"caller": "198.51.100.1"}

        async def named(scope: Any, receive: Any, send: Any) -> None:
            await inner({**scope, "client": (body["caller"], 0)}, receive, send)

        transport = httpx.ASGITransport(named, client=("203.0.113.5", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://cloud:5000") as http:
            through = Cloud(cloud.service, http, cloud.clock)
            assert (await through.login("admin", "wrong")).status_code == 401
            assert (await through.login("admin", "secret")).status_code == 429
            body["caller"] = "198.51.100.2"
            assert (await through.login("admin", "secret")).status_code == 201
