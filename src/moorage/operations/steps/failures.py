"""How a failed action is reported: with Nova's message, and with the cause for callers who may see details of events."""

import msgspec

from moorage.model.action import ActionEvent
from moorage.model.errors import Problem
from moorage.model.server import Fault, Server
from moorage.saga import Cause

DETAILS_CHARACTERS_MAX = 1000
FAULT_CHARACTERS_MAX = 255
LEDGER_START = '{"considered"'


def failed_event(
    name: str, now: int, host: str | None, cause: Cause | None, shown: Problem | None = None
) -> ActionEvent:
    """The event with which an action ends in Error.

    `shown` is the refusal as its caller got it, when its message differs from the cause's own.
    """
    return ActionEvent(
        name, now, now, "Error", host, details=None if cause is None else _details(cause.problem(), shown)
    )


def fault_of(problem: Problem, now: int) -> Fault:
    """The fault for the server's record."""
    return Fault(500, problem.public[:FAULT_CHARACTERS_MAX], now, problem.private)


def as_it_was(server: Server, cause: Cause | None, now: int) -> Server:
    """The record of a server that did not change; the cause is its fault. `cause` None: the operation was cancelled."""
    if cause is None:
        return msgspec.structs.replace(server, task_state=None)
    return msgspec.structs.replace(server, task_state=None, fault=fault_of(cause.problem(), now), updated_at=now)


def _details(cause: Problem, shown: Problem | None) -> str:
    """The message, and the cause behind it; each only once."""
    parts = [(shown or cause).public, cause.public, _first_line(cause.private)]
    text = ": ".join(part for part in dict.fromkeys(part.rstrip(".") for part in parts) if part)
    return text[:DETAILS_CHARACTERS_MAX]


def _first_line(private: str) -> str:
    """The rest, a decision record or a traceback, belongs to the operation's own account."""
    first = private.partition("\n")[0]
    return "" if first.startswith((LEDGER_START, "Traceback")) else first
