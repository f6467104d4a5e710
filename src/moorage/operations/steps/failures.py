"""How a failed action is told: in Nova's sentence, with the cause behind it for whoever may see details of events."""

from moorage.model.action import Event
from moorage.model.errors import Problem
from moorage.saga import Cause

DETAILS_CHARACTERS_MAX = 1000
LEDGER_START = '{"considered"'


def failed_event(name: str, now: int, host: str | None, cause: Cause | None, said: Problem | None = None) -> Event:
    """The event with which an action ended in Error.

    `said` is the refusal as its asker was told it, where it was told in other words than the cause's own.
    """
    return Event(name, now, now, "Error", host, details=None if cause is None else _details(cause.problem(), said))


def _details(cause: Problem, said: Problem | None) -> str:
    """The sentence that was said, and what is behind it; each only once."""
    parts = [(said or cause).public, cause.public, _first_line(cause.private)]
    told = ": ".join(part for part in dict.fromkeys(part.rstrip(".") for part in parts) if part)
    return told[:DETAILS_CHARACTERS_MAX]


def _first_line(private: str) -> str:
    """A ledger or a traceback is for the account of the operation."""
    first = private.partition("\n")[0]
    return "" if first.startswith((LEDGER_START, "Traceback")) else first
