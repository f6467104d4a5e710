"""`kill -9` during boots and deletes, with a broker that is down: afterwards the outbox has each event once."""

import asyncio
import importlib.util
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from moorage.model.notification import Notification
from moorage.sql import open_database
from moorage.store.region.notifications import OUTBOX
from moorage_testing.api_user import Person
from moorage_testing.leak_audit import nothing_leaked
from moorage_testing.up_process import UpProcess

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("oslo_messaging") is None, reason="the extra `notifications` is not installed"
    ),
]

MANY = 12
NOBODY = "rabbit://nobody:nothing@127.0.0.1:9/"
"""Nothing listens there: whatever is said stays in the outbox."""


@pytest.fixture
def upped(tmp_path: Path) -> Iterator[UpProcess]:
    up = UpProcess(tmp_path, f'[notifications]\ntransport_url = "{NOBODY}"\nretry_first_s = 0.1\nretry_most_s = 0.2\n')
    up.start()
    yield up
    if up.process is not None:
        up.end(signal.SIGKILL)


async def stored_notifications(up: UpProcess) -> list[Notification]:
    region = await open_database(up.config.region_url(), name="reader", durability="process")
    try:
        rows = await region.read(lambda tx: OUTBOX.first(tx, 10_000))
        return [msgspec.json.decode(each.doc, type=Notification) for each in rows]
    finally:
        await region.close()


async def test_each_event_is_sent_once_despite_kills(upped: UpProcess) -> None:
    async with Person(upped.config) as admin:
        earlier = [(await admin.active(f"earlier-{number}"))["id"] for number in range(3)]
        promised = [await admin.boot(f"many-{number}", networks="private") for number in range(MANY)]
        for each in earlier:
            await admin.delete(each)
        upped.end(signal.SIGKILL)
    upped.start()
    async with Person(upped.config) as admin:
        found = await asyncio.gather(*(admin.settled(each) for each in promised))
        assert {each["status"] for each in found} == {"ACTIVE"}
        for each in earlier:
            await admin.absent(each)
        await admin.gone((await admin.active("afterwards"))["id"])
        await nothing_leaked(upped.config, admin)  # nothing is under way: the last word of each is said by its end
    upped.end(signal.SIGINT)
    notifications = await stored_notifications(upped)
    assert [each for each, times in Counter(each.id for each in notifications).items() if times > 1] == []
    for server in promised:
        assert [each.event for each in notifications if each.server.id == server] == ["create.start", "create.end"]
    for server in earlier:
        assert [each.event for each in notifications if each.server.id == server] == [
            "create.start", "create.end", "delete.start", "shutdown.start", "shutdown.end", "delete.end"
        ]  # fmt: skip
