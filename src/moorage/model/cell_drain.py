"""A cell that is emptied: host by host, and then the records of its offloaded servers (N7).

Stored as JSON and read by later releases: fields are added with defaults.
"""

from collections import Counter

import msgspec

from moorage.model.drain import DrainProgress, DrainServer, DrainStatus
from moorage.model.ids import CellId, ServerId

HOSTS_AT_ONCE_MAX = 20
RECORDS_AT_ONCE = 200
"""Offloaded servers that a drain has in view, besides those that stay; the others follow when these have gone."""


class CellDrainRequest(msgspec.Struct, frozen=True):
    hosts: int = 2
    """That are emptied at once."""
    concurrency: int = 2
    """Servers that are on their way at once, on each of them; and records of offloaded ones."""
    confirm: bool = True
    """Cold moves are confirmed as soon as they may be; else their owners do."""
    partial: bool = False
    """Begin, though some have no place elsewhere."""
    live: bool = True
    """Running servers are moved while they run, where the cells are linked; else they are off meanwhile."""


class HostPart(msgspec.Struct, frozen=True):
    """One host of the cell."""

    host: str
    drain: str = ""
    """The drain of it that was begun for this; empty: none was yet."""
    progress: DrainProgress = DrainProgress.WAITING
    servers: dict[str, int] = {}
    """How many of its servers are how far."""
    why: str = ""


class RecordRow(msgspec.Struct, frozen=True):
    """One offloaded server: it is on no host, and its record goes."""

    server: ServerId
    name: str
    to: str = ""
    """The cell that would have it, or has it."""
    progress: DrainProgress = DrainProgress.WAITING
    attempts: int = 0
    again_at: int = 0
    why: str = ""


class CellDrain(msgspec.Struct, frozen=True):
    id: str
    cell: CellId
    asked_at: int
    asked_by: str
    project: str
    asked: CellDrainRequest
    status: DrainStatus
    hosts: tuple[HostPart, ...] = ()
    """In the order in which they are emptied."""
    records: tuple[RecordRow, ...] = ()
    """Offloaded servers that are here, as far as they are in view."""
    records_gone: int = 0
    """Offloaded servers that are in other cells by now."""
    began_at: int | None = None
    ended_at: int | None = None
    cancel: bool = False
    why: str = ""
    version: int = 0

    def counts(self) -> dict[str, int]:
        """Servers by how far they are."""
        found = Counter(each.progress.value for each in self.records)
        found[DrainProgress.DONE.value] += self.records_gone
        for each in self.hosts:
            found.update(each.servers)
        return {each.value: found[each.value] for each in DrainProgress}


class HostDrainPlan(msgspec.Struct, frozen=True):
    """Of one host, who would go where."""

    host: str
    servers: tuple[DrainServer, ...]


class CellPlan(msgspec.Struct, frozen=True):
    """Who of a cell would go where, and who stays."""

    hosts: tuple[HostDrainPlan, ...]
    records: tuple[RecordRow, ...]
