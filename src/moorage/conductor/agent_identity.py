"""One agent may report for a host. A second agent with the host's name (a cloned image, a machine that was replaced and
returned) is refused.

An agent takes a new name with each start. An unknown name is a restart, or a second agent: the known agent is asked for
its report. If it answers, the other one is refused, and both sides report it. If it does not answer, a restarted agent
takes over: an agent's journal names its earlier starts on the same machine. An agent of another machine has to wait
until the first one counts as silent, because that one may be cut off or suspended, and until its authority is over its
guests run and it executes commands (RULES §23). The cell's database keeps the name of the agent, so that all conductors
of a cell agree; it is written when it changes, and never by a heartbeat.
"""

import logging
from collections.abc import Callable

from moorage.bus import subjects
from moorage.bus.host_messages import AgentRefused, AgentReturned, Heartbeat, HostReport, ReportWanted
from moorage.bus.messages import encode
from moorage.bus.transport import Bus
from moorage.conductor.known_hosts import NEVER, KnownHost
from moorage.model.clock import Clock
from moorage.model.ids import CellId
from moorage.sql import Database
from moorage.store.cell import hosts as cell_hosts

ANSWERS_WITHIN_S = 1.5
"""A living agent answers a question within this time."""
RIVAL_KEPT_S = 10.0
GIVEN_UP_WITHIN_S = 5.0
"""How long a host must be silent before another machine takes over: boots on it move to other hosts first, so that the
new machine does not get their commands.
"""

logger = logging.getLogger(__name__)


async def note(database: Database, known: KnownHost) -> None:
    """Write what an operator should see to the cell's database, where every process reads it; only when it changed."""
    troubles = known.troubles()
    if troubles != known.noted:
        await database.write(lambda tx: cell_hosts.note_troubles(tx, known.host, troubles))
        known.noted = troubles


class AgentAdmission:
    """Decides for one cell which agent's messages are accepted."""

    def __init__(
        self,
        cell: CellId,
        database: Database,
        bus: Bus,
        clock: Clock,
        *,
        reports_in_hand: Callable[[], int] = lambda: 0,
    ) -> None:
        """`reports_in_hand`: how many reports are being processed; an answer that has arrived may still wait behind
        them.
        """
        self._cell = cell
        self._database = database
        self._bus = bus
        self._clock = clock
        self._reports_in_hand = reports_in_hand

    async def admits(
        self,
        known: KnownHost,
        agent: str,
        replaces: tuple[str, ...] | None = (),
        *,
        by: type[AgentReturned | Heartbeat | HostReport] = AgentReturned,
    ) -> bool:
        """Whether this agent may report for the host. If another one does, that one is asked, and its answer decides
        next time.

        `replaces`: the agents that ran earlier on its machine; None: its release does not tell, so it is taken for a
        restart. `by`: the message. A heartbeat has no field for `replaces`, so an agent that only sends heartbeats is
        asked for its report.
        """
        if known.agent == agent and known.confirmed:
            return True
        if known.agent in ("", agent):
            return await self._agree(known, agent, expected=agent)
        restart = replaces is None or known.agent in replaces
        if await self._gives_way(known, agent, restart=restart, in_hand=by is HostReport):
            return await self._agree(known, agent, expected=known.agent)
        if (
            by is Heartbeat
            and known.agent != agent
            and (known.silent or (known.rival == agent and known.rival_at > known.challenged))
        ):
            await self._want_report(known)
        return known.agent == agent

    async def left(self, known: KnownHost, agent: str) -> None:
        """The agent stops, and says so: the next one need not wait."""
        if known.agent == agent:
            known.agent, known.confirmed = "", False
            await self._database.write(lambda tx: cell_hosts.agent_left(tx, known.host, agent))

    async def _agree(self, known: KnownHost, agent: str, expected: str) -> bool:
        """Write it where all conductors of the cell see it; the first one wins."""
        now_speaks = await self._database.write(lambda tx: cell_hosts.take_agent(tx, known.host, agent, expected))
        speaks = now_speaks or agent
        if known.agent != speaks:
            known.begin(speaks)
        known.confirmed = bool(now_speaks)
        return speaks == agent

    async def _gives_way(self, known: KnownHost, agent: str, *, restart: bool, in_hand: bool) -> bool:
        """Whether the host's agent has stopped, so that this agent may take over.

        `restart`: both are of the same machine. `in_hand`: one of the reports that are being processed is this agent's.
        """
        now = self._clock.monotonic()
        if known.silent:  # it has been silent for long; if it returns, it will be the second one
            return restart or now - known.silent_since >= GIVEN_UP_WITHIN_S
        if known.rival != agent:
            if known.rival and now - known.rival_at < RIVAL_KEPT_S:
                return False  # one takeover at a time
            known.rival, known.rival_at, known.challenged = agent, now, now
            await self._want_report(known)
            return False
        known.rival_at = now
        if now - known.challenged < ANSWERS_WITHIN_S:
            return False
        unheard = known.heard <= known.challenged
        if unheard and self._reports_in_hand() > in_hand:
            return False  # the database is slow: it may have answered long ago
        speaks = await self._database.read(lambda tx: cell_hosts.agent_of(tx, known.host))
        if speaks not in ("", known.agent):
            known.begin(speaks)  # another conductor has newer information
            return False
        if unheard:
            if restart:
                logger.warning(
                    "host %s: its agent does not answer; another agent reports for it from now on", known.host
                )
            return restart  # of another machine: not before the first one has been silent for so long that it may no longer act
        await self._refuse(known, agent)
        return False

    async def _refuse(self, known: KnownHost, agent: str) -> None:
        known.rival, known.challenged = "", NEVER
        why = f"another agent reports for host {known.host} and answers: two machines have the same name"
        if known.refused != agent:
            logger.error("cell %s: %s; the second one is refused", self._cell, why)
        known.refused, known.refused_at = agent, int(self._clock.now() * 1_000_000)
        await self._bus.publish(subjects.to_host(self._cell, known.host), encode(AgentRefused(known.host, agent, why)))
        await note(self._database, known)

    async def _want_report(self, known: KnownHost) -> None:
        await self._bus.publish(
            subjects.to_host(self._cell, known.host), encode(ReportWanted(known.host, knows_senders=True))
        )
