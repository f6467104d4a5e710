"""Checks whether a command may be executed: compares its fencing token with what the host knows of its server (RULES §10)."""

from moorage.agent.command_answers import CommandAnswers
from moorage.agent.guest_reconciliation import Settler
from moorage.agent.journal import AgentJournal
from moorage.bus.command_messages import Command, Result, ResultKey
from moorage.bus.verbs import Verb
from moorage.model.clock import Clock
from moorage.model.fencing_token import FencingToken


class CommandChecks:
    """Checks the commands of one host."""

    def __init__(self, journal: AgentJournal, settler: Settler, clock: Clock, answers: CommandAnswers) -> None:
        self._journal = journal
        self._settler = settler
        self._clock = clock
        self._answers = answers

    def objection(
        self, key: ResultKey, command: Command, ends: float, to_go: FencingToken | None
    ) -> Result | bytes | None:
        """Return the result of a command that is not executed: a refusal, or the stored result of a repeat; None: execute it.

        `ends`: monotonic time after which no caller waits for it. `to_go`: the turn of a waiting destroy, if there is one.
        """
        known = self._journal.turn_of(command.server)
        if max(command.turn, known or command.turn, to_go or command.turn) > command.turn:
            return self._answers.refuse(command, "turn_is_past", f"{command.turn} came after {known}, or is overtaken")
        if self._settler.is_over(command.server, command.turn):
            return self._answers.refuse(command, "turn_is_past", f"the operation of {command.turn} is over")
        if known is None and self._settler.is_deleted(command.server) and command.verb != Verb.DESTROY_GUEST:
            return self._answers.refuse(command, "turn_is_past", "the server is deleted")
        if (kept := self._journal.result_of(key)) is not None:
            return kept
        if command.verb != Verb.DESTROY_GUEST:
            if self._clock.monotonic() > ends:
                return self._answers.refuse(command, "too_late", "the deadline was over")
            if self._settler.in_the_way(command.server):
                why = "an earlier guest of this server must go first, and does not"
                return self._answers.refuse(command, "guest_in_the_way", why)
        return None

    async def begin_turn(self, command: Command) -> None:
        """Write the command's turn; it is on the disk when this returns."""
        starts = command.verb == Verb.START_GUEST
        if self._journal.turn_of(command.server) != command.turn:
            await self._journal.raise_turn(command.server, command.turn, starts=starts)
        elif starts:  # a start in a move, in the turn in which the guest was taken
            await self._journal.begin_start(command.server)
