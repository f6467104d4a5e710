"""A conductor: leases operations, tells them, and hears when one is to stop.

It holds one lease for all its work (RULES §3).  The lease is renewed every few seconds; if it cannot be, every story is
stopped before the lease ends, and left where it is: somebody else adopts them.  What is told in this process may be handed
over in memory; a hint on the bus does the same from elsewhere, and a look into the table every second finds what was lost.
"""

import asyncio
import logging
import platform
from collections.abc import Sequence

import msgspec

from moorage.bus import subjects
from moorage.bus.carrier import Bus, Subscription
from moorage.bus.messages import OperationHint, encode, read
from moorage.clients.deadline import LEASE_MARGIN_S, lease_left
from moorage.clients.http import request_id as carried
from moorage.model.clock import Clock
from moorage.model.errors import Problem, Unavailable
from moorage.model.ids import ConductorId, OperationId
from moorage.model.operation import Accepted, Operation, OperationStatus
from moorage.operations.all import SAGAS
from moorage.operations.rooms import Rooms
from moorage.saga import Fenced, Stuck, Torn, Unwound, tell
from moorage.sql import label
from moorage.store.region import conductors, operations
from moorage.store.region.journal import Journal

logger = logging.getLogger(__name__)

TOLD_AT_ONCE_MAX = 1000
LOOK_EVERY_S = 1.0
STUCK_AGAIN_S = 30.0
LIVING_KEPT_S = 2.0


class Tellers:
    """`operations.rooms.Tellers`: chooses an owner, and hands over or hints."""

    def __init__(self, rooms_region: object, bus: Bus, local: "Conductor | None" = None) -> None:
        self._region = rooms_region
        self._bus = bus
        self.local = local
        self._living: Sequence[tuple[ConductorId, frozenset[str], str]] = ()
        self._read_at = -LIVING_KEPT_S
        self._turn = 0

    async def choose(self, saga: str) -> ConductorId:
        """The conductor of this process if there is one, else the living ones in turn."""
        if self.local is not None and self.local.alive:
            return self.local.id
        now = asyncio.get_running_loop().time()
        if now - self._read_at > LIVING_KEPT_S or not self._living:
            self._living = await self._region.read(conductors.living)  # type: ignore[attr-defined]
            self._read_at = now
        able = [each for each in self._living if saga in each[1]]
        if not able or any(saga not in each[1] for each in self._living):
            if not able:
                raise Unavailable("no conductor is running that could carry this out; try again later")
            logger.info("some living conductors do not know %s yet", saga)
        self._turn += 1
        return able[self._turn % len(able)][0]

    async def begun(self, accepted: Accepted) -> None:
        if self.local is not None and accepted.owner == self.local.id:
            self.local.hand_over(accepted)
        else:
            hint = OperationHint(accepted.id, accepted.owner)
            await self._bus.publish(subjects.to_conductor(accepted.owner), encode(hint))

    async def cancelled(self, operation: OperationId, owner: ConductorId) -> None:
        if self.local is not None and owner == self.local.id:
            self.local.heed(operation)
        else:
            hint = OperationHint(operation, owner, cancelled=True)
            await self._bus.publish(subjects.to_conductor(owner), encode(hint))


class Conductor:
    """One per process that tells stories."""

    def __init__(
        self,
        conductor: ConductorId,
        rooms: Rooms,
        bus: Bus,
        clock: Clock,
        *,
        alone: bool = False,
        lease_s: float = conductors.LEASE_S,
        beat_s: float = conductors.BEAT_S,
        look_every_s: float = LOOK_EVERY_S,
    ) -> None:
        self.id = conductor
        self.rooms = rooms
        self._bus = bus
        self._clock = clock
        self._alone = alone
        self._lease_s, self._beat_s, self._look_every_s = lease_s, beat_s, look_every_s
        self._lease_ends = 0.0
        self._told: dict[OperationId, asyncio.Task[None]] = {}
        self._cancels: dict[OperationId, asyncio.Event] = {}
        self._stuck_until: dict[OperationId, float] = {}
        self._look = asyncio.Event()
        self._life: list[asyncio.Task[None]] = []
        self._hints: Subscription | None = None
        self._stopping = False

    @property
    def alive(self) -> bool:
        """The lease holds, and stories may be begun."""
        return not self._stopping and self._clock.monotonic() < self._lease_ends - LEASE_MARGIN_S

    def _lease_left_s(self) -> float:
        return self._lease_ends - self._clock.monotonic()

    @property
    def telling(self) -> int:
        return len(self._told)

    async def start(self) -> None:
        """Take the lease, adopt what the dead left, begin to listen.  `alone`: this process holds the data directory."""
        await self._renew()
        self._hints = await self._bus.subscribe(subjects.to_conductor(self.id), self._hear)
        await self.adopt(everything=self._alone)
        self._life = [
            asyncio.create_task(self._beating(), name="conductor-lease"),
            asyncio.create_task(self._looking(), name="conductor-look"),
        ]

    async def stop(self) -> None:
        """Leave every story where it is, and the lease to whoever comes next."""
        self._stopping = True
        for task in self._life:
            task.cancel()
        await asyncio.gather(*self._life, return_exceptions=True)
        if self._hints is not None:
            await self._hints.close()
        await self._drop_all()
        try:
            await self.rooms.region.write(lambda tx: conductors.retire(tx, self.id))
        except Problem as problem:
            logger.warning("the lease could not be given back, it runs out by itself: %s", problem)

    # ------------------------------------------------------------------------------------------------- the lease

    async def _renew(self) -> None:
        began = self._clock.monotonic()
        with label("lease"):
            await self.rooms.region.write(
                lambda tx: conductors.beat(tx, self.id, platform.node(), sorted(SAGAS), self._lease_s)
            )
        self._lease_ends = began + self._lease_s

    async def _beating(self) -> None:
        while True:
            await self._clock.sleep(self._beat_s)
            try:
                left = self._lease_ends - LEASE_MARGIN_S - self._clock.monotonic()
                async with asyncio.timeout(max(left, 0.1)):
                    await self._renew()
                    await self.adopt()
            except Exception as failure:  # noqa: BLE001  whatever it is, the lease decides
                logger.warning("conductor %s could not renew its lease: %r", self.id, failure)
            if not self.alive and self._told:
                logger.error("conductor %s lost its lease; its %d stories wait for another", self.id, len(self._told))
                await self._drop_all()

    async def adopt(self, *, everything: bool = False) -> int:
        """Take over the operations of dead conductors; how many."""
        with label("adopt"):
            dead = await self.rooms.region.read(lambda tx: conductors.dead(tx, all_but=self.id if everything else None))
            dead = [each for each in dead if each != self.id]
            if not dead:
                return 0
            taken = await self.rooms.region.write(lambda tx: operations.adopt(tx, self.id, dead, SAGAS))
        for operation in taken:
            if operation.after is None:
                self._begin(operation)
        if taken:
            logger.info("conductor %s adopted %d operations", self.id, len(taken))
        return len(taken)

    async def _drop_all(self) -> None:
        tasks = list(self._told.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ------------------------------------------------------------------------------------------------- hearing

    def hand_over(self, accepted: Accepted) -> None:
        """From the front desk of this process: no need to read what is known."""
        self._begin(
            Operation(
                id=accepted.id,
                saga=accepted.saga,
                server=accepted.server,
                project=accepted.project,
                user=accepted.user,
                owner=accepted.owner,
                status=OperationStatus.OPEN,
                epoch=accepted.epoch,
                head=accepted.head,
                created_at=accepted.created_at,
                updated_at=accepted.created_at,
                seq=accepted.seq,
                request_id=accepted.request_id,
                asked=accepted.asked,
                journal=accepted.journal,
            )
        )

    def heed(self, operation: OperationId) -> None:
        """Its `cancel` may have been written."""
        event = self._cancels.get(operation)
        if event is not None:
            event.set()
        else:
            self._look.set()

    async def _hear(self, subject: str, payload: bytes) -> None:
        hint = read(payload)
        if not isinstance(hint, OperationHint) or hint.owner != self.id:
            return
        if hint.cancelled:
            self.heed(hint.operation)
        elif hint.operation not in self._told:
            try:
                await self._fetch([hint.operation])
            except Problem as problem:  # the look of every second finds it
                logger.warning("operation %s cannot be read yet: %s", hint.operation, problem)

    async def _looking(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._look_every_s):
                    await self._look.wait()
            except TimeoutError:
                pass  # a quiet second
            self._look.clear()
            try:
                await self.look()
            except Exception as failure:  # noqa: BLE001  the next look comes in a second
                logger.warning("conductor %s could not look for work: %r", self.id, failure)

    async def look(self) -> None:
        """Begin what is mine and not being told: lost hints, heirs, and the stuck whose time has come.

        What could not be told waits for its time too: it is told again as adopted, for nobody knows how far it came.
        """
        if not self.alive:
            return
        with label("look"):
            mine = await self.rooms.region.read(lambda tx: operations.owned_ids(tx, self.id))
        await self._fetch([each for each in mine if each not in self._told and each not in self._stuck_until])
        now = self._clock.monotonic()
        again = [each for each, at in self._stuck_until.items() if at <= now and each not in self._told]
        if again:
            taken = await self.rooms.region.write(lambda tx: operations.readopt(tx, self.id, again))
            for operation in again:
                del self._stuck_until[operation]
            for row in taken:
                self._begin(row)

    async def _fetch(self, ids: Sequence[OperationId]) -> None:
        if not ids:
            return
        with label("fetch"):
            rows = await self.rooms.region.read(lambda tx: operations.by_ids(tx, ids[:TOLD_AT_ONCE_MAX]))
        for row in rows:
            if row.owner == self.id and row.ended_at is None and row.after is None:
                self._begin(row)

    # ------------------------------------------------------------------------------------------------- telling

    def _begin(self, operation: Operation) -> None:
        if operation.id in self._told:
            return
        if not self.alive or len(self._told) >= TOLD_AT_ONCE_MAX:
            if operation.status is OperationStatus.STUCK:  # which the look of every second passes over
                self._stuck_until[operation.id] = self._clock.monotonic() + STUCK_AGAIN_S
            return
        task = asyncio.create_task(self._tell(operation), name=f"operation-{operation.id}")
        self._told[operation.id] = task

        def ended(_: "asyncio.Task[None]") -> None:
            self._told.pop(operation.id, None)
            self._cancels.pop(operation.id, None)

        task.add_done_callback(ended)

    async def _tell(self, operation: Operation) -> None:
        adopted = False
        while True:
            try:
                await self._tell_once(operation, adopted)
                return
            except Torn as torn:
                logger.warning("operation %s: %s; reading it again", operation.id, torn)
                again = await self._read_again(operation.id)
                if again is None or again.owner != self.id or again.ended_at is not None:
                    return
                operation, adopted = again, True
            except Fenced as fenced:
                logger.warning("operation %s is told by another: %s", operation.id, fenced)
                return
            except Stuck as stuck:
                logger.error("operation %s of server %s is %s", operation.id, operation.server, stuck)
                self._stuck_until[operation.id] = self._clock.monotonic() + STUCK_AGAIN_S
                return
            except Unwound as unwound:
                logger.info("operation %s of server %s unwound at %s", operation.id, operation.server, unwound)
                self._look.set()  # a delete may have waited for it
                return
            except Exception:
                logger.exception("operation %s could not be told", operation.id)
                self._stuck_until[operation.id] = self._clock.monotonic() + STUCK_AGAIN_S
                return

    async def _tell_once(self, operation: Operation, adopted: bool) -> None:
        saga = SAGAS.get(operation.saga)
        if saga is None:
            logger.error("operation %s is a %s, which this release does not know", operation.id, operation.saga)
            return
        cancel = self._cancels.setdefault(operation.id, asyncio.Event())
        asked = msgspec.json.decode(operation.asked, type=saga.asked)
        lease_left.set(self._lease_left_s)
        carried.set(getattr(asked, "global_request_id", "") or operation.request_id)
        await tell(
            saga,
            operation.id,
            asked,
            self.rooms,
            Journal(self.rooms.region, operation),
            cancel_hint=cancel,
            adopted=adopted,
            max_attempts=self.rooms.settings.max_attempts,
            herald=None if self.rooms.herald is None else self.rooms.herald.heard,
        )
        if cancel.is_set():
            self._look.set()

    async def _read_again(self, operation: OperationId) -> Operation | None:
        while True:
            try:
                return await self.rooms.region.read(lambda tx: operations.get(tx, operation))
            except Problem as problem:
                logger.warning("operation %s cannot be read yet: %s", operation, problem)
                await self._clock.sleep(1.0)
