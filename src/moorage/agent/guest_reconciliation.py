"""Applies the cell's answer to the guests: those that do not belong here are destroyed, and turns are remembered or forgotten.

A guest that cannot be destroyed delays neither the acceptance of its host nor other guests: the destroy is retried, nothing else is
done for its server meanwhile, and it is in every report until it is gone.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial

from moorage.agent.convergence import converge
from moorage.agent.failures import reason_of
from moorage.agent.journal import AgentJournal
from moorage.agent.server_queues import ServerQueues
from moorage.bus.host_messages import ServerTurn
from moorage.drivers.driver import Driver
from moorage.drivers.moves import arrivals_at
from moorage.model.clock import Clock
from moorage.model.errors import HostFailed
from moorage.model.fencing_token import FencingToken
from moorage.model.guest import PowerState
from moorage.model.ids import ServerId

DESTROY_S, SECOND_TRY_S = 5.0, 0.25
"""Limit of one try, and the pause before the second: a driver that hangs on one guest must not delay the host."""
AT_ONCE = 16
DELETED_KEPT_MAX = 10_000
OVER_KEPT_MAX = 10_000
"""Limit, larger than a host's number of guests; the oldest entry is dropped first, and the journal's turns remain."""
AGAIN_FIRST_S, AGAIN_MOST_S = 1.0, 30.0

_log = logging.getLogger(__name__)


class Settler:
    """Reconciles the guests of one host; `stop` leaves guests that could not be destroyed to the next start of the agent."""

    def __init__(self, host: str, driver: Driver, journal: AgentJournal, clock: Clock, lanes: ServerQueues) -> None:
        self._host = host
        self._driver = driver
        self._journal = journal
        self._clock = clock
        self._lanes = lanes
        self._in_the_way: dict[ServerId, ServerTurn] = {}
        """Guests that must be destroyed and are still there, each with the cell's answer."""
        self._again: dict[ServerId, asyncio.Task[None]] = {}
        self._deleted: dict[ServerId, None] = {}
        """The last servers that were deleted for ever: their turns are dropped, and commands still in buffers must not be executed."""

        self._over: dict[ServerId, int] = {}
        """Server that belongs here → the last operation that has ended, as the cell reported it."""

    def is_over(self, server: ServerId, turn: FencingToken) -> bool:
        """Tell whether the turn's operation has ended: its command waited in a buffer while the host was silent, and was given up."""
        return turn.operation_seq <= self._over.get(server, -1)

    def in_the_way(self, server: ServerId) -> bool:
        """Tell whether an earlier guest of this server must be destroyed first, and could not be yet."""
        return server in self._in_the_way

    def is_deleted(self, server: ServerId) -> bool:
        return server in self._deleted

    def gone(self, server: ServerId) -> None:
        """Note that the guest is gone, or that it belongs here."""
        self._in_the_way.pop(server, None)

    async def settle(self, server_turns: Iterable[ServerTurn]) -> tuple[ServerId, ...]:
        """Apply an answer, except for starts; returns the servers to start now (`convergence.py` explains the order)."""
        by_server = {each.server: each for each in server_turns}
        guests = await self._driver.guests()
        present = dict.fromkeys(await arrivals_at(self._driver), PowerState.SHUTDOWN) | dict(guests)
        plan = converge(present, self._journal.turns(), self._journal.running(), by_server.values())
        for each in by_server.values():
            if each.here:
                self.gone(each.server)
                if each.over is not None:
                    self._journal.counts(each.server, each.over)
                    self._over[each.server] = max(each.over, self._over.pop(each.server, -1))
            else:
                self._over.pop(each.server, None)
            if each.gone:
                self._deleted[each.server] = None
        while len(self._deleted) > DELETED_KEPT_MAX:
            del self._deleted[next(iter(self._deleted))]
        while len(self._over) > OVER_KEPT_MAX:
            del self._over[next(iter(self._over))]
        slots = asyncio.Semaphore(AT_ONCE)
        await asyncio.gather(*(self._destroy(by_server[server], slots) for server in plan.destroy))
        stays = self._in_the_way
        await asyncio.gather(
            *(self._journal.raise_turn(server, turn) for server, turn in plan.know if server not in stays)
        )
        self._journal.forget(server for server in plan.forget if server not in stays)
        return tuple(server for server in plan.start if server in guests)

    async def settle_in_lane(self, turn: ServerTurn, may_start: Callable[[], bool]) -> None:
        """Apply an answer about one server in its queue; start its guest if it was running and may still run."""
        for server in await self.settle((turn,)):
            if not may_start():
                return
            try:
                await self._driver.power_on(server)
            except HostFailed as problem:
                why = problem.private or problem.public
                _log.error("%s: %s was on and does not start: %s", self._host, server, why)

    async def _destroy(self, turn: ServerTurn, slots: asyncio.Semaphore) -> None:
        """Destroy guests; if one fails twice, it is tried again later, in its server's queue."""
        server = turn.server
        async with slots:
            _log.warning("%s: the guest of %s does not belong here any more and is destroyed", self._host, server)
            if await self._went(server):
                self.gone(server)
                return
            await self._clock.sleep(SECOND_TRY_S)
            if await self._went(server):
                self.gone(server)
                return
        self._in_the_way[server] = turn
        if server not in self._again:
            self._again[server] = asyncio.create_task(self._try_again(server))

    async def take_away(self, server: ServerId) -> None:
        """Destroy a guest that a slow driver made after the cell had reported the end of its operation."""
        turn = self._journal.turn_of(server)
        await self._destroy(ServerTurn(server, turn, here=False, gone=turn is None), asyncio.Semaphore())

    async def _went(self, server: ServerId) -> bool:
        try:
            async with asyncio.timeout(DESTROY_S):
                await self._driver.destroy_guest(server)
        except Exception as failure:  # noqa: BLE001 - a boundary: whatever a driver does, the others are settled
            why = reason_of(failure)
            _log.error("%s: the guest of %s must go and does not: %s", self._host, server, why)
            return False
        return True

    async def _try_again(self, server: ServerId) -> None:
        wait_s = AGAIN_FIRST_S
        try:
            while (turn := self._in_the_way.get(server)) is not None:
                await self._clock.sleep(wait_s)
                wait_s = min(wait_s * 2, AGAIN_MOST_S)
                self._lanes.submit(server, partial(self._settle_again, turn))
        finally:
            del self._again[server]

    async def _settle_again(self, turn: ServerTurn) -> None:
        if turn.server in self._in_the_way:
            await self.settle((turn,))
            if turn.server not in await self._driver.guests():
                self.gone(turn.server)

    async def stop(self) -> None:
        for task in list(self._again.values()):
            task.cancel()
        await asyncio.gather(*self._again.values(), return_exceptions=True)
