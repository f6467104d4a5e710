"""Who said a message: what a host says is believed of that host alone.

The subject names the sender (`subjects.from_host`), and a broker with permissions lets a host publish under its own name only.  So a
message whose host or cell is another than its subject's is forged, or a fault of an agent: it is left lying, counted and logged.

A host of release 0.1.0 speaks under subjects that name nobody (`earlier_subjects`).  It is heard there, for its broker account has no
right to others; an agent that does not know yet whom it speaks to says all twice, and the second is left lying here.
"""

import logging
from collections.abc import Callable
from typing import TypeAlias

from moorage.bus import report_limits, subjects
from moorage.bus.command_messages import Result
from moorage.bus.host_messages import AgentReturned, Heartbeat, HostReport
from moorage.bus.messages import read
from moorage.model.clock import Clock

_log = logging.getLogger(__name__)

FromHost: TypeAlias = AgentReturned | Heartbeat | HostReport | Result
Forged: TypeAlias = Callable[[tuple[str, str] | None, str], None]
KEPT_MAX = 65_536
"""Agents that are remembered to name themselves; of more, what the oldest say twice is taken twice, which does no harm."""
SAY_AGAIN_S = 60.0
"""How often the log repeats that messages are forged."""


class Senders:
    """One for each who listens to hosts."""

    def __init__(self, clock: Clock, forged: Forged | None = None) -> None:
        """`forged`: is told of each message that is left lying: whom its subject names, and why."""
        self._clock = clock
        self._tell_forged = forged
        self._named: dict[str, str] = {}
        """The agent (`boot`) of each host that spoke last under its name."""
        self._said_at = float("-inf")
        self.forged = 0
        """Messages that were left lying."""

    def read(self, subject: str, payload: bytes) -> FromHost | None:
        """The message of a host; None: nobody's, not known to this version, forged, or heard already under its sender's name."""
        message = read(payload)
        if not isinstance(message, FromHost):
            if message is not None:
                self._leave(subject, f"hosts do not say {type(message).__name__}")
            return None
        if why := report_limits.refusal(message):
            self._leave(subject, why)
            return None
        named, agent = subjects.sender(subject), _agent(message)
        if named is None:
            return None if agent and self._named.get(message.host) == agent else message
        if named != (subjects.token(message.cell), subjects.token(message.host)):
            self._leave(subject, f"it says that it comes from host {message.host!r} of cell {message.cell!r}")
            return None
        if agent and self._named.get(message.host) != agent:
            self._named.pop(message.host, None)
            self._named[message.host] = agent
            if len(self._named) > KEPT_MAX:
                del self._named[next(iter(self._named))]
        return message

    def _leave(self, subject: str, why: str) -> None:
        self.forged += 1
        if self._tell_forged is not None:
            self._tell_forged(subjects.sender(subject), why)
        now = self._clock.monotonic()
        if now - self._said_at >= SAY_AGAIN_S:
            self._said_at = now
            _log.warning("a message on %s is left lying: %s (%d such messages so far)", subject, why, self.forged)


def _agent(message: FromHost) -> str:
    """Which life of an agent says it; empty: an answer, which is told twice by its turn and step."""
    match message:
        case Heartbeat() | HostReport():
            return message.boot
        case AgentReturned():
            return message.agent or message.boot
        case _:
            return ""
