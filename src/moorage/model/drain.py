"""The drain of a host: its servers, how each of them leaves, and the progress (N13).

Stored as JSON and read by later releases: fields are added with defaults.
"""

from collections import Counter
from enum import StrEnum

import msgspec

from moorage.model.ids import CellId, ServerId

CONCURRENCY_MAX = 100
SERVERS_MAX = 1_000
"""Limit of servers on one host."""


class DrainStatus(StrEnum):
    WAITING = "waiting"
    """Waiting for the conductor that leads."""
    RUNNING = "running"
    DONE = "done"
    """The host is empty."""
    INCOMPLETE = "incomplete"
    """All servers that could be moved have been moved; others remain."""
    CANCELLED = "cancelled"


class MoveMethod(StrEnum):
    LIVE = "live"
    COLD = "cold"
    OFFLOAD = "offload"
    """The server is shelved, and then offloaded from its host."""
    NONE = "none"
    """The server cannot be moved in its present state."""


class DrainProgress(StrEnum):
    WAITING = "waiting"
    MOVING = "moving"
    CONFIRMING = "confirming"
    """The server is on its new host; its old resources are released when the move is confirmed."""
    DONE = "done"
    LEFT = "left"
    """The server stays."""


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
    """The server's host after the move."""
    attempts: int = 0
    again_at: int = 0
    """The earliest time of the next try."""
    why: str = ""
    """What the move waits for, or why the server stays."""


class DrainRequest(msgspec.Struct, frozen=True):
    concurrency: int = 2
    """How many servers are moved at once."""
    confirm: bool = True
    """Whether the drain confirms cold moves; else their owners do."""
    partial: bool = False
    """Begin even if some servers have no other place."""
    live: bool = True
    """Whether running servers are live migrated; else they are off during the move."""
    across: bool = False
    """Whether servers may go to other cells, because the whole cell is drained."""


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
        counts = Counter(each.progress.value for each in self.servers)
        return {each.value: counts[each.value] for each in DrainProgress}
