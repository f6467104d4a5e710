"""Calls to hosts, as values: the host's address, the context of a command, a call under way, and the meaning of a result."""

import asyncio
import re
from collections.abc import Callable

import msgspec

from moorage.bus.command_messages import EMPTY, Command, Result
from moorage.model.errors import HostFailed
from moorage.model.fencing_token import FencingToken
from moorage.model.ids import CellId, OperationId

HERE = "the host"
"""Replaces the host's name in texts that owners of servers read; drivers and older agents may name the host."""


class HostAddress(msgspec.Struct, frozen=True):
    """A host's cell and its name for people."""

    cell: CellId
    host: str


class CommandContext(msgspec.Struct, frozen=True):
    """The operation for which a host is called, and how long to wait."""

    operation: OperationId
    turn: FencingToken
    step: str
    patience_s: float = 60.0
    though_silent: bool = False
    """Call even a silent host, and wait for the whole patience."""
    request_id: str = ""
    until_done: bool = False
    """Whether a failed command is sent again with the same turn and step, and the host then tries it again."""
    unsure: bool = False
    """Whether an earlier try or executor may have sent the command: then a silent host may have done it."""


class PendingCall:
    """One command under way, and all callers in this process that wait for it."""

    def __init__(self, address: HostAddress, command: Command, fails_fast: bool, ends: float) -> None:
        self.address = address
        self.command = command
        self.fails_fast = fails_fast
        self.ends = ends
        """The deadline on our own clock; each sending tells the host the remaining time as a duration."""
        self.waiters: set[asyncio.Future[Result]] = set()
        self.timer: asyncio.TimerHandle | None = None
        self.again: Callable[[], None] | None = None
        """Sends the command again now."""

    def settle(self, result: Result | None, problem: Exception | None = None) -> None:
        for waiter in self.waiters:
            if waiter.done():
                continue
            if result is not None:
                waiter.set_result(result)
            elif problem is not None:
                waiter.set_exception(problem)


def payload_of(host: str, result: Result) -> msgspec.Raw:
    """Return the answer in a host's result. Raises HostFailed when the host could not execute the command."""
    if result.ok:
        return result.payload
    left = b"" if result.payload == EMPTY else bytes(result.payload)
    raise HostFailed(
        _unnamed(result.public, host) or "the host could not do it",
        private=f"{host}: {result.private}",
        code=result.code or None,
        left=left,
    )


def _unnamed(text: str, host: str) -> str:
    return re.sub(rf"(?<![\w.-])(the host |host )?{re.escape(host)}(?![\w-])", HERE, text)
