"""The reconciler that sends notifications from the outboxes to the broker."""

from collections.abc import Sequence
from typing import Any, cast

import pytest
from tests.helpers.reconciled_region import BOOT, a_cell_that_is_out, small

from moorage.bus.notifications import Message
from moorage.conductor.reconcilers.notifications import NotificationRelay, NotificationsDone, OutboxLimits
from moorage.model.errors import Unavailable
from moorage.operations.notifications.messages import Wording
from moorage.operations.registry import SAGAS
from moorage.saga import MemoryJournal, execute, first_lines
from moorage.store.cell.notifications import OUTBOX as CELL_OUTBOX
from moorage.store.region.notifications import OUTBOX
from moorage_testing.fault_points import ManualClock
from moorage_testing.region_fixture import SmallRegion, a_boot, a_server

__all__ = ["small"]


# -------------------------------------------------------------------------------------------------- notifications


class Broker:
    """A sender that takes what it is given, or nothing."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.ids: list[str] = []
        self.out = False
        self.takes = 1_000

    async def send(self, messages: Sequence[Message]) -> None:
        for each in messages:
            if self.out or len(self.taken) >= self.takes:
                raise Unavailable("the broker is out")
            self.taken.append(each.body["event_type"].removeprefix("compute.instance."))
            self.ids.append(each.body["message_id"])

    async def close(self) -> None: ...


def relay(small: SmallRegion, broker: Broker, clock: ManualClock, **limits: Any) -> NotificationRelay:
    cells = tuple(small.cells.values())
    return NotificationRelay(small.region, cells, broker, Wording(), cast("Any", clock), OutboxLimits(**limits))


async def boot_with_notifications(small: SmallRegion) -> None:
    """The fixture's boot, with the notification writer listening."""
    await small.fresh(a_server(), BOOT)
    boot = SAGAS["boot/1"]
    paper = MemoryJournal(first_lines(boot), small.transact)
    await execute(boot, BOOT, a_boot(BOOT), small.context, paper, notification_writer=small.on_commit)


TOLD = ["create.start", "update", "update", "create.end"]


async def test_notifications_already_fine(small: SmallRegion) -> None:
    broker = Broker()
    assert await relay(small, broker, ManualClock()).run() == NotificationsDone()
    assert broker.taken == []


async def test_notifications_are_sent_in_order_and_once(small: SmallRegion) -> None:
    await boot_with_notifications(small)
    broker, clock = Broker(), ManualClock()
    sending = relay(small, broker, clock)
    assert (await sending.run()).sent == len(TOLD)
    assert broker.taken == TOLD
    assert await sending.run() == NotificationsDone()
    assert len(set(broker.ids)) == len(TOLD)


async def test_notifications_wait_for_an_unreachable_broker(small: SmallRegion) -> None:
    """Each failure makes the rest longer; what was taken before one is not sent again."""
    await boot_with_notifications(small)
    broker, clock = Broker(), ManualClock()
    broker.takes = 1
    sending = relay(small, broker, clock, retry_first_s=1.0, retry_most_s=3.0)
    rests: list[float] = []
    for _ in range(4):
        rests.append((await sending.run()).waiting_s)
        assert (await sending.run()).sent == 0, "nothing is tried before the rest is over"
        clock.now += rests[-1]
    for rest_s, longest_s in zip(rests, [1.0, 2.0, 3.0, 3.0], strict=True):
        assert longest_s / 2 <= rest_s <= longest_s
    broker.takes = 1_000
    assert (await sending.run()).sent == len(TOLD) - 1
    assert broker.taken == TOLD


async def test_a_notification_sent_but_not_removed_is_sent_again_with_its_id(small: SmallRegion) -> None:
    """A conductor that dies between the two leaves the row; the next one's message can be recognised."""
    await boot_with_notifications(small)
    kept = await small.notifications()
    first, second = Broker(), Broker()
    await relay(small, first, ManualClock()).run()
    await small.region.write(lambda tx: OUTBOX.write(tx, kept))
    await relay(small, second, ManualClock()).run()
    assert (first.taken, first.ids) == (second.taken, second.ids)


async def test_an_outbox_keeps_its_limits(small: SmallRegion) -> None:
    await boot_with_notifications(small)
    broker, clock = Broker(), ManualClock()
    broker.out = True
    done = await relay(small, broker, clock, rows_max=3).run()
    assert (done.dropped, await small.region.read(OUTBOX.count)) == (len(TOLD) - 3, 3)
    done = await relay(small, broker, clock, age_max_s=1e-6).run()
    assert (done.dropped, await small.region.read(OUTBOX.count)) == (3, 0)


async def test_a_notification_that_the_broker_refuses_is_dropped(small: SmallRegion) -> None:
    await boot_with_notifications(small)
    broker, clock = Broker(), ManualClock()
    broker.out = True
    sending = relay(small, broker, clock, tries_max=3, retry_first_s=1.0, retry_most_s=1.0)
    for _ in range(2):
        assert 0.5 <= (await sending.run()).waiting_s <= 1.0
        clock.now += 1.0
    await sending.run()
    assert await small.region.read(OUTBOX.count) == len(TOLD) - 1


async def test_an_unreachable_cell_does_not_delay_notifications_of_others(small: SmallRegion) -> None:
    await boot_with_notifications(small)
    kept = await small.notifications()
    cell = next(iter(small.cells.values()))
    await cell.write(lambda tx: CELL_OUTBOX.write(tx, kept))
    broker, clock = Broker(), cast("Any", ManualClock())
    sending = NotificationRelay(small.region, (a_cell_that_is_out(), cell), broker, Wording(), clock)
    assert await sending.run() == NotificationsDone(2 * len(TOLD), out=("out",))
    assert broker.taken == TOLD * 2
    await cell.write(lambda tx: CELL_OUTBOX.write(tx, kept))
    broker.out = True
    assert (await sending.run()).waiting_s > 0
    assert await cell.read(CELL_OUTBOX.count) == len(TOLD)


async def test_sent_notifications_are_not_repeated_while_the_database_is_read_only(
    small: SmallRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its disk is full, say: rounds come twice a second."""
    await boot_with_notifications(small)
    broker, clock = Broker(), ManualClock()
    sending = relay(small, broker, clock)

    async def full(work: object) -> None:
        raise Unavailable("it is out of disk space")

    with monkeypatch.context() as disk:
        disk.setattr(small.region, "write", full)
        for _ in range(3):
            assert await sending.run() == NotificationsDone(out=(small.region.name,))
    assert broker.taken == TOLD
    assert await sending.run() == NotificationsDone(len(TOLD))
    assert (broker.taken, await small.region.read(OUTBOX.count)) == (TOLD, 0)


async def test_an_unreadable_notification_does_not_stop_the_others(small: SmallRegion) -> None:
    await boot_with_notifications(small)
    broken = OUTBOX.table.update().where(OUTBOX.table.c.number == 1).values(doc='{"from": "the future"}')
    await small.region.write(lambda tx: tx.run(broken))
    broker = Broker()
    done = await relay(small, broker, ManualClock()).run()
    assert (done.sent, done.dropped) == (len(TOLD) - 1, 1)
    assert broker.taken == TOLD[1:]
