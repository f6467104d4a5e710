"""Decisions and claims of many at once: whoever waits at the same time shares a ranking and a transaction (docs/engine.md, RULES §17).

    claimer = Claimer(engine, region)
    answer = await claimer.place(ask, owner)        # Claimed, or the Verdict that names nobody

The first one goes at once and alone.  Those that come while its transaction is under way wait, and go together when a place is
free: the database's own pace sets the size of a batch, no clock does.  Equal asks (but for their dice) are ranked once and take
the verdict's hosts in turn; each is judged in SQL by itself, and who lost is decided again with the next batch.  Nobody is told
"no" on old news: a verdict without hosts counts only after a catch-up that began later.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from moorage.model.errors import NoCapacity, Unavailable
from moorage.model.verdict import Claimed, Shortage, Verdict
from moorage.model.world import Ask, Choice
from moorage.placement import batched_claims, claims
from moorage.placement.batched_claims import ClaimRequest
from moorage.placement.engine import Engine
from moorage.sql import Database, label
from moorage.store.region.placement.claims import Owner

BATCH_MAX = 256
UNDER_WAY_MAX = 2
"""One batch in the database while the next is decided."""
TRIES_MAX = 10
WAITING_MAX = 20_000


@dataclass(eq=False)
class _Order:
    """One who waits for a place."""

    ask: Ask
    owner: Owner
    kind: bytes
    done: "asyncio.Future[Claimed | Verdict]"
    tries: int = 0
    fresh: bool = False


@dataclass
class Pace:
    """What the claimer did, for benches and for people who wonder."""

    batches: int = 0
    rankings: int = 0
    claimed: int = 0
    lost: int = 0


@dataclass
class Claimer:
    """One per process, beside its engine."""

    engine: Engine
    region: Database
    pace: Pace = field(default_factory=Pace)
    _waiting: deque[_Order] = field(default_factory=deque[_Order])
    _under_way: set["asyncio.Task[None]"] = field(default_factory=set["asyncio.Task[None]"])

    async def place(self, ask: Ask, owner: Owner) -> Claimed | Verdict:
        """A host is chosen and held, durably; or there is none, and the verdict says why.

        Raises NoCapacity when every host that was chosen was taken by others first, and what the database raises.
        Who is cancelled while a transaction is under way may hold a place all the same: `release` by the consumer's id gives it back.
        """
        if len(self._waiting) >= WAITING_MAX:
            raise Unavailable("too many claims are waiting; try again later")
        kind = msgspec.msgpack.encode(msgspec.structs.replace(ask, seed=0))
        order = _Order(ask, owner, kind, asyncio.get_running_loop().create_future())
        self._waiting.append(order)
        self._go_on()
        return await order.done

    async def close(self) -> None:
        """Wait for what is under way."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    def _go_on(self) -> None:
        while self._waiting and len(self._under_way) < UNDER_WAY_MAX:
            batch: list[_Order] = []
            consumers: set[str] = set()
            while self._waiting and len(batch) < BATCH_MAX and self._waiting[0].owner.consumer not in consumers:
                order = self._waiting.popleft()
                if order.done.done():  # its asker was cancelled before anything was done for it
                    continue
                batch.append(order)
                consumers.add(order.owner.consumer)
            if not batch:
                return
            task = asyncio.create_task(self._serve(batch), name="claims")
            self._under_way.add(task)
            task.add_done_callback(self._served)

    def _served(self, task: "asyncio.Task[None]") -> None:
        self._under_way.discard(task)
        self._go_on()

    async def _serve(self, batch: list[_Order]) -> None:
        try:
            await self._place(batch)
        except BaseException as failure:
            for order in batch:
                if not order.done.done():
                    order.done.set_exception(failure)
            if not isinstance(failure, Exception):
                raise

    async def _place(self, batch: list[_Order]) -> None:
        chosen, nobody = self._choose(batch)
        if stale := [order for order, _ in nobody if not order.fresh]:
            await self.engine.catch_up()
            for order in stale:
                order.fresh = True
            more, nobody = self._choose([order for order, _ in nobody])
            chosen += more
        for order, verdict in nobody:
            if not order.done.done():
                order.done.set_result(verdict)
        if chosen:
            await self._claim(chosen)

    def _choose(self, batch: Sequence[_Order]) -> tuple[list[tuple[_Order, Choice]], list[tuple[_Order, Verdict]]]:
        """Each order's host, held in the picture at once so that the next ranking looks elsewhere; and who found none."""
        kinds: dict[bytes, list[_Order]] = {}
        for order in batch:
            kinds.setdefault(order.kind, []).append(order)
        chosen: list[tuple[_Order, Choice]] = []
        nobody: list[tuple[_Order, Verdict]] = []
        for alike in kinds.values():
            left = deque(alike)
            while left:
                self.pace.rankings += 1
                verdict = self.engine.rank(left[0].ask)
                if not verdict.best:
                    nobody += [(order, verdict) for order in left]
                    break
                for choice in verdict.best[: len(left)]:
                    order = left.popleft()
                    self.engine.picture.pend(claims.portions(choice, order.ask), +1)
                    chosen.append((order, choice))
        return chosen, nobody

    async def _claim(self, chosen: Sequence[tuple[_Order, Choice]]) -> None:
        bids = [ClaimRequest(order.owner, choice, order.ask) for order, choice in chosen]
        try:
            with label("claims"):
                answers = await self.region.write(lambda tx: batched_claims.claim(tx, bids))
        finally:
            for order, choice in chosen:
                self.engine.picture.pend(claims.portions(choice, order.ask), -1)
        self.pace.batches += 1
        lost: list[tuple[_Order, Shortage]] = []
        for (order, _), answer in zip(chosen, answers, strict=True):
            if isinstance(answer, Shortage):
                lost.append((order, answer))
                continue
            self.pace.claimed += 1
            self.engine.claimed(answer)
            if not order.done.done():
                order.done.set_result(answer)
        if any(shortage.stale for _, shortage in lost):
            await self.engine.catch_up()  # before they choose again
        for order, shortage in lost:
            self._lost(order, shortage)

    def _lost(self, order: _Order, shortage: Shortage) -> None:
        self.pace.lost += 1
        self.engine.lost(shortage)
        order.tries += 1
        order.fresh = False
        if order.tries < TRIES_MAX:
            self._waiting.append(order)
        elif not order.done.done():
            order.done.set_exception(NoCapacity("No valid host was found. Every claim was taken by another first."))
