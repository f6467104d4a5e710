"""Where a host says what it says: under its own name, and while a conductor of release 0.1.0 listens, where that one hears it too."""

from moorage.bus import legacy_subjects, subjects
from moorage.bus.command_messages import Command, Result
from moorage.bus.host_messages import AgentReturned, Heartbeat, HostReport
from moorage.bus.messages import encode
from moorage.bus.transport import Bus
from moorage.model.ids import CellId


class Outgoing:
    """Of one agent.  Until a conductor has spoken, nobody knows of what release they are: what is asked a second time is asked of both."""

    def __init__(self, bus: Bus, cell: CellId, host: str, *, earlier: bool = True) -> None:
        """`earlier`: whether there may be conductors of that release; the broker's permissions may leave no way to them."""
        self._bus = bus
        self._cell = cell
        self._host = host
        self._may_be_earlier = earlier
        self._earlier: bool | None = None if earlier else False
        """A conductor of release 0.1.0 has spoken to this agent, so it goes on to say all twice; None: none has spoken."""
        self._said = 0

    def note_conductor(self, knows_senders: bool) -> None:
        """A conductor spoke to us: does it hear hosts under their names?"""
        if not self._may_be_earlier:
            return
        if not knows_senders:
            self._earlier = True
        elif self._earlier is None:
            self._earlier = False

    async def publish(self, message: AgentReturned | Heartbeat | HostReport) -> None:
        kind, payload = KINDS[type(message)], encode(message)
        await self._bus.publish(subjects.from_host(self._cell, self._host, kind), payload)
        if self._earlier or (self._earlier is None and self._said):
            await self._bus.publish(legacy_subjects.of_cell(self._cell, kind), payload)
        self._said += 1

    async def answer(self, command: Command, answer: Result | bytes) -> None:
        """To who sent the command; bytes: an answer that was kept."""
        subject = legacy_subjects.result_for(self._cell, command.reply_to)
        if command.knows_senders:
            subject = subjects.result_from(self._cell, self._host, command.reply_to)
        await self._bus.publish(subject, answer if isinstance(answer, bytes) else encode(answer))


KINDS = {AgentReturned: subjects.RETURNED, Heartbeat: subjects.HEARTBEAT, HostReport: subjects.REPORT}
