"""Stops servers whose guests have ended by themselves: shut down from inside, crashed, or their process was killed (Nova's
`_sync_power_states`).

Without it a server stays ACTIVE although nothing runs, and may be neither started nor resized as a stopped one. What an
observation says may be old, and a host that was switched on again is about to start its guests. So a guest must have been off
for a while, its host must say so when it is asked, behind what it does with that guest already, and no operation may have begun
since. Then the server is stopped as if its owner had asked for it: its host forgets that the guest is to run.

A guest that runs although its server is stopped is left alone, and so is one that is paused or saved unexpectedly.
"""

import logging
from collections.abc import Mapping

import msgspec

from moorage.bus.agent_calls import HostAddress
from moorage.bus.guest_payloads import GuestNow
from moorage.bus.verbs import Verb
from moorage.model.clock import Clock
from moorage.model.errors import Conflict, NotFound, Problem, Unavailable
from moorage.model.guest import PowerState
from moorage.model.ids import ServerId
from moorage.model.principal import Principal
from moorage.model.server import Server, VmState
from moorage.operations.context import SagaContext
from moorage.operations.guest import power
from moorage.operations.steps import servers as records
from moorage.store.cell import server_queries
from moorage.store.region import servers as region_servers

NAME = "power_states"
RUNS = (VmState.ACTIVE, VmState.PAUSED)
ENDED = (PowerState.SHUTDOWN, PowerState.CRASHED)
SURE_AFTER_S = 10.0
"""How long a guest must have been off."""
LOOKED_AT_MAX = 500
"""Servers of one cell in one round."""

logger = logging.getLogger(__name__)


class PowerStatesDone(msgspec.Struct, frozen=True):
    begun: tuple[ServerId, ...] = ()
    waiting: tuple[str, ...] = ()
    """Cells that did not answer, and servers that are not stopped yet."""


class PowerStates:
    """Run by the leading conductor."""

    def __init__(self, context: SagaContext, clock: Clock) -> None:
        self._context, self._clock = context, clock
        self._since: Mapping[ServerId, float] = {}
        """Servers whose guests are off → when a round noticed that first."""

    async def run(self) -> PowerStatesDone:
        """Run one round: stop each server whose guest has ended."""
        begun, waiting, now = list[ServerId](), list[str](), self._clock.monotonic()
        found: list[Server] = []
        for cell in self._context.cells.ids:
            try:
                found += await self._context.cells[cell].read(
                    lambda tx: server_queries.in_power_states(tx, RUNS, ENDED, LOOKED_AT_MAX)
                )
            except Unavailable as out:
                logger.info("%s: cell %s: %s", NAME, cell, out)
                waiting.append(cell)
        self._since = {each.id: self._since.get(each.id, now) for each in found}
        for server in found:
            if now - self._since[server.id] >= SURE_AFTER_S and await self._stop(server):
                begun.append(server.id)
            else:
                waiting.append(server.id)
        return PowerStatesDone(tuple(begun), tuple(waiting))

    async def _stop(self, found: Server) -> bool:
        """Returns False when it is not certain that the guest has ended, or another operation holds the server."""
        where = await self._context.region.read(lambda tx: region_servers.find(tx, found.id))
        server = (await records.find(self._context, found.id)).server
        if where is None or where.operation is not None or server is None or server.vm_state not in RUNS:
            return False
        try:
            state = await self._state(server)
            if state is None or state not in ENDED:
                return False
            user = Principal(user=server.user, project=server.project)
            await power.begin(self._context, user, server, "stop", only_after=where.op_seq)
        except (Conflict, NotFound) as busy:
            logger.info("%s: server %s: %s", NAME, server.id, busy)
            return False
        except Problem as problem:
            logger.info("%s: whether the guest of server %s runs is not known: %s", NAME, server.id, problem)
            return False
        logger.warning("the guest of server %s has ended by itself (%s): the server is stopped", server.id, state.name)
        return True

    async def _state(self, server: Server) -> PowerState | None:
        """As its host says now. None: it is silent."""
        if server.host is None or server.cell is None or self._context.hosts.is_silent(server.host):
            return None
        at = HostAddress(server.cell, server.host)
        return (await self._context.hosts.ask(at, server.id, Verb.GUEST_POWER, None, GuestNow)).power_state
