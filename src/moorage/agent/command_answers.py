"""Builds a host's results of commands."""

import logging

import msgspec

from moorage.agent.legacy_ports import Plumbing
from moorage.bus.command_messages import EMPTY, Command, Result
from moorage.bus.messages import pack
from moorage.model.errors import HostFailed
from moorage.model.ids import CellId

_log = logging.getLogger(__name__)


class CommandAnswers:
    """Builds the results of one host."""

    def __init__(self, host: str, cell: CellId, plumbing: Plumbing | None) -> None:
        self._host = host
        self._cell = cell
        self._plumbing = plumbing

    def done(self, command: Command, answer: msgspec.Struct) -> Result:
        """Build the result of a command that was executed; `answer` is that of the verb."""
        return Result(
            self._host,
            self._cell,
            command.server,
            command.turn,
            command.step,
            True,
            payload=pack(answer),
            operation=command.operation,
        )

    def refusal_of(self, command: Command, failure: Exception) -> Result:
        """Build the result of a driver's failure, of any kind, so that the conductor learns of it."""
        if isinstance(failure, HostFailed):
            return self.refuse(command, failure.code, failure.private, failure.public)
        if isinstance(failure, TimeoutError):
            why = "the driver had not finished at the deadline, or before a destroy overtook it"
            return self.refuse(command, "host_timed_out", why)
        if isinstance(failure, msgspec.MsgspecError):
            return self.refuse(command, "garbled", str(failure))
        _log.error("%s: %s of %s failed", self._host, command.verb, command.server, exc_info=failure)
        return self.refuse(command, "driver_broke", f"{type(failure).__name__}: {failure}")

    def refuse(self, command: Command, code: str, private: str, public: str = "the host could not do it") -> Result:
        """Build a refusal. `code`: the kind of problem; `private`: the reason, for operators."""
        left = None if self._plumbing is None else self._plumbing.take_left(command.server)
        return Result(
            self._host,
            self._cell,
            command.server,
            command.turn,
            command.step,
            False,
            code,
            public,
            private,
            payload=EMPTY if left is None else pack(left),
            operation=command.operation,
        )
