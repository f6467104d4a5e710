"""Executes commands through the driver, and cancels those that are not wanted any more, or that the host may not execute any more."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from moorage.agent.authority import Authority, AuthorityOver
from moorage.agent.command_answers import CommandAnswers
from moorage.agent.commands import Answer
from moorage.bus.command_messages import Command, Result
from moorage.bus.verbs import READS, Verb
from moorage.drivers.driver import Driver
from moorage.model.clock import Clock
from moorage.model.fencing_token import UNDO, FencingToken
from moorage.model.ids import ServerId
from moorage.model.parsed_messages import is_id
from moorage.model.tracing import SpanType, span

LEAST_S = 1.0
LEAST_DESTROY_S = 30.0
LOOK_EVERY_S = 0.1
"""How soon a suspension of the machine is noticed while a guest is being started."""


@dataclass
class RunningCommand:
    """A command that is being executed."""

    turn: FencingToken
    verb: str
    limit: asyncio.Timeout
    task: "asyncio.Task[Any]"
    dropped: bool = False
    """Whether the authority ended: then the command counts as never begun, and its sender sends it again."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    next_look: asyncio.TimerHandle | None = None

    def end(self) -> None:
        if self.next_look is not None:
            self.next_look.cancel()
        self.ended.set()


class CommandRunner:
    """Executes the commands of one host; at most one at a time for each server."""

    def __init__(
        self,
        driver: Driver,
        verbs: Mapping[str, Callable[[Driver, Command], Awaitable[Answer]]],
        clock: Clock,
        authority: Authority,
        answers: CommandAnswers,
        authority_over: Callable[[], None],
    ) -> None:
        """`authority_over`: called when it turns out that the host was suspended in the middle of a command."""
        self._driver = driver
        self._verbs = verbs
        self._clock = clock
        self._authority = authority
        self._answers = answers
        self._authority_over = authority_over
        self._running: dict[ServerId, RunningCommand] = {}

    def is_running(self, server: ServerId) -> bool:
        """Tell whether a command for this server is being executed."""
        return server in self._running

    def give_up(self) -> None:
        """Cancel all commands, because the authority ended; they count as never begun."""
        for doing in self._running.values():
            if not doing.dropped:  # only once: the authority may end again before a slow driver has stopped
                doing.dropped = True
                doing.task.cancel()

    async def wait_given_up(self, within_s: float) -> None:
        """Wait until all commands have ended, at most `within_s`: a driver may not stop."""
        if endings := [asyncio.ensure_future(each.ended.wait()) for each in self._running.values()]:
            await asyncio.wait(endings, timeout=within_s)

    def give_way(self, command: Command) -> None:
        """Cancel a command that would delay a destroy with a higher turn, as at its deadline: it is not wanted any more.

        The same applies to the upload of a copy that is dropped, and to the transfer of a guest whose move is aborted: both may take
        hours.
        """
        doing = self._running.get(command.server)
        if doing is None:
            return
        takes_back = doing.verb == Verb.SEND_GUEST and command.turn.phase == UNDO
        if command.verb not in (Verb.DESTROY_GUEST, Verb.DROP_SNAPSHOT) and not takes_back:
            return
        if doing.turn < command.turn and not doing.limit.expired():
            doing.limit.reschedule(asyncio.get_running_loop().time())

    async def perform(self, command: Command, ends: float) -> tuple[Result | None, bool | None]:
        """Execute a command. Returns its result, and whether the guest shall run from now on; no result if the authority ended."""
        verb = self._verbs.get(command.verb)
        if verb is None:
            return self._answers.refuse(command, "not_supported", f"no verb {command.verb}"), None
        if not (
            is_id(command.server) or (command.verb in READS and command.server == "")
        ):  # a question of the host itself
            return self._answers.refuse(command, "garbled", f"no server's id: {command.server!r}"), None
        task = asyncio.current_task()
        assert task is not None
        least_s = LEAST_DESTROY_S if command.verb == Verb.DESTROY_GUEST else LEAST_S
        limit = asyncio.timeout(max(ends - self._clock.monotonic(), least_s))
        doing = RunningCommand(command.turn, command.verb, limit, task)
        try:
            async with limit:
                if command.verb not in READS:
                    self._running[command.server] = doing
                if command.verb == Verb.START_GUEST:
                    self._watch(doing)
                with span(SpanType.DRIVE, command.verb):
                    answer, running = await verb(self._driver, command)
                self._running.pop(command.server, None)
            if command.verb == Verb.START_GUEST and not self._authority.held:
                # The machine stood still while it was being started, and may be taken for dead: as if it had been given up.
                self._authority_over()
                return None, None
        except AuthorityOver:
            self._running.pop(command.server, None)
            self._authority_over()
            return None, None
        except asyncio.CancelledError:
            if not doing.dropped or task.uncancel() > 0:
                raise
            return None, None
        except Exception as failure:  # noqa: BLE001 - a boundary: whatever a driver does, the conductor hears of it
            return self._answers.refusal_of(command, failure), None
        finally:
            self._running.pop(command.server, None)
            doing.end()
        return self._answers.done(command, answer), running

    def _watch(self, doing: RunningCommand) -> None:
        """Cancel a start that was under way when the machine was suspended, as soon as it resumes: otherwise it would continue."""
        if self._authority.held:
            doing.next_look = asyncio.get_running_loop().call_later(LOOK_EVERY_S, self._watch, doing)
        else:
            self._authority_over()
