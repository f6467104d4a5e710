"""Limits of one connection before a client is authenticated: what it may send, hold and receive."""

import asyncio
import resource

import pytest
from tests.helpers.raw_http_client import Echo, Listening, get, listening, post
from websockets.asyncio.client import connect

from moorage.main.connection_limits import caller_of
from moorage.main.http_limits import HttpLimits
from moorage.main.http_protocol import BODY, HEAD, PIPELINED_MAX
from moorage.model.errors import Invalid
from moorage_testing.waiting import until

LIMITS = HttpLimits(url_max_bytes=200, header_max_bytes=2_000, headers_max=10)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (get("/" + "u" * 150), 200),
        (get("/" + "u" * 200), 414),
        (get("/?" + "u" * 250), 414),
        (get("/", *[b"X-%d: a" % number for number in range(9)]), 200),
        (get("/", *[b"X-%d: a" % number for number in range(10)]), 431),
        (get("/", b"X: " + b"a" * 1_800), 200),
        (get("/", b"X: " + b"a" * 2_000), 431),
        (get("/", b"X: " + b"a" * 1_000, b"Y: " + b"a" * 1_000), 431),
        (b"GET /" + b"u" * 4_000_000, 414),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 4_000_000, 431),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 1_000_000, 431),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"e" * 1_000_000, 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nT: " + b"t" * 1_000_000, 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: " + b"9" * 5_000 + b"\r\n\r\n{}", 400),
        ("POST / HTTP/1.1\r\nContent-Length: ²\r\n\r\n{}".encode(), 400),
        (b"\x16\x03\x01\x00nonsense\r\n\r\n", 400),
        (b"\x00" * 1_000, 400),
    ],
    ids=lambda value: (
        value[:24].decode("latin-1").encode("unicode_escape").decode() if isinstance(value, bytes) else ""
    ),
)
async def test_a_too_long_request_is_refused_before_it_is_complete(request_: bytes, status: int) -> None:
    async with listening(limits=LIMITS) as there:
        got, headers, body = await there.ask(request_)
        assert got == status, body
        assert status == 200 or (headers["connection"] == "close" and body.endswith(b".\n"))
        await there.empty()


async def half_sent(there: Listening, count: int, *requests: bytes) -> None:
    for number in range(count):
        ends = await there.connect()
        await ends.say(requests[number % len(requests)])


async def test_incomplete_requests_are_closed_after_a_time(caplog: pytest.LogCaptureFixture) -> None:
    """What a slow client holds it loses, whichever part it does not send; others are answered meanwhile, and later."""
    app = Echo()
    async with listening(app) as there:
        half = (b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\nX: a", post("/", 9, b"{"), post("/early", 9, b"{"))
        await half_sent(there, 300, *half)
        await until(lambda: sum(each._phase == BODY for each in there.door.connections) == 120)
        await until(lambda: sum(each._begun for each in there.door.connections) == 240)
        assert (await there.ask(get()))[0] == 200
        await there.time_passes(9.0)
        assert there.door.doorkeeper.inside >= 240
        await there.time_passes(12.0)
        answers = [await each.reader.read(100) for each in there.ends[:5]]
        assert [each[9:12] for each in answers] == [b"", b"408", b"408", b"408", b"200"]
        await there.time_passes(6.0)
        await there.empty()
        assert there.door.doorkeeper.refused == {408: 180}
        assert len([each for each in caplog.messages if "408 to 127.0.0.1, by a limit of [api]" in each]) == 1
        assert app.gone == 60
        assert (await there.ask(get()))[0] == 200


async def test_a_slow_upload_has_a_minimum_rate() -> None:
    """Not the length of an upload counts, but how many bytes come in a second, and only while we read."""
    app = Echo()
    async with listening(app, limits=HttpLimits(body_s=10, body_least_bytes_s=100)) as there:
        ends = await there.connect()
        await ends.say(post("/", 100_000))
        for part in range(1, 6):
            await ends.say(b"x" * 1_000)
            await until(lambda part=part: app.read == part * 1_000)
            await there.time_passes(10.0)
        await ends.say(b"x" * 10)
        await until(lambda: app.read == 5_010)
        await there.time_passes(11.0)
        status, _, body = await ends.answer()
        assert status == 408
        assert b"too slowly" in body
        await until(lambda: app.gone == 1)


async def test_time_in_which_the_service_does_not_read_is_not_the_clients() -> None:
    app = Echo()
    async with listening(app) as there:
        ends = await there.connect()
        await ends.say(post("/gate", 200_000, b"x" * 150_000))
        await until(lambda: any(each.flow is not None and each.flow.read_paused for each in there.door.connections))
        await there.time_passes(10_000.0)
        app.gate.set()
        await ends.say(b"x" * 50_000)
        assert (await ends.answer())[2] == b"200000"


async def test_a_request_that_is_worked_on_has_no_limit_of_time() -> None:
    app = Echo()
    async with listening(app) as there:
        ends = await there.connect()
        await ends.say(get("/gate"))
        await until(lambda: app.scopes)
        await there.time_passes(10_000.0)
        app.gate.set()
        assert (await ends.answer())[0] == 200
        await there.time_passes(74.0)
        await ends.say(get())
        assert (await ends.answer())[0] == 200
        await there.time_passes(76.0)
        assert await ends.ended()


async def test_waiting_for_100_continue_does_not_count_as_slow() -> None:
    app = Echo()
    async with listening(app) as there:
        ends = await there.connect()
        await ends.say(post("/gate", 5, headers=b"Expect: 100-continue\r\n"))
        await until(lambda: app.scopes)
        await there.time_passes(10_000.0)
        app.gate.set()
        assert (await ends.answer())[0] == 100
        await ends.say(b"12345")
        assert (await ends.answer())[2] == b"5"


async def test_the_rest_of_a_refused_body_is_dropped() -> None:
    """An answer before the body: the connection lives on when the rest comes, and ends when it does not."""
    async with listening() as there:
        ends = await there.connect()
        await ends.say(post("/early", 100_000, b"x"))
        assert (await ends.answer())[0] == 200
        await ends.say(b"x" * 99_999, get())
        assert (await ends.answer())[0] == 200
        await ends.say(post("/early", 100_000_000, b"x"))
        assert (await ends.answer())[0] == 200
        with pytest.raises(ConnectionError):
            await ends.say(*[b"x" * 1_000_000] * 99)
        await there.empty()
        ends = await there.connect()
        await ends.say(post("/early", 100_000, b"x", headers=b"Connection: close\r\n"))
        assert (await ends.answer())[0] == 200
        await ends.say(b"x" * 99_999)
        assert await ends.ended()


async def test_a_client_that_does_not_read_is_disconnected() -> None:
    async with listening() as there:
        ends = await there.connect(limit=1024)
        await ends.say(get("/long"))
        await until(lambda: any(each.transport.get_write_buffer_size() for each in there.door.connections))
        await until_still(there)
        await there.time_passes(1.0)
        await there.time_passes(61.0)
        await there.empty()


async def until_still(there: Listening) -> None:
    """Until the buffers of the machine between both ends are full too."""
    seen = [-1]

    def still() -> bool:
        seen.append(sum(each.transport.get_write_buffer_size() for each in there.door.connections))
        return len(seen) > 50 and len(set(seen[-50:])) == 1

    await until(still)


async def test_connections_are_limited_in_total_and_by_address() -> None:
    limits = HttpLimits(connections_max=5, connections_of_an_address_max=3)
    async with listening(limits=limits) as there:
        kept = [await there.connect() for _ in range(3)]
        await until(lambda: there.door.doorkeeper.inside == 3)
        refused = await there.connect()
        status, headers, _ = await refused.answer()
        assert (status, headers["retry-after"]) == (503, "1")
        for each in range(2):
            assert there.door.doorkeeper.admit(f"192.0.2.{each}") is not None
        assert there.door.doorkeeper.admit("192.0.2.9") is None
        kept[0].close()
        await until(lambda: there.door.doorkeeper.inside == 4)
        assert (await there.ask(get()))[0] == 200
        await until(lambda: there.door.doorkeeper.inside == 4)
    async with listening(limits=limits, trusted_proxies=("127.0.0.1",)) as there:
        for _ in range(5):
            await there.connect()
        await until(lambda: there.door.doorkeeper.inside == 5)
        assert (await there.ask(b""))[0] == 503


def test_addresses_of_one_ipv6_network_count_as_one_client() -> None:
    assert caller_of("2001:db8:1:2:3::4") == caller_of("2001:db8:1:2::") == "2001:db8:1:2::/64"
    assert caller_of("2001:db8:1:3::") != caller_of("2001:db8:1:2::")
    assert caller_of("::ffff:192.0.2.1") == caller_of("192.0.2.1") == "192.0.2.1"
    assert caller_of("fe80::1%eth0") == "fe80::/64"
    assert caller_of("::1") == "::1"
    assert caller_of("no address") == ""


async def test_concurrent_requests_are_limited() -> None:
    app = Echo()
    async with listening(app, limits=HttpLimits(requests_max=2)) as there:
        busy = [await there.connect() for _ in range(2)]
        for each in busy:
            await each.say(get("/gate"))
        await until(lambda: len(app.scopes) == 2)
        status, headers, _ = await there.ask(get())
        assert (status, headers["retry-after"]) == (503, "1")
        app.gate.set()
        assert [(await each.answer())[0] for each in busy] == [200, 200]
        assert (await there.ask(get()))[0] == 200


async def test_pipelined_requests_are_queued_up_to_a_limit() -> None:
    app = Echo()
    async with listening(app) as there:
        ends = await there.connect()
        await ends.say(get("/gate"), get() * 20)
        await until(lambda: app.scopes)
        app.gate.set()
        assert [(await ends.answer())[0] for _ in range(21)] == [200] * 21
        app.gate.clear()
        await ends.say(get("/gate"), get() * (PIPELINED_MAX + 10))
        assert await ends.ended()
        app.gate.set()


async def test_bytes_after_a_body_are_not_headers() -> None:
    app = Echo()
    async with listening(app) as there:
        chunked = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX-Auth-Token: late\r\n\r\n"
        assert (await there.ask(chunked))[2] == b"2"
        assert b"x-auth-token" not in dict(app.scopes[0]["headers"])


async def test_a_websocket_is_one_connection_until_it_ends() -> None:
    async with listening(websockets_max=2) as there:
        async with connect(f"ws://127.0.0.1:{there.door.port}/"):
            await until(lambda: not there.door.connections)
            assert there.door.doorkeeper.inside == 1
            await there.time_passes(10_000.0)
        await there.empty()


async def test_more_files_than_usual_may_be_open() -> None:
    from moorage.main.config import Config
    from moorage.main.process import OPEN_FILES_MAX, set_up_process

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, before[0]), before[1]))
    try:
        set_up_process(Config())
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == min(OPEN_FILES_MAX, before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_limits_that_would_refuse_every_request_are_refused(tmp_path: object) -> None:
    from moorage.main.config import ApiConfig, Config, checked

    with pytest.raises(Invalid, match="url_max_bytes is at most header_max_bytes"):
        checked(Config(api=ApiConfig(limits=HttpLimits(url_max_bytes=9_000, header_max_bytes=8_000))))


async def test_a_connection_without_a_request_is_closed_without_an_answer() -> None:
    async with listening() as there:
        ends = await there.connect()
        await until(lambda: len(there.door.connections) == 1)
        assert there.door.connections[0]._phase == HEAD
        await there.time_passes(11.0)
        assert await ends.ended()
        await asyncio.wait_for(there.empty(), 60)
