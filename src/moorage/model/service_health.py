"""How a service fares, as one process sees it (N19)."""

import msgspec


class CircuitSeen(msgspec.Struct, frozen=True):
    """Calls that a process does not make for now, because such calls kept failing."""

    neighbour: str
    calls: str = ""
    """`POST ports`; empty: all calls to that neighbour."""
    why: str = ""
    """What the last failure was."""
    failures: int = 0
    """In a row, so far."""
    asked_again_in_s: float = 0.0
    """When one call is let through to see; 0: it is on its way, or the next one will be it."""


class LeftAlone(msgspec.Struct, frozen=True):
    """One of them, and the process that sees it so."""

    process: str
    circuit: CircuitSeen
