"""The problems that a proof plants in steps."""

from moorage.model.errors import Problem, Unavailable, UnknownOutcome


def refusal() -> Problem:
    """The step says no."""
    return Problem("planted")


def without() -> Problem:
    """It says no, and what another attempt is to go without."""
    refused = refusal()
    refused.without = ("planted",)
    return refused


def lost_reply() -> Problem:
    """Nobody knows what came of it."""
    return UnknownOutcome("planted: no reply")


def outage() -> Problem:
    """What it needs is out of order."""
    return Unavailable("planted: out")


def hiccup() -> Problem:
    """An undo that fails once."""
    return Problem("planted: an undo that fails once")
