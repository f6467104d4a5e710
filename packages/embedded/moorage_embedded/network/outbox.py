"""Sends messages after a transaction is committed: events to compute, inventories to placement.

It is bounded, in order, retried with a growing pause, and never delays a request: when compute does not answer for
long, the oldest messages are dropped and counted, because compute can ask for a port's state.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

log = logging.getLogger(__name__)

EVENTS_MAX = 10_000
EVENTS_PER_CALL_MAX = 200
SEGMENTS_MAX = 10_000
PAUSE_FIRST_S = 0.05
PAUSE_MAX_S = 5.0
CALL_MAX_S = 30.0

NotifyCompute: TypeAlias = Callable[[list[dict[str, Any]]], Awaitable[None]]


@dataclass(frozen=True)
class SegmentInventory:
    """What placement should hold of one segment: absolute, so saying it twice is no harm."""

    segment: str
    network: str
    total: int
    """IPv4 addresses in the pools of its subnets."""
    reserved: int
    """Those of them that are held by ports which are no server's."""
    hosts: tuple[str, ...]


class SegmentReports(Protocol):
    """Where segments are resource providers. Raises when it could not be done; it is then said again."""

    async def segment_is(self, inventory: SegmentInventory) -> None: ...

    async def segment_gone(self, segment: str) -> None: ...


class ComputeOutbox:
    """Two queues and the tasks that empty them."""

    def __init__(
        self,
        notify_compute: NotifyCompute | None,
        placement: SegmentReports | None,
        look: Callable[[str], Awaitable[SegmentInventory | None]],
    ) -> None:
        self._notify = notify_compute
        self._placement = placement
        self._look = look
        self._events: deque[dict[str, Any]] = deque()
        self._segments: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._wake_segments = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.dropped = 0

    def start(self) -> None:
        if self._notify is not None:
            self._tasks.append(asyncio.create_task(self._publish_events(), name="network-tells-compute"))
        if self._placement is not None:
            self._tasks.append(asyncio.create_task(self._publish_segments(), name="network-tells-placement"))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    def put(self, events: list[dict[str, Any]], segments: set[str]) -> None:
        if events and self._notify is not None:
            self._events.extend(events)
            while len(self._events) > EVENTS_MAX:
                self._events.popleft()
                self.dropped += 1
            self._wake.set()
        if segments and self._placement is not None:
            for segment in segments:
                if len(self._segments) < SEGMENTS_MAX:
                    self._segments[segment] = None
            self._wake_segments.set()

    async def _publish_events(self) -> None:
        assert self._notify is not None  # or this task is not started
        pause = PAUSE_FIRST_S
        while True:
            if not self._events:
                self._wake.clear()
                await self._wake.wait()
            batch = [self._events.popleft() for _ in range(min(len(self._events), EVENTS_PER_CALL_MAX))]
            try:
                async with asyncio.timeout(CALL_MAX_S):
                    await self._notify(batch)
                pause = PAUSE_FIRST_S
            except Exception as failure:  # noqa: BLE001  whatever it was, compute has not heard: say it again
                log.warning("compute was not told of %d events yet: %r", len(batch), failure)
                self._events.extendleft(reversed(batch))
                await asyncio.sleep(pause)
                pause = min(pause * 2, PAUSE_MAX_S)

    async def _publish_segments(self) -> None:
        assert self._placement is not None  # or this task is not started
        pause = PAUSE_FIRST_S
        while True:
            if not self._segments:
                self._wake_segments.clear()
                await self._wake_segments.wait()
            segment = next(iter(self._segments))
            del self._segments[segment]
            try:
                async with asyncio.timeout(CALL_MAX_S):
                    inventory = await self._look(segment)
                    if inventory is None:
                        await self._placement.segment_gone(segment)
                    else:
                        await self._placement.segment_is(inventory)
                pause = PAUSE_FIRST_S
            except Exception as failure:  # noqa: BLE001  it is absolute, so it is simply said again
                log.warning("placement was not told of segment %s yet: %r", segment, failure)
                self._segments[segment] = None
                await asyncio.sleep(pause)
                pause = min(pause * 2, PAUSE_MAX_S)
