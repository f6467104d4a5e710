"""Checks the sender of messages: a host's message is accepted only for that host.

The subject names the sender (`subjects.from_host`), and a broker with permissions lets a host publish only under its own name.  So a
message about another host or cell than its subject names is forged, or an agent's fault: it is ignored, counted and logged.

A host of release 0.1.0 uses subjects without a sender (`legacy_subjects`).  Its messages are accepted there, because its broker account
may use no others; an agent that does not know the receiver's release yet sends everything twice, and the second copy is ignored here.
"""

import logging
from collections.abc import Callable
from typing import TypeAlias

from moorage.bus import report_limits, subjects
from moorage.bus.command_messages import Result
from moorage.bus.host_messages import AgentReturned, Heartbeat, HostReport
from moorage.bus.messages import read
from moorage.bus.sender_shares import OF_REPORTS, HostShare, SenderShares
from moorage.model.clock import Clock

_log = logging.getLogger(__name__)

FromHost: TypeAlias = AgentReturned | Heartbeat | HostReport | Result
Forged: TypeAlias = Callable[[tuple[str, str] | None, str], None]
KEPT_MAX = 65_536
"""Limit of agents that are known to name themselves; beyond it, messages that the oldest send twice are processed twice, without harm."""
EXCESS_TOLD_MAX = 1_000
SAY_AGAIN_S = 60.0
"""How often the log repeats that messages are forged."""


class Senders:
    """Checks the senders for one receiver of hosts' messages."""

    def __init__(self, clock: Clock, forged: Forged | None = None, share: HostShare = OF_REPORTS) -> None:
        """`forged`: called for ignored messages, with the sender that its subject names, and the reason.  `share`: what each may send."""
        self._shares = SenderShares(share, clock.monotonic)
        self._excess_logged_at: dict[str, float] = {}
        self._clock = clock
        self._on_forged = forged
        self._named: dict[str, str] = {}
        """The agent (`boot`) of each host that last sent a message under its name."""
        self._logged_at = float("-inf")
        self.forged = 0
        """Number of ignored messages."""

    def read(self, subject: str, payload: bytes) -> FromHost | None:
        """Decode a host's message; None: it has no sender, is unknown to this release, forged, or was received under its sender's name already."""
        if not self._shares.admits(subject, len(payload)):
            self._leave_excess(subject)
            return None
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
            self._leave(subject, f"it claims to come from host {message.host!r} of cell {message.cell!r}")
            return None
        if agent and self._named.get(message.host) != agent:
            self._named.pop(message.host, None)
            self._named[message.host] = agent
            if len(self._named) > KEPT_MAX:
                del self._named[next(iter(self._named))]
        return message

    @property
    def excess(self) -> int:
        """Number of messages that were ignored unread, because their senders sent more than their share."""
        return self._shares.excess

    def _leave_excess(self, subject: str) -> None:
        sender, now = subjects.sender(subject), self._clock.monotonic()
        name = subject if sender is None else ".".join(sender)
        if now - self._excess_logged_at.get(name, float("-inf")) < SAY_AGAIN_S:
            return
        self._excess_logged_at[name] = now
        if len(self._excess_logged_at) > EXCESS_TOLD_MAX:
            del self._excess_logged_at[next(iter(self._excess_logged_at))]
        if self._on_forged is not None:
            self._on_forged(sender, "it sends more than a host may, and what is beyond that is ignored")
        _log.warning("messages on %s are ignored: more than one host may send (%d in all so far)", subject, self.excess)

    def _leave(self, subject: str, why: str) -> None:
        self.forged += 1
        if self._on_forged is not None:
            self._on_forged(subjects.sender(subject), why)
        now = self._clock.monotonic()
        if now - self._logged_at >= SAY_AGAIN_S:
            self._logged_at = now
            _log.warning("a message on %s is ignored: %s (%d such messages so far)", subject, why, self.forged)


def _agent(message: FromHost) -> str:
    """The agent's incarnation that sent it; empty: it is an answer, of which a repeat is recognised by turn and step."""
    match message:
        case Heartbeat() | HostReport():
            return message.boot
        case AgentReturned():
            return message.agent or message.boot
        case _:
            return ""
