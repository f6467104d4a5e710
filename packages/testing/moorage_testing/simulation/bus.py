"""The bus of a simulated cloud: each process has its own way to it, which can be cut; messages are lost, doubled, late or overtaken."""

import asyncio
import contextvars
import random
from collections import Counter, deque
from dataclasses import dataclass

from moorage.bus.subjects import family, matches
from moorage.bus.transport import MAX_PENDING_MESSAGES, Handler, Subscription, hand_over, too_big
from moorage_testing.simulation.loop import PROCESS, SimulatedProcess, VirtualLoop, context_of
from moorage_testing.simulation.trace import Trace

WAY_S = (0.0002, 0.002)
EVERYBODY = "*"
NOTICED_S = 1.0
"""How long a process takes to notice that its way to the bus is cut."""
_WAY = contextvars.Context()
"""Of what is under way: it belongs to no process, so a machine that sleeps holds up nothing of it."""


@dataclass
class Weather:
    """Chances from 0 to 1, for each message and each listener."""

    drop: float = 0.0
    duplicate: float = 0.0
    overtaken: float = 0.0
    late_s: float = 0.0
    """Up to so much is added to every message's way."""


class _Listener:
    refused = False

    def __init__(self, hub: "Hub", process: SimulatedProcess, pattern: str, handler: Handler) -> None:
        self.pattern = pattern
        self.process = process
        self.context = context_of(process)
        self._hub = hub
        self._handler = handler
        self._waiting: deque[tuple[str, bytes]] = deque(maxlen=MAX_PENDING_MESSAGES)
        self._task: asyncio.Task[None] | None = None
        self.closed = False

    def give(self, subject: str, payload: bytes) -> None:
        if self.closed:
            return
        self._waiting.append((subject, payload))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._drain(), context=self.context)

    async def _drain(self) -> None:
        try:
            while self._waiting:
                await hand_over(self._handler, *self._waiting.popleft())
        finally:
            self._task = None

    async def close(self) -> None:
        self.closed = True
        self._waiting.clear()
        self._hub.forget(self)
        task = self._task
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


class Hub:
    """What all ways lead to."""

    def __init__(self, loop: VirtualLoop, dice: random.Random, trace: Trace) -> None:
        self.weather = Weather()
        self.cut: dict[str, float] = {}
        """Processes that do not reach the bus, by name, and since when."""
        self.down_since: float | None = None
        """Nobody does."""
        self.lost = 0
        self.outages: Counter[str] = Counter()
        """Cuts that were noticed and are over, by the process, or of everybody."""
        self._loop = loop
        self.dice = dice
        self._trace = trace
        self._exact: dict[str, list[_Listener]] = {}
        self._families: dict[str, list[_Listener]] = {}
        self._patterns: list[_Listener] = []
        self._arrived: dict[tuple[SimulatedProcess | None, _Listener], float] = {}

    def cut_off(self, name: str) -> None:
        self.cut.setdefault(name, self._loop.now)

    def join(self, name: str) -> None:
        self.outages[name] += self._noticed(self.cut.pop(name, None))

    def set_down(self, down: bool) -> None:
        if down:
            self.down_since = self.down_since or self._loop.now
            return
        self.outages[EVERYBODY] += self._noticed(self.down_since)
        self.down_since = None

    def _noticed(self, since: float | None) -> bool:
        return since is not None and self._loop.now - since >= NOTICED_S

    def heal(self) -> None:
        self.weather = Weather()
        for name in list(self.cut):
            self.join(name)
        self.set_down(False)

    def reaches(self, process: SimulatedProcess | None) -> bool:
        return self.down_since is None and (process is None or process.name not in self.cut)

    def knows_to_be_cut(self, process: SimulatedProcess) -> bool:
        """It has had the time to notice."""
        return self._noticed(self.down_since) or self._noticed(self.cut.get(process.name))

    def send(self, sender: SimulatedProcess | None, subject: str, payload: bytes) -> None:
        self._trace.seen("message", f"{subject} {len(payload)}")
        listeners = [
            *self._exact.get(subject, ()),
            *self._families.get(subject.rpartition(".")[0], ()),
            *(each for each in self._patterns if matches(each.pattern, subject)),
        ]
        for listener in listeners:
            self._send(sender, listener, subject, payload)

    def _send(self, sender: SimulatedProcess | None, listener: _Listener, subject: str, payload: bytes) -> None:
        weather, dice = self.weather, self.dice
        if not self.reaches(sender) or (weather.drop and dice.random() < weather.drop):
            self.lost += 1
            return
        copies = 2 if weather.duplicate and dice.random() < weather.duplicate else 1
        for _ in range(copies):
            at = self._loop.now + dice.uniform(*WAY_S) + (dice.uniform(0.0, weather.late_s) if weather.late_s else 0.0)
            way = sender, listener  # the objects: a number may be that of one that is gone
            if weather.overtaken and dice.random() < weather.overtaken:
                at += dice.uniform(0.0, 0.5)
            else:
                at = max(at, self._arrived.get(way, 0.0))
                self._arrived[way] = at
            self._loop.call_later(at - self._loop.now, self._arrive, listener, subject, payload, context=_WAY)

    def _arrive(self, listener: _Listener, subject: str, payload: bytes) -> None:
        """On the listener's side of the connection, which keeps the order also while its process or its machine stands still."""
        if not self.reaches(listener.process):
            self.lost += 1
            return
        listener.give(subject, payload)

    def subscribe(self, process: SimulatedProcess, pattern: str, handler: Handler) -> Subscription:
        listener = _Listener(self, process, pattern, handler)
        if (before := family(pattern)) is not None:
            self._families.setdefault(before, []).append(listener)
        elif "*" in pattern or ">" in pattern:
            self._patterns.append(listener)
        else:
            self._exact.setdefault(pattern, []).append(listener)
        return listener

    def forget(self, listener: _Listener) -> None:
        if listener in self._patterns:
            self._patterns.remove(listener)
        elif (before := family(listener.pattern)) is not None and listener in self._families.get(before, []):
            self._families[before].remove(listener)
        elif listener in (same := self._exact.get(listener.pattern, [])):
            same.remove(listener)

    def drop(self, process: SimulatedProcess) -> None:
        """The process is dead: its subscriptions end."""
        kept = (*self._exact.values(), *self._families.values())
        for listener in [*self._patterns, *(each for same in kept for each in same)]:
            if listener.process is process:
                listener.closed = True
                self.forget(listener)


class SimulatedBus:
    """`bus.transport.Bus`, as one process has it."""

    def __init__(self, hub: Hub, process: SimulatedProcess) -> None:
        self._hub = hub
        self._process = process
        self._published: Counter[str] = Counter()
        self._open: list[Subscription] = []
        self._before = hub.outages[EVERYBODY] + hub.outages[process.name]

    @property
    def healthy(self) -> bool:
        return not self._hub.knows_to_be_cut(self._process)

    @property
    def outages(self) -> int:
        return self._hub.outages[EVERYBODY] + self._hub.outages[self._process.name] - self._before

    @property
    def lost(self) -> int:
        return self._hub.lost

    @property
    def published(self) -> Counter[str]:
        return self._published

    async def publish(self, subject: str, payload: bytes) -> None:
        if too_big(subject, payload):
            return
        self._published[subject] += 1
        self._hub.send(PROCESS.get() or self._process, subject, payload)

    async def subscribe(self, pattern: str, handler: Handler) -> Subscription:
        subscription = self._hub.subscribe(self._process, pattern, handler)
        self._open.append(subscription)
        return subscription

    async def close(self) -> None:
        for subscription in self._open:
            await subscription.close()
        self._open.clear()
