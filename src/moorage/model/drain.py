"""A host that is emptied: who is on it, how each server leaves, and how far that is (N13).

Stored as JSON and read by later releases: fields are added with defaults.
"""

from collections import Counter
from enum import StrEnum

import msgspec

from moorage.model.ids import CellId, ServerId

CONCURRENCY_MAX = 100
SERVERS_MAX = 1_000
"""On one host; more than that is no host."""


class DrainStatus(StrEnum):
    WAITING = "waiting"
    """For the conductor that leads."""
    RUNNING = "running"
    DONE = "done"
    """Nothing is on the host any more."""
    INCOMPLETE = "incomplete"
    """What could be moved was."""
    CANCELLED = "cancelled"


class MoveMethod(StrEnum):
    LIVE = "live"
    COLD = "cold"
    OFFLOAD = "offload"
    """It is shelved, and leaves its host for its image."""
    NONE = "none"
    """It cannot be moved as it is."""


class DrainProgress(StrEnum):
    WAITING = "waiting"
    MOVING = "moving"
    CONFIRMING = "confirming"
    """It is on its new host; what it left is let go when the move is confirmed."""
    DONE = "done"
    LEFT = "left"
    """It stays."""


OPEN = frozenset({DrainProgress.WAITING, DrainProgress.MOVING, DrainProgress.CONFIRMING})


class DrainServer(msgspec.Struct, frozen=True):
    """One server of the host."""

    server: ServerId
    name: str
    way: MoveMethod
    progress: DrainProgress = DrainProgress.WAITING
    planned: str = ""
    """The host that the plan found for it."""
    host: str = ""
    """Where it is, when it is done."""
    attempts: int = 0
    again_at: int = 0
    """Not before that is it tried again."""
    why: str = ""
    """What it waits for, or why it stays."""


class DrainRequest(msgspec.Struct, frozen=True):
    concurrency: int = 2
    """Servers that are on their way at once."""
    confirm: bool = True
    """Cold moves are confirmed as soon as they may be; else their owners do."""
    partial: bool = False
    """Begin, though some have no other place."""
    live: bool = True
    """Running servers are moved while they run; else they are off meanwhile."""
    across: bool = False
    """They may go to other cells: the host is emptied with its cell."""


class Drain(msgspec.Struct, frozen=True):
    id: str
    host: str
    cell: CellId
    asked_at: int
    asked_by: str
    project: str
    asked: DrainRequest
    status: DrainStatus
    servers: tuple[DrainServer, ...] = ()
    """In the order in which they are moved."""
    began_at: int | None = None
    ended_at: int | None = None
    cancel: bool = False
    why: str = ""
    version: int = 0

    def counts(self) -> dict[str, int]:
        found = Counter(each.progress.value for each in self.servers)
        return {each.value: found[each.value] for each in DrainProgress}
