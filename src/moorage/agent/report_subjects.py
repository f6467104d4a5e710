"""Chooses the subjects of a host's messages: those with its own name, and those of release 0.1.0 while a conductor of it subscribes."""

from moorage.bus import legacy_subjects, subjects
from moorage.bus.command_messages import Command, Result
from moorage.bus.host_messages import AgentReturned, Heartbeat, HostReport
from moorage.bus.messages import encode
from moorage.bus.transport import Bus
from moorage.model.ids import CellId


class Outgoing:
    """Publishes the messages of one agent.  Until a conductor has sent a message, its release is not known: a repeated question is
    published on both kinds of subjects."""

    def __init__(self, bus: Bus, cell: CellId, host: str, *, earlier: bool = True) -> None:
        """`earlier`: whether there may be conductors of that release, and the broker's permissions allow their subjects."""
        self._bus = bus
        self._cell = cell
        self._host = host
        self._may_be_earlier = earlier
        self._earlier: bool | None = None if earlier else False
        """Whether a conductor of release 0.1.0 has sent a message, so that everything is published twice; None: no message has come."""
        self._published = 0

    def note_conductor(self, knows_senders: bool) -> None:
        """Note whether a conductor that sent a message receives hosts' messages under their names."""
        if not self._may_be_earlier:
            return
        if not knows_senders:
            self._earlier = True
        elif self._earlier is None:
            self._earlier = False

    async def publish(self, message: AgentReturned | Heartbeat | HostReport) -> None:
        kind, payload = KINDS[type(message)], encode(message)
        await self._bus.publish(subjects.from_host(self._cell, self._host, kind), payload)
        if self._earlier or (self._earlier is None and self._published):
            await self._bus.publish(legacy_subjects.of_cell(self._cell, kind), payload)
        self._published += 1

    async def answer(self, command: Command, answer: Result | bytes) -> None:
        """Send a result to the sender of the command; bytes: a stored result."""
        subject = legacy_subjects.result_for(self._cell, command.reply_to)
        if command.knows_senders:
            subject = subjects.result_from(self._cell, self._host, command.reply_to)
        await self._bus.publish(subject, answer if isinstance(answer, bytes) else encode(answer))


KINDS = {AgentReturned: subjects.RETURNED, Heartbeat: subjects.HEARTBEAT, HostReport: subjects.REPORT}
