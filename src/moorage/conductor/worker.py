"""A conductor: owns operations, executes them, and receives their cancels.

It holds one lease for all its work (`lease.py`, RULES §3). When the lease is lost, every operation is stopped and left
as it is; another conductor adopts them, or this process under its next lease. So it is too when it does not reach the
bus and another conductor does (`bus_reach.py`). Operations of this process are handed over in memory, others by a hint
on the bus; a poll every second finds lost ones. `bulkheads.py` limits their number.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager

from moorage.bus import subjects
from moorage.bus.messages import OperationHint, read
from moorage.bus.transport import Bus, Subscription
from moorage.conductor.adoption import take_over
from moorage.conductor.bulkheads import Bulkheads, berth_of
from moorage.conductor.bus_reach import BusReach
from moorage.conductor.lease import ConductorLease, LeaseLost, Peers
from moorage.conductor.operation_runner import AGAIN_MOST_S, OperationRunner, operation_of
from moorage.conductor.options import DEFAULTS, ConductorOptions
from moorage.model.clock import Clock
from moorage.model.errors import Problem
from moorage.model.ids import ConductorId, OperationId
from moorage.model.operation import Accepted, Operation, OperationStatus
from moorage.model.retry import Backoff, SeldomLog, jittered
from moorage.operations.context import SagaContext
from moorage.operations.registry import SAGAS
from moorage.sql import label
from moorage.store.region import operation_owners, operations

logger = logging.getLogger(__name__)

FETCHED_AT_ONCE_MAX = 200
STUCK_AGAIN_S = 30.0
RENEW_FIRST_S = 0.2


class Conductor:
    """One per process that executes operations."""

    def __init__(
        self,
        conductor: ConductorId,
        context: SagaContext,
        bus: Bus,
        clock: Clock,
        options: ConductorOptions = DEFAULTS,
    ) -> None:
        self.context = context
        lease_on = options.lease_on or context.region
        self.lease = ConductorLease(conductor, lease_on, clock, SAGAS, lease_s=options.lease_s)
        self.peers = Peers(options.lease_s)
        self._bus_reach = BusReach(bus, clock, self.lease, self.peers)
        self.bulkheads = Bulkheads(options.places)
        self._bus = bus
        self._clock = clock
        self._alone = options.alone
        self._beat_s, self._look_every_s = options.beat_s, options.look_every_s
        self._renamed = options.renamed
        self._tasks: dict[OperationId, asyncio.Task[None]] = {}
        self._stuck_until: dict[OperationId, float] = {}
        self._poll_now = asyncio.Event()
        self._work = asyncio.Event()
        self._beat_now = asyncio.Event()
        self._log = SeldomLog(logger, clock.monotonic)
        self._runner = OperationRunner(
            lambda: dataclasses.replace(self.context, aside=self._aside),
            self.lease,
            clock,
            self._log,
            poll=self._poll_now.set,
            stuck=self._later,
        )
        self._life: list[asyncio.Task[None]] = []
        self._hints: Subscription | None = None
        self._known_as: ConductorId | None = None
        self._stopping = False

    @property
    def id(self) -> ConductorId:
        """The id under which operations are owned now; it changes after a lost lease."""
        return self.lease.id

    @property
    def alive(self) -> bool:
        """Whether the lease is valid, and operations may be begun."""
        return not self._stopping and self.lease.alive

    @property
    def leads(self) -> bool:
        """Whether this conductor does the work of which one in the region is enough."""
        return self.alive and self.peers.leader() == self.id

    @property
    def is_worse_placed(self) -> bool:
        """Whether another conductor reaches the bus, and this one does not."""
        return self._bus_reach.is_worse_placed

    @property
    def executing(self) -> int:
        return len(self._tasks)

    async def start(self) -> None:
        """Take the lease, adopt operations, receive hints. `alone`: only this process uses the data directory."""
        await self.lease.take()
        self.lease.tick()
        await self._be_known()
        await self.adopt(everything=self._alone)
        self._poll_now.set()
        self._life = [
            asyncio.create_task(self._ticking(), name="conductor-clock"),
            asyncio.create_task(self._beating(), name="conductor-lease"),
            asyncio.create_task(self._poll_loop(), name="conductor-poll"),
            asyncio.create_task(self._beginning(), name="conductor-begin"),
        ]

    async def stop(self) -> None:
        """Leave every operation as it is, and the lease to the next conductor."""
        self._stopping = True
        for task in self._life:
            task.cancel()
        await asyncio.gather(*self._life, return_exceptions=True)
        if self._hints is not None:
            await self._hints.close()
        await self._drop_all()
        try:
            await self.lease.give_back()
        except Problem as problem:
            logger.warning("the lease could not be ended, it expires by itself: %s", problem)

    # ------------------------------------------------------------------------------------------------- the lease

    async def _ticking(self) -> None:
        """Notice the end of the lease even if the database hangs, a suspension of this process, and an outage of the
        bus, during which the others are looked at with each tick.
        """
        while True:
            await self._clock.sleep(self.lease.tick_s)
            if self._bus_reach.check():
                self._beat_now.set()
            if self.lease.tick():
                logger.warning("conductor %s was suspended for a while, and checks whether its lease is valid", self.id)
                self._beat_now.set()
            if self.lease.over and self._tasks:
                self.lease.lose()
                logger.error(
                    "conductor %s lost its lease; its %d operations wait for another conductor",
                    self.id,
                    len(self._tasks),
                )
                await self._drop_all()
                self._beat_now.set()

    async def _beating(self) -> None:
        """Renew the lease, or take a new one: longer pauses after each failure, never longer than half a beat."""
        backoff = Backoff(RENEW_FIRST_S, self._beat_s / 2)
        pause_s = jittered(self._beat_s)
        while True:
            try:
                async with asyncio.timeout(pause_s):
                    await self._beat_now.wait()
            except TimeoutError:
                pass  # it is time
            self._beat_now.clear()
            try:
                await self.beat()
            except Exception as failure:  # noqa: BLE001  whatever it is, the lease decides
                pause_s = backoff.next_s()
                self._log.warning("lease", "conductor %s could not renew its lease: %r", self.id, failure)
                continue
            backoff.reset()
            pause_s = jittered(self._beat_s)
            try:
                async with asyncio.timeout(self.lease.gap_s):
                    await self._be_known()
                    await self.adopt()
                    await self._bus_reach.leave_work(len(self._tasks), self._drop_all)
            except Exception as failure:  # noqa: BLE001  the next beat tries again
                self._log.warning(
                    "adopt", "conductor %s could not adopt operations of dead conductors: %r", self.id, failure
                )

    async def beat(self) -> None:
        """Renew the lease; when it is lost, stop everything and take another. Raises LeaseLost or what prevented it.

        A try that takes longer than half a lease is given up; if it commits all the same, its row is never renewed.
        """
        if self.lease.over and self.is_worse_placed and not self._tasks:
            return
        async with asyncio.timeout(self.lease.gap_s):
            if not self.lease.over:
                try:
                    await self.lease.renew()
                except LeaseLost:
                    logger.error("the lease of conductor %s had ended before it was renewed", self.id)
                else:
                    if self.bulkheads.give_more():
                        self._work.set()
                    return
            self.lease.lose()
            await self._drop_all()
            self.bulkheads.forget_waiting()
            self._stuck_until.clear()
            old_id = self.id
            await self.lease.take()
            if not self.lease.alive:
                self.lease.lose()
                raise LeaseLost
        logger.warning("conductor %s lost its lease, and continues as %s", old_id, self.id)
        self._poll_now.set()

    async def _be_known(self) -> None:
        """Under another id: receive its hints, no longer those of the earlier id, and notify `renamed`."""
        me, former = self.id, self._hints
        if self._known_as == me:
            return
        hints = await self._bus.subscribe(subjects.to_conductor(me), self._on_hint)
        self._hints = hints
        if former is not None:
            await former.close()
            if self._renamed is not None:
                await self._renamed(me)
        self._known_as = me

    async def adopt(self, *, everything: bool = False) -> int:
        """Take over the operations of conductors that are dead; return how many."""
        adopted = await take_over(
            self.context.region,
            self.lease,
            self.peers,
            self._clock,
            may=lambda: self.alive and not self.is_worse_placed,
            everything=everything,
        )
        now = self._clock.monotonic()
        self._stuck_until |= {each: now for each, status in adopted.items() if status is OperationStatus.STUCK}
        if adopted:
            logger.info("conductor %s adopted %d operations", self.id, len(adopted))
            self._poll_now.set()
        return len(adopted)

    async def _drop_all(self) -> None:
        self.bulkheads.give_fewer()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ------------------------------------------------------------------------------------------------ messages

    def hand_over(self, accepted: Accepted) -> None:
        """Take an operation that the API of this process accepted: it need not be read."""
        berth = berth_of(accepted.saga, accepted.project, accepted.cell)
        if not self.alive or self.bulkheads.knows(accepted.id):
            return  # a poll may have found it in the table first, and be reading it now
        if not self.bulkheads.has_place(berth):
            self.bulkheads.wait(accepted.id, berth)
            return
        self.bulkheads.enter(accepted.id, berth)
        self._begin(operation_of(accepted))

    def check_cancel(self, operation: OperationId) -> None:
        """Its `cancel` may have been written."""
        if not self._runner.cancel(operation):
            self._poll_now.set()

    async def _on_hint(self, subject: str, payload: bytes) -> None:
        hint = read(payload)
        if not isinstance(hint, OperationHint) or hint.owner != self.id:
            return
        if hint.cancelled:
            self.check_cancel(hint.operation)
        elif hint.operation not in self._tasks:
            try:
                with label("fetch"):
                    owned = await self.context.region.read(lambda tx: operation_owners.owned_of(tx, [hint.operation]))
            except Problem as problem:  # the poll of every second finds it
                self._log.warning("fetch", "operation %s cannot be read yet: %s", hint.operation, problem)
                return
            self._queue(owned)
            await self.begin_waiting()

    async def _poll_loop(self) -> None:
        backoff = Backoff(self._look_every_s, max(AGAIN_MOST_S, self._look_every_s))
        pause_s = self._look_every_s
        while True:
            try:
                async with asyncio.timeout(pause_s):
                    await self._poll_now.wait()
            except TimeoutError:
                pass  # no hint within a second
            self._poll_now.clear()
            try:
                await self.poll()
            except Exception as failure:  # noqa: BLE001  the next poll tries again
                pause_s = backoff.next_s()
                self._log.warning("look", "conductor %s could not poll for operations: %r", self.id, failure)
            else:
                backoff.reset()
                pause_s = self._look_every_s

    async def poll(self) -> None:
        """Begin operations of mine that are not being executed: lost hints, waiting ones whose turn has come, and stuck
        ones that are due.

        An operation that could not be executed waits too: it is executed as adopted, because its progress is unknown.
        """
        if not self.alive:
            return
        with label("look"):
            mine = await self.context.region.read(lambda tx: operation_owners.owned(tx, self.id))
        self._queue([each for each in mine if each.id not in self._stuck_until])
        await self.begin_waiting()
        now = self._clock.monotonic()
        due = [each for each, at in self._stuck_until.items() if at <= now and each not in self._tasks]
        if due:
            await self._again(due[:FETCHED_AT_ONCE_MAX])

    async def _again(self, due: Sequence[OperationId]) -> None:
        """Execute stuck operations again, as far as there are places."""
        with label("look"):
            owned = await self.context.region.read(lambda tx: operation_owners.owned_of(tx, due))
        gone = set(due) - {each.id for each in owned}
        chosen: list[OperationId] = []
        for each in owned:
            berth = berth_of(each.saga, each.project, each.cell)
            if self.bulkheads.has_place(berth) and each.id not in self.bulkheads:
                self.bulkheads.enter(each.id, berth)
                chosen.append(each.id)
        begun: set[OperationId] = set()
        try:
            rows = (
                await self.context.region.write(lambda tx: operation_owners.readopt(tx, self.id, chosen))
                if chosen
                else ()
            )
            for operation in (*chosen, *gone):
                self._stuck_until.pop(operation, None)
            for row in rows:
                self._begin(row)
                begun.add(row.id)
        finally:
            self._leave(set(chosen) - begun)

    def _queue(self, owned: Sequence[operation_owners.Owned]) -> None:
        for each in owned:
            if each.id not in self._tasks:
                self.bulkheads.wait(each.id, berth_of(each.saga, each.project, each.cell))

    async def _beginning(self) -> None:
        """Give places that became free to waiting operations."""
        while True:
            await self._work.wait()
            self._work.clear()
            try:
                await self.begin_waiting()
            except Exception as failure:  # noqa: BLE001  the next poll finds what is left
                self._log.warning("fetch", "conductor %s could not read queued operations: %r", self.id, failure)

    async def begin_waiting(self) -> None:
        """Begin queued operations that have a place."""
        while self.alive and (ids := self.bulkheads.next_ones(FETCHED_AT_ONCE_MAX)):
            begun: set[OperationId] = set()
            try:
                with label("fetch"):
                    rows = await self.context.region.read(lambda tx, ids=ids: operations.by_ids(tx, ids))  # type: ignore[misc]
                for row in rows:
                    if row.owner == self.id and row.ended_at is None and row.after is None:
                        self._begin(row)
                        begun.add(row.id)
            finally:
                self._leave(set(ids) - begun)

    def _leave(self, ids: set[OperationId]) -> None:
        for operation in ids:
            if self.bulkheads.leave(operation):
                self._work.set()

    def _aside(self, operation: OperationId) -> AbstractContextManager[None]:
        return self.bulkheads.aside(operation, self._work.set)

    # ------------------------------------------------------------------------------------------------- execution

    def _begin(self, operation: Operation) -> None:
        """Begin it; it has its place."""
        task = asyncio.create_task(self._runner.execute(operation), name=f"operation-{operation.id}")
        self._tasks[operation.id] = task

        def ended(_: "asyncio.Task[None]") -> None:
            self._tasks.pop(operation.id, None)
            self._runner.forget(operation.id)
            self._leave({operation.id})

        task.add_done_callback(ended)

    def _later(self, operation: OperationId) -> None:
        self._stuck_until[operation] = self._clock.monotonic() + jittered(STUCK_AGAIN_S)
