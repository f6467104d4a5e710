"""The transport within one process, with settings for every fault of a real one."""

import asyncio
import random
from collections import Counter, deque
from dataclasses import dataclass

from moorage.bus.subjects import family, matches
from moorage.bus.transport import MAX_PENDING_MESSAGES, Handler, Subscription, hand_over, too_big


@dataclass
class TransportFaults:
    """Probabilities from 0 to 1 for each message and each subscription; all random choices follow from one seed."""

    drop: float = 0.0
    duplicate: float = 0.0
    delay_s: tuple[float, float] = (0.0, 0.0)
    reorder: float = 0.0
    reorder_s: float = 0.02
    """How long a message is held so that others overtake it."""
    cut: bool = False
    """Whether nothing passes, and the transport knows it."""


class _MemorySubscription:
    refused = False

    def __init__(self, bus: "MemoryBus", pattern: str, handler: Handler) -> None:
        self.pattern = pattern
        self._bus = bus
        self._handler = handler
        self._waiting: deque[tuple[str, bytes]] = deque(maxlen=MAX_PENDING_MESSAGES)
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def give(self, subject: str, payload: bytes) -> None:
        if self._closed:
            return
        self._waiting.append((subject, payload))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._drain())

    @property
    def busy(self) -> bool:
        return self._task is not None

    async def _drain(self) -> None:
        try:
            while self._waiting:
                await hand_over(self._handler, *self._waiting.popleft())
        finally:
            self._task = None

    async def close(self) -> None:
        self._closed = True
        self._waiting.clear()
        self._bus.forget(self)
        task = self._task
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


class MemoryBus:
    """A bus within one process; see `transport.Bus`."""

    def __init__(self, dials: TransportFaults | None = None, *, seed: int = 0) -> None:
        self.dials = dials or TransportFaults()
        self.lost = 0
        self._outages = 0
        self._was_cut = False
        self._published: Counter[str] = Counter()
        self._dice = random.Random(seed)
        self._exact: dict[str, list[_MemorySubscription]] = {}
        self._families: dict[str, list[_MemorySubscription]] = {}
        """By what is before the last token: each host hears its questions by such a pattern."""
        self._patterns: list[_MemorySubscription] = []
        self._late: set[asyncio.TimerHandle] = set()

    @property
    def quiet(self) -> bool:
        """Tell whether no message is held back or being handled, so that no more will come; for tests."""
        return not self._late and not any(each.busy for each in self._listeners())

    @property
    def healthy(self) -> bool:
        return not self._cut_now()

    @property
    def outages(self) -> int:
        self._cut_now()
        return self._outages

    def _cut_now(self) -> bool:
        """Whether the bus is cut at present; the end of a cut is counted."""
        was_cut, self._was_cut = self._was_cut, self.dials.cut
        if was_cut and not self._was_cut:
            self._outages += 1
        return self._was_cut

    @property
    def published(self) -> Counter[str]:
        return self._published

    async def publish(self, subject: str, payload: bytes) -> None:
        if too_big(subject, payload):
            return
        self._published[subject] += 1
        for listener in [
            *self._exact.get(subject, ()),
            *self._families.get(subject.rpartition(".")[0], ()),
            *(each for each in self._patterns if matches(each.pattern, subject)),
        ]:
            self._send(listener, subject, payload)

    def _send(self, listener: _MemorySubscription, subject: str, payload: bytes) -> None:
        dials = self.dials
        if self._cut_now() or (dials.drop and self._dice.random() < dials.drop):
            self.lost += 1
            return
        copies = 2 if dials.duplicate and self._dice.random() < dials.duplicate else 1
        for _ in range(copies):
            delay_s = self._dice.uniform(*dials.delay_s) if dials.delay_s[1] else 0.0
            if dials.reorder and self._dice.random() < dials.reorder:
                delay_s += dials.reorder_s
            if delay_s:
                self._later(delay_s, listener, subject, payload)
            else:
                listener.give(subject, payload)

    def _later(self, delay_s: float, listener: _MemorySubscription, subject: str, payload: bytes) -> None:
        def arrive() -> None:
            self._late.discard(handle)
            listener.give(subject, payload)

        handle = asyncio.get_running_loop().call_later(delay_s, arrive)
        self._late.add(handle)

    async def subscribe(self, pattern: str, handler: Handler) -> Subscription:
        listener = _MemorySubscription(self, pattern, handler)
        if (before := family(pattern)) is not None:
            self._families.setdefault(before, []).append(listener)
        elif "*" in pattern or ">" in pattern:
            self._patterns.append(listener)
        else:
            self._exact.setdefault(pattern, []).append(listener)
        return listener

    def forget(self, listener: _MemorySubscription) -> None:
        if listener in self._patterns:
            self._patterns.remove(listener)
        else:
            before = family(listener.pattern)
            kept, key = (self._exact, listener.pattern) if before is None else (self._families, before)
            same = kept.get(key, [])
            if listener in same:
                same.remove(listener)
            if not same:
                kept.pop(key, None)

    async def close(self) -> None:
        for handle in self._late:
            handle.cancel()
        self._late.clear()
        for listener in self._listeners():
            await listener.close()

    def _listeners(self) -> list[_MemorySubscription]:
        kept = (*self._exact.values(), *self._families.values())
        return [*self._patterns, *(each for same in kept for each in same)]
