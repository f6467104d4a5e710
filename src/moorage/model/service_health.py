"""The health of a service, as one process sees it (N19)."""

import msgspec


class CircuitSeen(msgspec.Struct, frozen=True):
    """An open circuit: calls that a process does not make at present, because such calls kept failing."""

    neighbour: str
    calls: str = ""
    """`POST ports`; empty: all calls to the service."""
    why: str = ""
    """What the last failure was."""
    failures: int = 0
    """In a row, so far."""
    asked_again_in_s: float = 0.0
    """Seconds until one call is let through as a probe; 0: the probe is under way, or the next call will be it."""


class LeftAlone(msgspec.Struct, frozen=True):
    """An open circuit, and the process that has it."""

    process: str
    circuit: CircuitSeen
