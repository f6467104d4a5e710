"""One agent speaks for a host.  A second one of its name (a cloned image, a machine that was replaced and returned) is refused.

An agent names each of its lives.  A name that we do not know is a restart, or a second agent: the one that we know is asked for its
report, and if it answers, the other is refused, and both sides say so.  If it does not answer, a restart speaks from then on: an
agent's journal names the lives before it on the same machine.  An agent of another machine has to wait until the first one counts as
silent: it may only be cut off or stand still, and until its authority is over its guests run and it obeys (RULES §23).  The cell's
database keeps who speaks, so that all conductors of a cell agree; it is written when it changes, and never by a beat.
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
"""An agent that lives answers a question within this time."""
RIVAL_KEPT_S = 10.0
GIVEN_UP_WITHIN_S = 5.0
"""After a host was found silent: boots on it go on elsewhere, and a machine that comes in that moment must not be told of them."""

logger = logging.getLogger(__name__)


async def note(database: Database, known: KnownHost) -> None:
    """Keep what a person should look at where every process sees it; written when it changed."""
    seen = known.troubles()
    if seen != known.noted:
        await database.write(lambda tx: cell_hosts.note_troubles(tx, known.host, seen))
        known.noted = seen


class AgentAdmission:
    """The door of one cell: which agent's messages are taken."""

    def __init__(
        self,
        cell: CellId,
        database: Database,
        bus: Bus,
        clock: Clock,
        *,
        reports_in_hand: Callable[[], int] = lambda: 0,
    ) -> None:
        """`reports_in_hand`: how many are being taken; an answer that arrived may still wait in line behind them."""
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
        """Whether this agent speaks for the host.  If it is another one, who does is asked, and the answer decides next time.

        `replaces`: the agents that ran on its machine before it; None: its release does not say, and it is taken for a restart.
        `by`: the message.  A beat has no place for `replaces`, so who only beats is asked for its report, which has.
        """
        if known.agent == agent and known.confirmed:
            return True
        if known.agent in ("", agent):
            return await self._agree(known, agent, was=agent)
        restart = replaces is None or known.agent in replaces
        if await self._gives_way(known, agent, restart=restart, in_hand=by is HostReport):
            return await self._agree(known, agent, was=known.agent)
        if (
            by is Heartbeat
            and known.agent != agent
            and (known.silent or (known.rival == agent and known.rival_heard > known.challenged))
        ):
            await self._want_report(known)
        return known.agent == agent

    async def left(self, known: KnownHost, agent: str) -> None:
        """It stops, and says so: the next one need not wait."""
        if known.agent == agent:
            known.agent, known.confirmed = "", False
            await self._database.write(lambda tx: cell_hosts.agent_left(tx, known.host, agent))

    async def _agree(self, known: KnownHost, agent: str, was: str) -> bool:
        """Written where all conductors of the cell see it; who was first speaks."""
        now_speaks = await self._database.write(lambda tx: cell_hosts.take_agent(tx, known.host, agent, was))
        speaks = now_speaks or agent
        if known.agent != speaks:
            known.begin(speaks)
        known.confirmed = bool(now_speaks)
        return speaks == agent

    async def _gives_way(self, known: KnownHost, agent: str, *, restart: bool, in_hand: bool) -> bool:
        """Whether who speaks for the host does not any more, so that this agent may.

        `restart`: of the same machine.  `in_hand`: one of the reports that are being taken is this agent's.
        """
        now = self._clock.monotonic()
        if known.silent:  # it has not been heard for long; should it return, it will be the second
            return restart or now - known.silent_since >= GIVEN_UP_WITHIN_S
        if known.rival != agent:
            if known.rival and now - known.rival_heard < RIVAL_KEPT_S:
                return False  # one after the other
            known.rival, known.rival_heard, known.challenged = agent, now, now
            await self._want_report(known)
            return False
        known.rival_heard = now
        if now - known.challenged < ANSWERS_WITHIN_S:
            return False
        unheard = known.heard <= known.challenged
        if unheard and self._reports_in_hand() > in_hand:
            return False  # with a slow database: it may have answered long ago
        speaks = await self._database.read(lambda tx: cell_hosts.agent_of(tx, known.host))
        if speaks not in ("", known.agent):
            known.begin(speaks)  # another conductor knows better
            return False
        if unheard:
            if restart:
                logger.warning(
                    "host %s: its agent does not answer, and another one speaks for it from now on", known.host
                )
            return restart  # of another machine: not before the first one is silent for so long that it may not act
        await self._refuse(known, agent)
        return False

    async def _refuse(self, known: KnownHost, agent: str) -> None:
        known.rival, known.challenged = "", NEVER
        why = f"another agent speaks for host {known.host} already, and answers: two machines have one name"
        if known.refused != agent:
            logger.error("cell %s: %s; the second one is refused", self._cell, why)
        known.refused, known.refused_at = agent, int(self._clock.now() * 1_000_000)
        await self._bus.publish(subjects.to_host(self._cell, known.host), encode(AgentRefused(known.host, agent, why)))
        await note(self._database, known)

    async def _want_report(self, known: KnownHost) -> None:
        await self._bus.publish(
            subjects.to_host(self._cell, known.host), encode(ReportWanted(known.host, knows_senders=True))
        )
