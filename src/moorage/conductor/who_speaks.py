"""One agent speaks for a host.  A second one of its name (a cloned image, a machine that was replaced and returned) is refused.

An agent names each of its lives.  A name that we do not know is a restart, or a second agent: the one that we know is asked for its
report, and if it answers, the other is refused, and both sides say so.  If it does not answer, the new one speaks from then on.  The
cell's database keeps who it is, so that all conductors of a cell agree; it is written when it changes, and never by a beat.
"""

import logging

from moorage.bus import subjects
from moorage.bus.carrier import Bus
from moorage.bus.messages import AgentRefused, ReportWanted, encode
from moorage.conductor.known_hosts import NEVER, KnownHost
from moorage.model.clock import Clock
from moorage.model.ids import CellId
from moorage.sql import Database
from moorage.store.cell import hosts as cell_hosts

ANSWERS_WITHIN_S = 1.5
"""An agent that lives answers a question within this time."""
RIVAL_KEPT_S = 10.0

logger = logging.getLogger(__name__)


async def note(database: Database, known: KnownHost) -> None:
    """Keep what a person should look at where every process sees it; written when it changed."""
    seen = known.troubles()
    if seen != known.noted:
        await database.write(lambda tx: cell_hosts.note_troubles(tx, known.host, seen))
        known.noted = seen


class WhoSpeaks:
    """The door of one cell: which agent's messages are taken."""

    def __init__(self, cell: CellId, database: Database, bus: Bus, clock: Clock) -> None:
        self._cell = cell
        self._database = database
        self._bus = bus
        self._clock = clock

    async def admits(self, known: KnownHost, agent: str) -> bool:
        """Whether this agent speaks for the host.  If it is another one, who does is asked, and the answer decides next time."""
        if known.agent == agent and known.confirmed:
            return True
        if known.agent in ("", agent):
            return await self._agree(known, agent, was=agent)
        return await self._challenge(known, agent)

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

    async def _challenge(self, known: KnownHost, agent: str) -> bool:
        if known.silent:  # it has not been heard for long; should it return, it will be the second
            return await self._agree(known, agent, was=known.agent)
        now = self._clock.monotonic()
        if known.rival != agent:
            if known.rival and now - known.rival_heard < RIVAL_KEPT_S:
                return False  # one after the other
            known.rival, known.rival_heard, known.challenged = agent, now, now
            await self._bus.publish(subjects.to_host(self._cell, known.host), encode(ReportWanted(known.host)))
            return False
        known.rival_heard = now
        if now - known.challenged < ANSWERS_WITHIN_S:
            return False
        if known.heard <= known.challenged:
            logger.warning("host %s: its agent does not answer, and another one speaks for it from now on", known.host)
            return await self._agree(known, agent, was=known.agent)
        if (speaks := await self._database.read(lambda tx: cell_hosts.agent_of(tx, known.host))) not in (
            "",
            known.agent,
        ):
            known.begin(speaks)  # another conductor knows better
            return speaks == agent
        known.rival, known.challenged = "", NEVER
        why = f"another agent speaks for host {known.host} already, and answers: two machines have one name"
        if known.refused != agent:
            logger.error("cell %s: %s; the second one is refused", self._cell, why)
        known.refused, known.refused_at = agent, int(self._clock.now() * 1_000_000)
        await self._bus.publish(subjects.to_host(self._cell, known.host), encode(AgentRefused(known.host, agent, why)))
        await note(self._database, known)
        return False
