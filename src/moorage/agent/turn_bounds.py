"""Bounds a turn: no operation's number is far ahead of what the cell knows of its server.

A host obeys the highest turn that it was ever given, so one forged turn would make it deaf to every order for that server.  A turn
that is more than `AHEAD_MAX` operations ahead of what the cell has told is ignored, and the cell is asked: a server that really
had so many operations, on other hosts say, is in its answer, and the order comes again.  What is forged within the bound an operator
takes back (`TurnReset`).
"""

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from moorage.bus.command_messages import Command
from moorage.bus.host_messages import NOT_TOLD_UP_TO, ServersOfHost
from moorage.bus.log_limiter import Seldom
from moorage.model.clock import Clock
from moorage.model.ids import ServerId

AHEAD_MAX = 1_000
TOLD_MAX = 10_000
"""Limit of remembered numbers; of a server that is dropped the cell is asked again."""
ASK_EVERY_S = 5.0

_log = logging.getLogger(__name__)


class TurnBounds:
    """What the cell has told one host of its servers' numbers."""

    def __init__(self, host: str, clock: Clock, ask: Callable[[], Awaitable[None]]) -> None:
        self._host, self._clock, self._ask = host, clock, ask
        self._newest: OrderedDict[ServerId, int] = OrderedDict()
        self._bounded = False
        """Whether the cell's release tells numbers; else nothing is bounded."""
        self._question_at = float("-inf")
        self._ahead = Seldom()

    def note(self, answer: ServersOfHost) -> None:
        """Take what an answer of the cell tells."""
        if answer.newest is None:
            return
        self._bounded = True
        for server, number in answer.newest.items():
            self._newest[server] = max(number, self._newest.pop(server, 0))
        while len(self._newest) > TOLD_MAX:
            self._newest.popitem(last=False)

    async def is_too_far(self, command: Command) -> bool:
        """Tell whether the command's turn is beyond the bound; then the cell is asked, at most every `ASK_EVERY_S`."""
        known = max(self._newest.get(command.server, 0), NOT_TOLD_UP_TO)
        if not self._bounded or command.turn.operation_seq <= known + AHEAD_MAX:
            return False
        if self._ahead.due():
            _log.warning(
                "%s: %s of %s is ignored: its operation would be number %d, and the cell knows of %d at most",
                self._host, command.verb, command.server, command.turn.operation_seq, known,
            )  # fmt: skip
        if self._clock.monotonic() - self._question_at >= ASK_EVERY_S:
            self._question_at = self._clock.monotonic()
            await self._ask()
        return True
