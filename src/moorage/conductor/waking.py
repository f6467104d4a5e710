"""Wakes boots that sleep for want of a host, when something is freed that they lacked.

The conductor that leads does it, from what its picture takes in.  Sleepers cost it nothing while nothing is freed: it keeps one entry
for each *kind* (requests that every host answers alike) with what that kind lacks, and asks the database once a second whether somebody
fell asleep, ran out of time or was cancelled.  After an event it searches on the picture for those kinds alone that lacked it, in the
order in which their servers came; the first of a kind that finds no host says so for all of its kind, and later ones of other kinds are
tried all the same.

**Nothing is missed.**  A kind is taken to be without a host only after a search on a picture that was caught up after the sleeper's
row was read, and the picture notes what is freed from before that search on.  Whoever begins to lead searches for all kinds.

**Nothing is promised twice.**  What a woken boot was found is counted as taken in later searches until it has claimed, sleeps again or
has ended, or for `PROMISED_S`.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import msgspec

from moorage.bus import subjects
from moorage.bus.messages import OperationHint, encode
from moorage.bus.transport import Bus
from moorage.conductor.worker import Conductor
from moorage.model.clock import Clock
from moorage.model.errors import Problem
from moorage.model.ids import ConductorId, OperationId
from moorage.model.retry import Backoff, SeldomLog
from moorage.model.world import Ask, Choice
from moorage.operations.context import SagaContext
from moorage.operations.steps.sleepers import WAITING_BOOTS
from moorage.placement import claims
from moorage.placement.cache.freed import Freed
from moorage.scheduler.lacks import causes_of, lacks
from moorage.sql import label
from moorage.store.region import conductors, waiting
from moorage.store.region.waiting import WaitingServer

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
LOOK_AGAIN_MOST_S = 5.0
PROMISED_S = 10.0
PROMISES_LOOKED_AT_EVERY_S = 0.1
PAGE = 200
"""Sleepers read at once."""
KINDS_NAMED_MAX = 500
"""More kinds than that are not named to the database one by one."""
REST_LEAST_S = 0.05
SEARCHED_AT_ONCE_S = 0.02
"""So long the searches of one turn may keep this process from everything else."""
CALLED_MAX = 500
"""Sleepers whose time is over, or that were cancelled, woken in one look."""


@dataclass(frozen=True)
class Promise:
    """What a woken boot was found."""

    choice: Choice
    ask: Ask
    until_s: float


class Waker:
    """One per conductor; only the one that leads wakes anybody."""

    def __init__(
        self,
        conductor: Conductor,
        context: SagaContext,
        bus: Bus,
        clock: Clock,
        slept: asyncio.Event,
        *,
        look_every_s: float = LOOK_EVERY_S,
    ) -> None:
        """`slept`: set when a boot of this process falls asleep."""
        self._conductor = conductor
        self._context = context
        self._bus = bus
        self._clock = clock
        self._slept = slept
        self._look_every_s = look_every_s
        self._freed = Freed()
        self._kinds: dict[str, frozenset[str]] = {}
        """Kind → what it lacks; empty: nobody has searched for it yet."""
        self._open: set[str] = set()
        """Kinds that are to be searched for."""
        self._rest: dict[str, float] = {}
        """Kind → when those of it that rest may be searched for, on our clock."""
        self._promises: dict[OperationId, Promise] = {}
        self._led = False
        self._turn = 0
        self._task: asyncio.Task[None] | None = None
        self._log = SeldomLog(logger, clock.monotonic)
        self.woken: Counter[str] = Counter(dict.fromkeys(("room", "time", "cancel"), 0))
        """Why → how many this process woke."""
        self.in_vain = 0
        """How many of those woken for room fell asleep again."""
        self.searches = 0

    async def start(self) -> None:
        self._task = asyncio.create_task(self._keep(), name="waking")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._listen(False)

    @property
    def searching(self) -> bool:
        """Whether something was freed that is not searched for yet."""
        return bool(self._open) or self._freed.news.is_set()

    @property
    def kinds(self) -> int:
        """How many different requests wait, as far as this process knows."""
        return len(self._kinds)

    # ------------------------------------------------------------------------------------------------- when

    async def _keep(self) -> None:
        backoff, looked_at, pause_s = Backoff(self._look_every_s, LOOK_AGAIN_MOST_S), float("-inf"), 0.0
        while True:
            await self._pause(pause_s)
            now = self._clock.monotonic()
            try:
                if not self._conductor.leads:
                    self._led, looked_at = False, float("-inf")
                    self._forget()
                elif not self._led or self._slept.is_set() or now - looked_at >= self._look_every_s:
                    looked_at = now
                    await self.check_table()
                if self._led:
                    await self.search()
            except Exception as failure:  # noqa: BLE001  it is looked again, and all that sleep stand in the table
                self._log.warning("waking", "sleeping boots could not be read: %r", failure)
                self._led = False
                pause_s = backoff.next_s()
                continue
            backoff.reset()
            pause_s = self._next_s()

    def _next_s(self) -> float:
        if self._promises and self._kinds:
            return PROMISES_LOOKED_AT_EVERY_S
        if self._open:
            return 0.0
        rest_s = min((at - self._clock.monotonic() for at in self._rest.values()), default=self._look_every_s)
        return min(self._look_every_s, max(rest_s, 0.0))

    async def _pause(self, pause_s: float) -> None:
        """Until something is freed, somebody falls asleep, or the time has come."""
        if pause_s <= 0:
            await asyncio.sleep(0)
            return
        waits = [asyncio.create_task(event.wait()) for event in (self._freed.news, self._slept)]
        try:
            await asyncio.wait(waits, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    def _forget(self) -> None:
        self._kinds.clear()
        self._open.clear()
        self._rest.clear()
        self._promises.clear()
        self._slept.clear()
        self._listen(False)

    def _listen(self, on: bool) -> None:
        """Nobody pays for notes while nobody waits."""
        self._context.placement.picture.freed = self._freed if on else None
        if not on:
            self._freed.take()

    # ------------------------------------------------------------------------------------------------- who

    async def check_table(self) -> None:
        """Who fell asleep, whose time is over, who was cancelled: what no event of the picture tells."""
        self._slept.clear()
        now_us = _now_us()
        region = self._context.region
        with label("look"):
            if not self._led:
                self._forget()
                self._open = set(await region.read(waiting.kinds))
                self._kinds = dict.fromkeys(self._open, frozenset[str]())
                self._led = True
            news = await region.read(lambda tx: waiting.news(tx, now_us))
            if news.new:
                fresh = await region.read(lambda tx: waiting.kinds(tx, new=True))
                self._open |= set(fresh)
                self._kinds |= {kind: frozenset() for kind in fresh if kind not in self._kinds}
                await region.write(lambda tx: waiting.were_searched(tx, fresh))
            if news.due:
                await self._call("time", await region.read(lambda tx: waiting.due(tx, now_us, CALLED_MAX)))
            if news.cancelled:
                await self._call("cancel", await region.read(lambda tx: waiting.cancelled(tx, CALLED_MAX)))
        self._listen(bool(self._kinds))

    async def _call(self, why: str, ids: Sequence[OperationId]) -> Sequence[OperationId]:
        """Wake them, each with a living conductor that knows how to go on."""
        if not ids:
            return ()
        owners = dict(zip(ids, self._owners(len(ids)), strict=False))
        woken = await self._context.region.write(lambda tx: waiting.wake(tx, owners, _now_us()))
        self.woken[why] += len(woken)
        await self._hint({operation: owners[operation] for operation in woken})
        return woken

    def _owners(self, count: int) -> Sequence[ConductorId]:
        me = self._conductor.id
        living = conductors.reaching_bus(self._conductor.peers.living)
        able = [each.id for each in living if set(WAITING_BOOTS) <= each.sagas] or [me]
        self._turn += count
        return [able[(self._turn + number) % len(able)] for number in range(count)]

    async def _hint(self, owners: Mapping[OperationId, ConductorId]) -> None:
        """A hint; who does not hear it finds its work in the table within a second."""
        for operation, owner in owners.items():
            if owner == self._conductor.id:
                self._conductor.check_cancel(operation)
                continue
            try:
                await self._bus.publish(subjects.to_conductor(owner), encode(OperationHint(operation, owner)))
            except Problem as problem:
                self._log.warning("hint", "conductor %s could not be informed of its work: %s", owner, problem)

    # ------------------------------------------------------------------------------------------------- the search

    async def search(self) -> None:
        """After what was freed: for the kinds that lacked it, in the order in which their servers came."""
        await self._settle_promises()
        self._open |= self._touched(self._freed.take())
        now_s = self._clock.monotonic()
        for kind in [kind for kind, at in self._rest.items() if at <= now_s]:
            self._open.add(kind)
            del self._rest[kind]
        after: tuple[int, str] = (0, "")
        while self._open and self._conductor.leads:
            kinds = self._open if len(self._open) <= KINDS_NAMED_MAX else None
            with label("look"):
                rows = await self._context.region.read(
                    lambda tx, kinds=kinds, after=after: waiting.line(tx, kinds, _now_us(), after, PAGE)  # type: ignore[misc]
                )
                if not rows:
                    await self._all_rest()
                    return
                await self._context.placement.catch_up()
                if news := self._touched(self._freed.take()) - self._open:
                    self._open |= news
                    after = (0, "")  # somebody who came earlier may be among them
                    continue
                turn = self._turn_of(rows)
                after = turn.reached
                woken = set(await self._call("room", list(turn.found)))
                for kind, (causes, counts) in turn.changed.items():
                    await self._context.region.write(
                        lambda tx, kind=kind, causes=causes, counts=counts: waiting.note_causes(
                            tx, kind, causes, counts
                        )  # type: ignore[misc]
                    )
            until_s = self._clock.monotonic() + PROMISED_S
            for operation in woken:
                self._promises[operation] = Promise(*turn.found[operation], until_s)

    def _touched(self, freed: Freed) -> set[str]:
        """Kinds that lacked any of it."""
        if freed.everything:
            return set(self._kinds)
        keys = freed.keys
        return {kind for kind, lacked in self._kinds.items() if not keys.isdisjoint(lacked)} if keys else set()

    def _turn_of(self, rows: Sequence[WaitingServer]) -> "SearchTurn":
        """Who of them finds a host; kinds that find none are closed.  Nothing else happens in this process meanwhile."""
        turn, engine = SearchTurn(), self._context.placement
        began_s = time.monotonic()
        with self._unheard(), ExitStack() as held:
            for promise in self._promises.values():
                held.enter_context(engine.holding(promise.choice, promise.ask))
            for row in rows:
                if turn.searches and time.monotonic() - began_s > SEARCHED_AT_ONCE_S:
                    break
                turn.reached = (row.came_at, row.operation)
                if row.kind not in self._open:
                    continue
                ask = msgspec.json.decode(row.ask, type=Ask)
                verdict = engine.rank(ask)
                turn.searches += 1
                if verdict.best:
                    turn.found[row.operation] = (verdict.best[0], ask)
                    held.enter_context(engine.holding(verdict.best[0], ask))
                    continue
                self._open.discard(row.kind)
                self._kinds[row.kind] = lacked = lacks(ask, engine.world())
                if (causes := causes_of(lacked)) != row.causes:
                    turn.changed[row.kind] = (causes, verdict.counts())
        self.searches += turn.searches
        return turn

    @contextmanager
    def _unheard(self) -> Iterator[None]:
        """What this search holds and gives back is no event."""
        picture = self._context.placement.picture
        picture.freed = None
        try:
            yield
        finally:
            picture.freed = self._freed

    async def _all_rest(self) -> None:
        """Of the open kinds nobody is left to be searched for now: they have no sleepers any more, or those rest."""
        kinds = sorted(self._open)
        self._open.clear()
        now_us, now_s = _now_us(), self._clock.monotonic()
        for start in range(0, len(kinds), KINDS_NAMED_MAX):
            batch = kinds[start : start + KINDS_NAMED_MAX]
            rests = await self._context.region.read(lambda tx, batch=batch: waiting.resting_until(tx, batch))  # type: ignore[misc]
            for kind in batch:
                if (until_us := rests.get(kind)) is None:
                    self._kinds.pop(kind, None)
                else:
                    self._rest[kind] = now_s + max((until_us - now_us) / 1e6, REST_LEAST_S)
        if not self._kinds:
            self._listen(False)

    async def _settle_promises(self) -> None:
        """What was promised and is not taken is free again."""
        if not self._promises:
            return
        with label("look"):
            states = await self._context.region.read(lambda tx: waiting.states(tx, list(self._promises)))
        now_s, free = self._clock.monotonic(), Freed()
        for operation, promise in list(self._promises.items()):
            state = states.get(operation, waiting.State.GONE)
            if state is waiting.State.WOKEN and now_s < promise.until_s:
                continue
            del self._promises[operation]
            if state is waiting.State.CLAIMED:
                continue
            self.in_vain += state is waiting.State.ASLEEP
            for provider, resource, _ in claims.portions(promise.choice, promise.ask):
                free.amount(provider, resource)
        self._open |= self._touched(free)


@dataclass
class SearchTurn:
    """What one turn of searches came to."""

    found: dict[OperationId, tuple[Choice, Ask]] = field(default_factory=dict[OperationId, tuple[Choice, Ask]])
    changed: dict[str, tuple[tuple[str, ...], dict[str, int]]] = field(
        default_factory=dict[str, tuple[tuple[str, ...], dict[str, int]]]
    )
    """Kind → what it lacks now, where that is something else than its row says."""
    reached: tuple[int, str] = (0, "")
    searches: int = 0


def _now_us() -> int:
    """The wall clock, as rows have it."""
    return time.time_ns() // 1000
