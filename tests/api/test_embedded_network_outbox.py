"""Events that the embedded network service sends: after the commit, repeated until accepted, and limited in number."""

import asyncio
from typing import Any

from moorage_embedded.network import outbox
from moorage_embedded.network.outbox import ComputeOutbox, SegmentInventory

DEADLINE_S = 120.0
INVENTORY = SegmentInventory("seg", "net", total=5, reserved=1, hosts=("cmp1",))


async def _look(segment: str) -> SegmentInventory | None:
    return INVENTORY if segment == "seg" else None


async def test_events_are_sent_to_compute_in_order_until_accepted() -> None:
    messages: list[dict[str, Any]] = []
    done = asyncio.Event()
    refusals = iter((True, True, False))

    async def on_message(batch: list[dict[str, Any]]) -> None:
        if next(refusals, False):
            raise OSError("compute is out")
        messages.extend(batch)
        done.set()

    box = ComputeOutbox(on_message, None, _look)
    box.start()
    box.put([{"n": 1}, {"n": 2}], set())
    async with asyncio.timeout(DEADLINE_S):
        await done.wait()
    await box.stop()
    assert messages == [{"n": 1}, {"n": 2}]


async def test_the_oldest_events_are_dropped_when_none_is_accepted(monkeypatch: Any) -> None:
    monkeypatch.setattr(outbox, "EVENTS_MAX", 3)

    async def on_message(batch: list[dict[str, Any]]) -> None:
        raise AssertionError("not started")

    box = ComputeOutbox(on_message, None, _look)
    box.put([{"n": n} for n in range(5)], set())
    assert box.dropped == 2


async def test_placement_receives_new_and_deleted_inventories() -> None:
    calls: list[Any] = []
    failures = iter((True, False))
    done = asyncio.Event()

    class Placement:
        async def segment_is(self, inventory: SegmentInventory) -> None:
            if next(failures, False):
                raise OSError("placement is out")
            calls.append(inventory)
            self.check()

        async def segment_gone(self, segment: str) -> None:
            calls.append(segment)
            self.check()

        def check(self) -> None:
            if len(calls) == 2:
                done.set()

    box = ComputeOutbox(None, Placement(), _look)
    box.start()
    box.put([], {"seg", "lost"})
    async with asyncio.timeout(DEADLINE_S):
        await done.wait()
    await box.stop()
    assert set(calls) == {INVENTORY, "lost"}
