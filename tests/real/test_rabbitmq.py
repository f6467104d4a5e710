"""Notifications through a real RabbitMQ, with `moorage up` and its listener as separate processes; the broker stops, and Moorage is killed."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage_testing.api_user import Person
from moorage_testing.notification_listener import listening
from moorage_testing.rabbit import Rabbit, rabbit, rabbit_program
from moorage_testing.up_process import UpProcess
from moorage_testing.waiting import until

pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.skipif(rabbit_program() is None, reason="no RabbitMQ here: apt-get install rabbitmq-server"),
]

PATIENCE_S = 180.0
BUILT = ["create.start", "create.end"]
GONE = ["delete.start", "shutdown.start", "shutdown.end", "delete.end"]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Rabbit]:
    with rabbit(tmp_path / "rabbit") as server:
        yield server


@pytest.fixture
def upped(tmp_path: Path, broker: Rabbit) -> Iterator[UpProcess]:
    told = f'transport_url = "{broker.url}"\nnotification_format = "both"\npublisher_host = "rack1"\n'
    up = UpProcess(tmp_path, f"[notifications]\n{told}retry_first_s = 0.2\nretry_most_s = 1.0\n")
    up.start()
    yield up
    if up.process is not None:
        up.end(signal.SIGKILL)


async def test_a_broker_that_is_out_gets_it_all_when_it_is_back(upped: UpProcess, broker: Rabbit) -> None:
    with listening(broker.url, "notifications") as old, listening(broker.url, "versioned_notifications") as new:
        async with Person(upped.config) as admin:
            first = (await admin.active("first"))["id"]
            await admin.gone(first)
            await until(lambda: len(new.types(first)) == len(BUILT + GONE), PATIENCE_S)
            await until(lambda: len(old.types(first)) == len(BUILT + GONE), PATIENCE_S)
            assert old.types(first) == [f"compute.instance.{each}" for each in BUILT + GONE]
            assert new.types(first) == [f"instance.{each}" for each in BUILT + GONE]
            broker.stop()
            second = (await admin.active("second"))["id"]
        upped.end(signal.SIGKILL)
        upped.start()
        broker.start()
        await until(lambda: len(new.types(second)) >= len(BUILT), PATIENCE_S)
        await until(lambda: len(old.types(second)) >= len(BUILT), PATIENCE_S)
        async with Person(upped.config) as admin:
            await admin.gone(second)
        await until(lambda: new.types(second)[-1:] == ["instance.delete.end"], PATIENCE_S)
    for server in (first, second):
        ids = {each.message_id: each.event_type for each in new.heard if server in str(each.payload)}
        assert list(ids.values()) == [f"instance.{each}" for each in BUILT + GONE]
