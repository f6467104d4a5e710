"""Feeds of the web console: one poll for many browsers, who sees what, and what ends a stream."""

import asyncio

import pytest
from tests.helpers.webconsole_apis import Apis, Browser, Follower, console

from moorage.webconsole import feeds
from moorage.webconsole.feeds import Feed
from moorage_testing.waiting import until

LIST = "GET /v2.1/servers/detail"


def row(name: str) -> dict[str, object]:
    return {"id": "s1", "name": name, "status": "BUILD", "addresses": {}, "flavor": {"original_name": "m1"}}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polls that follow one another at once: their number is what is looked at."""
    monkeypatch.setattr(feeds, "LIVELY_S", 0.01)
    monkeypatch.setattr(feeds, "STILL_S", 0.01)
    monkeypatch.setattr(feeds, "WOKEN_S", 0.0)
    monkeypatch.setattr(feeds, "HEARTBEAT_S", 0.05)


@pytest.fixture
def apis() -> Apis:
    return Apis(answers={"/servers/detail": {"servers": [row("before")]}})


async def test_two_hundred_browsers_share_one_poll(apis: Apis, monkeypatch: pytest.MonkeyPatch) -> None:
    async with console(apis, streams_of_a_session_max=1000) as app:
        browser = Browser(app)
        await browser.log_in()
        followers = [Follower(app, browser, "servers") for _ in range(200)]
        for each in followers:
            await each.until(lambda one: bool(one.events))
        opened = apis.asked[LIST]
        assert opened < 60, "one asked for the whole, the others only whether they may"
        apis.answers["/servers/detail"] = {"servers": [row("after")]}
        for each in followers:
            await each.until(lambda one: b"after" in one.events[-1][1])
        assert apis.asked[LIST] - opened < 60, "browsers do not add polls"
        assert len(app.feeds) == 1
        for each in followers:
            await each.leave()
        await until(lambda: len(app.feeds) == 0)
        assert app.sessions.find(browser.http.cookies["moorage"]).streams == 0  # type: ignore[union-attr]


async def test_with_user_specific_policies_nothing_is_shared(apis: Apis) -> None:
    apis.users["eve"] = apis.users["ada"]
    for shared, feeds_there in ((True, 1), (False, 2)):
        async with console(apis, share_between_users=shared) as app:
            followers = []
            for user in ("ada", "eve"):
                browser = Browser(app)
                await browser.log_in(user)
                follower = Follower(app, browser, "servers")
                await follower.until(lambda one: bool(one.events))
                followers.append(follower)
            assert len(app.feeds) == feeds_there
            for each in followers:
                await each.leave()


async def test_unchanged_data_is_not_sent_again(apis: Apis) -> None:
    async with console(apis) as app:
        browser = Browser(app)
        await browser.log_in()
        follower = Follower(app, browser, "servers")
        await follower.until(lambda one: any(name == ": still here" for name, _ in one.events))
        assert [name for name, _ in follower.events].count("data") == 1
        await follower.leave()


async def test_another_scope_has_its_own_feed(apis: Apis) -> None:
    async with console(apis) as app:
        ada, bob = Browser(app), Browser(app)
        await ada.log_in("ada")
        await bob.log_in("bob")
        followers = [Follower(app, each, "servers") for each in (ada, bob)]
        for each in followers:
            await each.until(lambda one: bool(one.events))
        assert len(app.feeds) == 2
        tokens = {
            str(each.headers["x-auth-token"]): str(each.url) for each in apis.requests if "servers" in str(each.url)
        }
        assert "all_tenants=1" in tokens["ada-0"]
        assert "all_tenants" not in tokens["bob-1"]
        for each in followers:
            await each.leave()


async def test_a_new_reader_of_a_feed_is_authorized_with_its_own_token(apis: Apis) -> None:
    """A token that may see less, though its roles are the same, is shown nothing by another's poll."""
    async with console(apis) as app:
        first, second = Browser(app), Browser(app)
        await first.log_in()
        await second.log_in()
        follower = Follower(app, first, "servers")
        await follower.until(lambda one: bool(one.events))
        apis.revoked.add("ada-1")
        refused = Follower(app, second, "servers")
        await refused.until(lambda one: one.status != 0)
        assert refused.status == 401
        await refused.task
        assert (await second.get("/api/topic?topic=servers")).status_code == 401
        await follower.leave()


async def test_an_expired_token_ends_only_its_own_stream(apis: Apis) -> None:
    async with console(apis) as app:
        first, second = Browser(app), Browser(app)
        await first.log_in()
        await second.log_in()
        one, two = Follower(app, first, "servers"), Follower(app, second, "servers")
        for each in (one, two):
            await each.until(lambda it: bool(it.events))
        apis.revoked.add("ada-0")
        await one.until(lambda it: it.events[-1][0] == "over")
        apis.answers["/servers/detail"] = {"servers": [row("after")]}
        await two.until(lambda it: b"after" in it.events[-1][1])
        assert (await first.get("/api/session")).status_code == 401
        await two.leave()


async def test_outages_of_the_api_are_shown(apis: Apis) -> None:
    async with console(apis) as app:
        browser = Browser(app)
        await browser.log_in()
        follower = Follower(app, browser, "servers")
        await follower.until(lambda one: bool(one.events))
        apis.down.add("compute")
        await follower.until(lambda one: one.events[-1][0] == "trouble")
        assert b"nova:8774 cannot be reached" in follower.events[-1][1]
        apis.down.clear()
        await follower.until(lambda one: one.events[-1][0] == "data")
        assert b"before" in follower.events[-1][1]
        await follower.leave()


async def test_streams_are_bounded(apis: Apis) -> None:
    async with console(apis, streams_max=3, streams_of_a_session_max=2) as app:
        one, two = Browser(app), Browser(app)
        await one.log_in()
        await two.log_in()
        followers = []
        for browser, status in ((one, 200), (one, 200), (one, 503), (two, 200), (two, 503)):
            follower = Follower(app, browser, "servers")
            await follower.until(lambda it: it.status != 0)
            assert follower.status == status
            if status == 200:
                await follower.until(lambda it: bool(it.events))
                followers.append(follower)
        for each in followers:
            await each.leave()


async def test_large_lists_are_loaded_without_polling_the_api(apis: Apis) -> None:
    apis.answers["/servers/detail"] = {"servers": [row("x" * 200) for _ in range(1000)]}
    async with console(apis) as app:
        browser = Browser(app)
        await browser.log_in()
        follower = Follower(app, browser, "servers")
        await follower.until(lambda one: bool(one.events))
        assert follower.events[0][0] == "changed"
        apis.down.add("compute")
        reply = await browser.get("/api/topic?topic=servers", **{"Accept-Encoding": "gzip"})
        assert reply.headers["content-encoding"] == "gzip"
        assert len(reply.json()["servers"]) == 1000
        await follower.leave()


async def test_the_end_of_the_process_ends_streams(apis: Apis) -> None:
    async with console(apis) as app:
        browser = Browser(app)
        await browser.log_in()
        follower = Follower(app, browser, "servers")
        await follower.until(lambda one: bool(one.events))
        await app.close()
        await asyncio.wait_for(follower.task, 60)


def test_a_slow_api_is_polled_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    feed = Feed(("fit-map",), "fit-map")
    assert feed.pause_s() == 5.0
    feed.lively = True
    assert feed.pause_s() == 1.0
    feed.took_s = 2.0
    assert feed.took_s / (feed.took_s + feed.pause_s()) < 0.05


class Hands:
    """A clock that a test sets."""

    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


async def test_who_was_shown_a_topic_proves_it_again_after_a_minute(apis: Apis) -> None:
    """Somebody else keeps the feed alive, and the polls use that token only."""
    async with console(apis) as app:
        clock = app.feeds._clock = Hands()
        bob, alice = Browser(app), Browser(app)
        await bob.log_in()
        await alice.log_in()
        follower = Follower(app, bob, "servers")
        await follower.until(lambda one: bool(one.events))
        assert (await alice.get("/api/topic?topic=servers")).status_code == 200
        apis.revoked.add("ada-1")  # her account is disabled
        clock.now_s += feeds.PROOF_S - 1
        assert (await alice.get("/api/topic?topic=servers")).status_code == 200
        clock.now_s += 1
        assert (await alice.get("/api/topic?topic=servers")).status_code == 401
        assert (await alice.get("/api/session")).status_code == 401, "the session is over"
        await follower.leave()


async def test_a_follower_proves_it_again_after_a_minute(apis: Apis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the polls use another's token: a feed that is polled rarely asks with each in turn after hours."""
    monkeypatch.setattr(feeds, "STILL_S", 3_600.0)
    monkeypatch.setattr(feeds, "LIVELY_S", 3_600.0)
    async with console(apis) as app:
        clock = app.feeds._clock = Hands()
        bob, alice = Browser(app), Browser(app)
        await bob.log_in()
        await alice.log_in()
        one, two = Follower(app, bob, "servers"), Follower(app, alice, "servers")
        for each in (one, two):
            await each.until(lambda follower: bool(follower.events))
        apis.revoked.add("ada-1")
        clock.now_s += feeds.PROOF_S
        await two.until(lambda follower: any(name == "over" for name, _ in follower.events))
        await two.task
        assert not any(name == "over" for name, _ in one.events)
        # while the API is out nothing can be proved: the page says so and shows nothing new
        apis.down.add("compute")
        clock.now_s += feeds.PROOF_S
        await one.until(lambda follower: any(name == "trouble" for name, _ in follower.events))
        apis.down.clear()
        await one.leave()


async def test_streams_that_are_asked_for_at_once_are_counted_at_once(apis: Apis) -> None:
    async with console(apis, streams_of_a_session_max=8, streams_max=12) as app:
        browser, other = Browser(app), Browser(app)
        await browser.log_in()
        await other.log_in()
        followers = [Follower(app, browser, f"servers?name=n{number}") for number in range(40)]
        for each in followers:
            await each.until(lambda one: one.status != 0)
        assert [each.status for each in followers].count(200) == 8
        assert [each.status for each in followers].count(503) == 32
        more = [Follower(app, other, f"servers?name=m{number}") for number in range(8)]
        for each in more:
            await each.until(lambda one: one.status != 0)
        assert [each.status for each in more].count(200) == 4, "12 in all"
        for each in (*followers, *more):
            await each.leave()
        assert app._streams == 0
        refused = Follower(app, browser, "unknown")
        await refused.until(lambda one: one.status != 0)
        await refused.task
        assert (refused.status, app._streams) == (404, 0)
