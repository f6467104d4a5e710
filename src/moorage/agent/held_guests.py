"""Keeps guests whose start does not count yet switched off while the host has no authority (RULES §23).

A start counts when its operation has shown the server as built, or when a later operation has used the guest here.  Until
then the operation may continue on another host as soon as this host is silent.  So from the end of its authority on, a host keeps such
guests off until its cell has answered where they belong: those that belong here are started again, the others are destroyed
(`guest_reconciliation.py`).  All other guests keep running, because an outage must not stop them.
"""

import asyncio
import logging
from collections.abc import Callable

from moorage.agent.failures import reason_of
from moorage.agent.journal import AgentJournal
from moorage.drivers.driver import Driver
from moorage.model.clock import Clock
from moorage.model.guest import OFF
from moorage.model.ids import ServerId

FIRST_ANSWER_S = 1.0
"""A cell that can be reached answers within this time, so an agent that is restarted switches nothing off."""
AGAIN_S = 1.0
POWER_OFF_S = 15.0
LETS_GO_S = 2.0
"""How long the acceptance of the host waits for the driver to switch guests off."""
OVERDUE_S = 60.0
"""A start is normally acknowledged with the next heartbeats; after this time the cell is asked."""

_log = logging.getLogger(__name__)


class Hold:
    """Holds the guests of one host.  `is_busy`: tells whether a command for the server is being executed."""

    def __init__(
        self, host: str, driver: Driver, journal: AgentJournal, clock: Clock, is_busy: Callable[[ServerId], bool]
    ) -> None:
        self._host = host
        self._driver = driver
        self._journal = journal
        self._clock = clock
        self._is_busy = is_busy
        self._answered = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._waiting_since: dict[ServerId, float] = {}

    def begin(self) -> None:
        """Begin to switch guests off: the host has no authority, and its cell is being asked."""
        if self._task is None:
            self._answered = asyncio.Event()
            self._task = asyncio.create_task(self._keep_off(self._answered))

    async def end(self) -> None:
        """End: the cell has answered.  Switching off that is under way is finished first, so that it cannot follow a new start."""
        self._answered.set()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=LETS_GO_S)
            await self.stop()

    async def stop(self) -> None:
        """Stop, and leave everything as it is."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def is_overdue(self) -> bool:
        """Tell whether to ask the cell about starts that were not acknowledged for long: the conductor may be dead."""
        now = self._clock.monotonic()
        before = self._waiting_since
        self._waiting_since = {each: before.get(each, now) for each in self._journal.unacknowledged()}
        overdue = [each for each, since in self._waiting_since.items() if now - since > OVERDUE_S]
        self._waiting_since.update(dict.fromkeys(overdue, now))
        return bool(overdue)

    async def _keep_off(self, answered: asyncio.Event) -> None:
        wait_s = FIRST_ANSWER_S
        while not await _is_set_within(answered, wait_s):
            wait_s = AGAIN_S
            try:
                if waiting := self._journal.unacknowledged():
                    guests = await self._driver.guests()
                    on = sorted(each for each in waiting if guests.get(each, OFF[0]) not in OFF)
                    await asyncio.gather(*(self._switch_off(each) for each in on if not self._is_busy(each)))
            except Exception as failure:  # noqa: BLE001 - a boundary: whatever a driver does, it is tried again
                _log.error("%s cannot see which of its guests run: %r", self._host, failure)

    async def _switch_off(self, server: ServerId) -> None:
        """Switch a guest off. Its stored result is dropped first: a repeated command with the same turn then starts it again."""
        _log.warning("%s may not act, and the start of %s does not count yet: its guest is off", self._host, server)
        try:
            await self._journal.take_back(server)
            async with asyncio.timeout(POWER_OFF_S):
                await self._driver.power_off(server, 0.0)
        except Exception as failure:  # noqa: BLE001 - a boundary: one guest that does not go off keeps the others from nothing
            why = reason_of(failure)
            _log.error("%s: the guest of %s must be off and is not: %s", self._host, server, why)


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False
