"""Calls to hosts, as values: where a host is, on whose behalf it is called, a call under way, and what a result means."""

import asyncio
import re
from collections.abc import Callable

import msgspec

from moorage.bus.command_messages import EMPTY, Command, Result
from moorage.model.errors import HostFailed
from moorage.model.fencing_token import FencingToken
from moorage.model.ids import CellId, OperationId

HERE = "the host"
"""What stands for its own name in what a host says to owners of servers; drivers and older agents may name it."""


class HostAddress(msgspec.Struct, frozen=True):
    """Where a host is: its cell and the name people know it by."""

    cell: CellId
    host: str


class CommandContext(msgspec.Struct, frozen=True):
    """On whose behalf a host is called, and for how long."""

    operation: OperationId
    turn: FencingToken
    step: str
    patience_s: float = 60.0
    though_silent: bool = False
    """Call even a host without heartbeats, and wait all of the patience."""
    request_id: str = ""
    until_done: bool = False
    """What fails is asked again in the same turn and step, and is to be tried anew then."""


class PendingCall:
    """One command under way, and everybody in this process who waits for it."""

    def __init__(self, address: HostAddress, command: Command, fails_fast: bool, ends: float) -> None:
        self.address = address
        self.command = command
        self.fails_fast = fails_fast
        self.ends = ends
        """On our own clock: how long the host is given is said with each sending, as a duration."""
        self.waiters: set[asyncio.Future[Result]] = set()
        self.timer: asyncio.TimerHandle | None = None
        self.again: Callable[[], None] | None = None
        """Sends it again, now."""

    def settle(self, result: Result | None, problem: Exception | None = None) -> None:
        for waiter in self.waiters:
            if waiter.done():
                continue
            if result is not None:
                waiter.set_result(result)
            elif problem is not None:
                waiter.set_exception(problem)


def payload_of(host: str, result: Result) -> msgspec.Raw:
    """The answer in a host's result. Raises HostFailed when the host could not do what it was asked."""
    if result.ok:
        return result.payload
    left = b"" if result.payload == EMPTY else bytes(result.payload)
    raise HostFailed(
        _unnamed(result.public, host) or "the host could not do it",
        private=f"{host}: {result.private}",
        code=result.code or None,
        left=left,
    )


def _unnamed(said: str, host: str) -> str:
    return re.sub(rf"(?<![\w.-])(the host |host )?{re.escape(host)}(?![\w-])", HERE, said)
