"""Handles events of the network service about ports: changed addresses, and ports that were deleted under their
servers.

The events are stored in the inbox (RULES §20) and removed once handled, so none is lost with a process. A hint on the
bus, or a periodic poll, tells that there are some; events of a server that an operation holds wait.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from moorage.bus import subjects
from moorage.bus.messages import EventHint, read
from moorage.bus.transport import Bus, Subscription
from moorage.model.clock import Clock
from moorage.model.errors import Problem
from moorage.model.ids import ServerId
from moorage.model.retry import jittered
from moorage.operations.context import SagaContext
from moorage.operations.interfaces import port_sync
from moorage.operations.interfaces.port_sync import SyncOutcome
from moorage.operations.volumes import extend_volume
from moorage.sql import label
from moorage.store.region import inbox
from moorage.store.region.inbox import ExternalEvent

logger = logging.getLogger(__name__)

DELETED = "network-vif-deleted"
HEEDED = ("network-changed", DELETED, extend_volume.EXTENDED)
LOOK_EVERY_S = 2.0
GATHERED_S = 0.02
"""Hints that arrive within this time are handled by one poll."""
AT_A_LOOK_MAX = 500
LOOK = "look_for_events"
AT_ONCE = 8
PAGES_MAX = 20
"""Pages of one poll, each with `AT_A_LOOK_MAX` events."""
REST_MOST_S = 60.0
RESTS_MAX = 10_000


@dataclass
class _Rest:
    """The pause of a server whose events could not be handled."""

    until: float
    pause_s: float


class Events:
    """Runs in every process that executes sagas. Several may handle the same event; the later ones find nothing left to
    do.
    """

    def __init__(self, context: SagaContext, bus: Bus, clock: Clock, *, look_every_s: float = LOOK_EVERY_S) -> None:
        self._context = context
        self._bus = bus
        self._clock = clock
        self._look_every_s = look_every_s
        self._hinted = asyncio.Event()
        self._subscription: Subscription | None = None
        self._life: asyncio.Task[None] | None = None
        self._rests: dict[ServerId, _Rest] = {}

    async def start(self) -> None:
        self._subscription = await self._bus.subscribe(subjects.EVENTS, self._on_hint)
        self._life = asyncio.create_task(self._poll_loop(), name="external-events")

    async def stop(self) -> None:
        if self._subscription is not None:
            await self._subscription.close()
        if self._life is not None:
            self._life.cancel()
            await asyncio.gather(self._life, return_exceptions=True)

    async def _on_hint(self, subject: str, payload: bytes) -> None:
        hint = read(payload)
        if not isinstance(hint, EventHint):
            return
        if hint.name in HEEDED:
            self._rests.pop(hint.server, None)
            self._hinted.set()
        else:
            self._context.arrivals.wake(hint.server)

    async def _poll_loop(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._look_every_s):
                    await self._hinted.wait()
            except TimeoutError:
                pass  # there was no hint; one may have been lost
            await self._clock.sleep(GATHERED_S)
            self._hinted.clear()
            try:
                await self.process_pending()
            except Exception as failure:  # noqa: BLE001  the events are kept, and the next poll is soon
                logger.warning("external events could not be read: %r", failure)

    async def process_pending(self) -> int:
        """Handle the events that are ready; return how many. An event that cannot be handled now does not block later
        ones.
        """
        done, after = 0, None
        for _ in range(PAGES_MAX):
            page = await self._page(after)
            done += await self._act_on(page)
            if len(page) < AT_A_LOOK_MAX:
                break
            after = page[-1]
        return done

    async def _page(self, after: ExternalEvent | None) -> Sequence[ExternalEvent]:
        with label(LOOK):
            return await self._context.region.read(lambda tx: inbox.ready(tx, HEEDED, AT_A_LOOK_MAX, after))

    async def _act_on(self, events: Sequence[ExternalEvent]) -> int:
        by_server: dict[ServerId, list[ExternalEvent]] = {}
        for each in events:
            by_server.setdefault(each.server, []).append(each)
        slots = asyncio.Semaphore(AT_ONCE)

        async def handle(server: ServerId) -> Sequence[ExternalEvent]:
            rest = self._rests.get(server)
            if rest is not None and self._clock.monotonic() < rest.until:
                return ()
            async with slots:
                if await self._handle(server, by_server[server]):
                    self._rests.pop(server, None)
                    return by_server[server]
            self._leave_alone(server, rest)
            return ()

        done = [each for rows in await asyncio.gather(*map(handle, by_server)) for each in rows]
        if done:
            with label(LOOK):
                await self._context.region.write(lambda tx: inbox.taken(tx, done))
        return len(done)

    def _leave_alone(self, server: ServerId, before: _Rest | None) -> None:
        pause_s = self._look_every_s if before is None else min(before.pause_s * 2, REST_MOST_S)
        if len(self._rests) >= RESTS_MAX:
            self._rests.pop(next(iter(self._rests)))
        self._rests[server] = _Rest(self._clock.monotonic() + jittered(pause_s), pause_s)

    async def _handle(self, server: ServerId, events: Sequence[ExternalEvent]) -> bool:
        deleted = frozenset(each.tag for each in events if each.name == DELETED)
        try:
            for each in events:
                if each.name == extend_volume.EXTENDED and self._context.volumes is not None:
                    await extend_volume.begin(self._context, server, each.tag)
            if all(each.name == extend_volume.EXTENDED for each in events):
                return True
            return await port_sync.reconcile(self._context, server, deleted=deleted) is not SyncOutcome.BUSY
        except Problem as problem:  # the network service or the cell does not answer: the event is kept
            logger.info("events about ports or volumes of server %s wait: %s", server, problem)
            return False
        except Exception:  # one server's problem must not block the events of all others
            logger.exception("events about ports of server %s could not be handled", server)
            return False
