"""Stops servers whose guests are in a power state that their own state forbids (Nova's `_sync_power_states`).

Guests end by themselves: shut down from inside, crashed, or their process was killed. Without these rounds such a server
stays ACTIVE although nothing runs, and may be neither started nor resized as a stopped one. And somebody may start the
guest of a stopped server past Moorage, with the tools of its hypervisor.

What an observation says may be old, and a host that was switched on again is about to start its guests. So it must have
been so for a while, the host must say so when it is asked, behind what it does with that guest already, and no operation
may have begun since. Then the server is stopped as if its owner had asked for it: its host forgets that the guest is to run.

A guest that is paused or saved unexpectedly is left alone, and so is a saved one of a stopped server.
"""

import logging
from collections.abc import Iterable, Mapping
from functools import partial

import msgspec

from moorage.bus.agent_calls import HostAddress
from moorage.bus.guest_payloads import GuestNow
from moorage.bus.verbs import Verb
from moorage.model.clock import Clock
from moorage.model.errors import Conflict, NotFound, Problem, Unavailable
from moorage.model.guest import PowerState
from moorage.model.ids import CellId, ServerId
from moorage.model.principal import Principal
from moorage.model.server import Server, VmState
from moorage.operations.context import SagaContext
from moorage.operations.guest import power
from moorage.operations.steps import servers as records
from moorage.store.cell import server_queries
from moorage.store.region import servers as region_servers

NAME = "power_states"
ON = (PowerState.RUNNING, PowerState.PAUSED)
ENDED = (PowerState.SHUTDOWN, PowerState.CRASHED)
FORBIDDEN: Mapping[VmState, tuple[PowerState, ...]] = {
    VmState.ACTIVE: ENDED,
    VmState.PAUSED: ENDED,
    VmState.STOPPED: ON,
}
"""State of a server → power states that its guest may not have. The store's query says the same (`IN_WRONG_POWER_STATE`)."""
SURE_AFTER_S = 10.0
"""How long a guest must have been in that power state."""
LOOKED_AT_MAX = 500
"""Servers of one cell in one round; the next round goes on behind them."""

logger = logging.getLogger(__name__)


class PowerStatesDone(msgspec.Struct, frozen=True):
    begun: tuple[ServerId, ...] = ()
    waiting: tuple[str, ...] = ()
    """Cells that did not answer, and servers that are not stopped yet."""


class _Findings:
    """What the rounds found in one cell."""

    def __init__(self) -> None:
        self.after = ""
        """The server, by id, behind which the next round looks."""
        self.since: Mapping[ServerId, float] = {}
        """Servers in a wrong power state → when a round noticed that first."""

    def found(self, servers: Iterable[Server], now: float) -> None:
        """Note a round's servers, which follow `after`. Those that are not among them any more are forgotten."""
        ids = [server.id for server in servers]
        last = ids[-1] if len(ids) == LOOKED_AT_MAX else None
        elsewhere = {
            each: since
            for each, since in self.since.items()
            if each <= self.after or (last is not None and each > last)
        }
        self.since = elsewhere | {each: self.since.get(each, now) for each in ids}
        self.after = last or ""


class PowerStates:
    """Run by the leading conductor."""

    def __init__(self, context: SagaContext, clock: Clock) -> None:
        self._context, self._clock = context, clock
        self._findings: dict[CellId, _Findings] = {}

    async def run(self) -> PowerStatesDone:
        """Run one round: stop each server whose guest is in a power state that its own state forbids."""
        begun, waiting, now = list[ServerId](), list[str](), self._clock.monotonic()
        unanswered = set[str]()
        """Hosts that did not answer in this round: they are not waited for once more."""
        for cell in self._context.cells.ids:
            findings = self._findings.setdefault(cell, _Findings())
            try:
                found = await self._context.cells[cell].read(
                    partial(server_queries.in_wrong_power_state, after=findings.after, limit=LOOKED_AT_MAX)
                )
            except Unavailable as out:
                logger.info("%s: cell %s: %s", NAME, cell, out)
                waiting.append(cell)
                continue
            findings.found(found, now)
            for server in found:
                sure = now - findings.since[server.id] >= SURE_AFTER_S and server.host not in unanswered
                if sure and await self._stop(server, unanswered):
                    begun.append(server.id)
                else:
                    waiting.append(server.id)
        return PowerStatesDone(tuple(begun), tuple(waiting))

    async def _stop(self, found: Server, unanswered: set[str]) -> bool:
        """Returns False when it is not certain that the power state is wrong, or another operation holds the server."""
        where = await self._context.region.read(lambda tx: region_servers.find(tx, found.id))
        located = await records.find(self._context, found.id)
        server = located.server
        if located.judges_nothing:
            return False
        if where is None or where.operation is not None or server is None or server.vm_state not in FORBIDDEN:
            return False
        try:
            state = await self._state(server)
            if state is None or state not in FORBIDDEN[server.vm_state]:
                return False
            user = Principal(user=server.user, project=server.project)
            await power.begin(self._context, user, server, "stop", only_after=where.op_seq)
        except (Conflict, NotFound) as busy:
            logger.info("%s: server %s: %s", NAME, server.id, busy)
            return False
        except Problem as problem:
            logger.info("%s: whether the guest of server %s runs is not known: %s", NAME, server.id, problem)
            if isinstance(problem, Unavailable) and server.host is not None:
                unanswered.add(server.host)
            return False
        what = "has ended by itself" if state in ENDED else "runs although its server is stopped"
        logger.warning("the guest of server %s %s (%s): the server is stopped", server.id, what, state.name)
        return True

    async def _state(self, server: Server) -> PowerState | None:
        """As its host says now. None: it is silent."""
        if server.host is None or server.cell is None or self._context.hosts.is_silent(server.host):
            return None
        at = HostAddress(server.cell, server.host)
        return (await self._context.hosts.ask(at, server.id, Verb.GUEST_POWER, None, GuestNow)).power_state
