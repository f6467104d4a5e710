"""Answers questions: verbs that change nothing that is recorded (`bus.verbs.READS`), from whoever may ask.

API and console processes may ask hosts and not order them, so what arrives where they publish is taken for a question only: its
verb has to be a read, and the one that its subject names.  It acknowledges nothing, and overtakes and ends no order.  Questions of
conductors, and of an earlier release, may come with the orders.
"""

import logging
from collections.abc import Awaitable, Callable

from moorage.agent.command_answers import CommandAnswers
from moorage.agent.command_runner import CommandRunner
from moorage.agent.journal import AgentJournal
from moorage.agent.report_subjects import Outgoing
from moorage.agent.server_queues import ServerQueues
from moorage.bus.command_messages import Command
from moorage.bus.host_messages import TurnOfServer
from moorage.bus.log_limiter import Seldom
from moorage.bus.messages import read
from moorage.bus.subjects import token
from moorage.bus.verbs import READS, Verb
from moorage.model.clock import Clock
from moorage.model.image_ticket import TicketBox

_log = logging.getLogger(__name__)


class HostQuestions:
    """The questions to one host."""

    def __init__(
        self,
        clock: Clock,
        journal: AgentJournal,
        lanes: ServerQueues,
        runner: CommandRunner,
        answers: CommandAnswers,
        outgoing: Outgoing,
        may_act: Callable[[], Awaitable[None]],
    ) -> None:
        """`may_act`: returns when the host may act."""
        self._clock, self._journal, self._lanes = clock, journal, lanes
        self._runner, self._answers, self._outgoing, self._may_act = runner, answers, outgoing, may_act
        self.tickets = TicketBox()
        self._no_question = Seldom()
        self._queued: set[tuple[str, str]] = set()

    async def on_message(self, subject: str, payload: bytes) -> None:
        """Queue a question; anything else that arrives here is ignored."""
        command = read(payload)
        if not isinstance(command, Command):
            return
        if command.verb not in READS or token(command.verb) != subject.rpartition(".")[2]:
            if self._no_question.due():
                _log.warning("%s on %s is no question, and ignored", command.verb, subject)
            return
        self.tickets.keep(command.tickets)
        key = command.server, command.step
        if key in self._queued:
            return
        left_s = 0.0 if command.left_s is None else command.left_s
        ends = self._clock.monotonic() + left_s

        async def job() -> None:
            try:
                await self._may_act()
                await self.answer(command, ends)
            finally:
                self._queued.discard(key)

        if self._lanes.submit(command.server, job):
            self._queued.add(key)
        else:
            _log.warning("too many commands wait, and %s is let lie", subject)

    async def answer(self, command: Command, ends: float) -> None:
        """Answer a question now. `ends`: monotonic time after which nobody waits for it."""
        if command.verb == Verb.SERVER_TURN:
            known = TurnOfServer(self._journal.turn_of(command.server))
            await self._outgoing.answer(command, self._answers.done(command, known))
        elif (found := (await self._runner.perform(command, ends))[0]) is not None:
            await self._outgoing.answer(command, found)
