"""One suite for two transports: what every package may expect of the bus."""

import asyncio
import logging
import random
import uuid

import pytest

from moorage.bus import nats
from moorage.bus.host_messages import Heartbeat
from moorage.bus.log_limiter import unreadable
from moorage.bus.memory import MemoryBus, TransportFaults
from moorage.bus.messages import encode, read
from moorage.bus.transport import MAX_MESSAGE_BYTES, Bus, broken
from moorage.main.local_cluster.nats import NatsServer
from moorage.model.ids import CellId
from moorage_testing.waiting import until


class Ear:
    def __init__(self) -> None:
        self.heard: list[tuple[str, bytes]] = []

    async def __call__(self, subject: str, payload: bytes) -> None:
        self.heard.append((subject, payload))


def fresh() -> str:
    return f"test.{uuid.uuid4().hex}"


async def test_a_message_reaches_every_subscriber(bus: Bus) -> None:
    here, there, elsewhere, root = Ear(), Ear(), Ear(), fresh()
    await bus.subscribe(f"{root}.a", here)
    await bus.subscribe(f"{root}.*", there)
    await bus.subscribe(f"{root}.b.>", elsewhere)
    await bus.publish(f"{root}.a", b"1")
    await bus.publish(f"{root}.b.c.d", b"2")
    await until(lambda: here.heard and there.heard and elsewhere.heard)
    assert here.heard == there.heard == [(f"{root}.a", b"1")]
    assert elsewhere.heard == [(f"{root}.b.c.d", b"2")]
    assert bus.healthy
    assert bus.published[f"{root}.a"] == 1


async def test_a_message_without_subscribers_is_no_error(bus: Bus) -> None:
    await bus.publish(fresh(), b"into the void")


async def test_a_failing_handler_loses_one_message_only(bus: Bus) -> None:
    messages: list[bytes] = []
    subject = fresh()

    async def fragile(_: str, payload: bytes) -> None:
        if payload == b"bad":
            raise ValueError("broke")
        messages.append(payload)

    await bus.subscribe(subject, fragile)
    for payload in (b"1", b"bad", b"2"):
        await bus.publish(subject, payload)
    await until(lambda: messages == [b"1", b"2"])


async def test_one_subscription_handles_one_message_at_a_time(bus: Bus) -> None:
    subject, inside, most, done = fresh(), 0, 0, 0

    async def slow(_: str, __: bytes) -> None:
        nonlocal inside, most, done
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0)
        inside -= 1
        done += 1

    await bus.subscribe(subject, slow)
    for _ in range(20):
        await bus.publish(subject, b"x")
    await until(lambda: done == 20)
    assert most == 1


async def test_a_closed_subscription_receives_nothing(bus: Bus) -> None:
    closed, still, subject = Ear(), Ear(), fresh()
    subscription = await bus.subscribe(subject, closed)
    await bus.subscribe(subject, still)
    await subscription.close()
    await bus.publish(subject, b"x")
    await until(lambda: still.heard)
    assert closed.heard == []


async def test_too_large_messages_are_refused(bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    ear, subject = Ear(), fresh()
    await bus.subscribe(subject, ear)
    await bus.publish(subject, b"x" * (MAX_MESSAGE_BYTES + 1))
    await bus.publish(subject, b"x" * MAX_MESSAGE_BYTES)
    await until(lambda: ear.heard)
    assert [len(payload) for _, payload in ear.heard] == [MAX_MESSAGE_BYTES]
    assert "is not sent" in caplog.text


async def test_the_nats_transport_reconnects(nats_server: NatsServer) -> None:
    with NatsServer() as server:
        bus = await nats.connect([server.url])
        ear, subject = Ear(), fresh()
        await bus.subscribe(subject, ear)
        server.stop()
        await until(lambda: not bus.healthy)
        await bus.publish(subject, b"kept or lost, but no error")
        server.start()
        await until(lambda: bus.healthy)
        await bus.publish(subject, b"after")
        await until(lambda: (subject, b"after") in ear.heard)
        assert bus.outages == 1
        await bus.close()


async def test_every_fault_of_the_memory_transport_can_be_set() -> None:
    async def run(dials: TransportFaults, seed: int = 1) -> list[bytes]:
        bus, ear = MemoryBus(dials, seed=seed), Ear()
        await bus.subscribe("a", ear)
        for each in range(200):
            await bus.publish("a", b"%d" % each)
        await until(lambda: bus.quiet)
        await bus.close()
        return [payload for _, payload in ear.heard]

    straight = [b"%d" % each for each in range(200)]
    assert await run(TransportFaults()) == straight
    assert 0 < len(await run(TransportFaults(drop=0.5))) < 200
    assert 200 < len(await run(TransportFaults(duplicate=0.5))) < 400
    shuffled = await run(TransportFaults(reorder=0.3))
    assert shuffled != straight
    assert sorted(shuffled) == sorted(straight)
    assert await run(TransportFaults(cut=True)) == []
    assert await run(TransportFaults(drop=0.5), seed=7) == await run(TransportFaults(drop=0.5), seed=7)
    cut = MemoryBus(TransportFaults(cut=True))
    assert not cut.healthy
    assert cut.outages == 0
    cut.dials.cut = False
    assert cut.healthy
    assert cut.outages == 1


async def test_rubbish_ends_no_subscriber_and_fills_no_log(bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    """What cannot be read, and what breaks a handler: the next message is heard, and the log says it once."""
    messages: list[object] = []
    handled = 0

    async def on_message(_: str, payload: bytes) -> None:
        nonlocal handled
        handled += 1
        if payload == b"breaks":
            raise OverflowError("too large for the database")
        messages.append(read(payload))

    for each in (unreadable, broken):
        each.logged_at = float("-inf")
    await bus.subscribe("moorage.test.rubbish", on_message)
    dice = random.Random(7)
    good = encode(Heartbeat("h", CellId("c"), "life", 1))
    rubbish = [b"", b"{", b"[" * 100_000, b"\xff\xfe", b'{"type":"heartbeat","beat":1e999}', b'{"type":1}', b"breaks"]
    for number in range(300):
        rubbish.append(bytes(byte if dice.random() > 0.05 else dice.randrange(256) for byte in good))
        rubbish.append(good[: dice.randrange(len(good))] if number % 2 else good + bytes([dice.randrange(256)]))
    with caplog.at_level(logging.WARNING):
        for payload in rubbish:
            await bus.publish("moorage.test.rubbish", payload)
        await until(lambda: handled == len(rubbish))
        await bus.publish("moorage.test.rubbish", good)
        await until(lambda: handled == len(rubbish) + 1)
    assert messages[-1] == read(good)
    assert [each.message.split(" (")[0].split(":")[0] for each in caplog.records] == [
        "a message of 0 bytes that cannot be read is ignored",
        "a handler of moorage.test.rubbish failed; its message is lost",
    ]
