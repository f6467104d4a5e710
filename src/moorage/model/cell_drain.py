"""A cell that is emptied: host by host, and then the records of its offloaded servers (N7).

Stored as JSON and read by later releases: fields are added with defaults.
"""

from collections import Counter

import msgspec

from moorage.model.drain import DrainProgress, DrainServer, DrainStatus
from moorage.model.ids import CellId, ServerId

HOSTS_AT_ONCE_MAX = 20
RECORDS_AT_ONCE = 200
"""Offloaded servers that a drain lists at once, besides those that stay; the others follow when these are moved."""


class CellDrainRequest(msgspec.Struct, frozen=True):
    hosts: int = 2
    """How many hosts are emptied at once."""
    concurrency: int = 2
    """How many servers of each host are moved at once; and how many records of offloaded servers."""
    confirm: bool = True
    """Whether the drain confirms cold moves; else their owners do."""
    partial: bool = False
    """Begin even if some servers have no place elsewhere."""
    live: bool = True
    """Whether running servers are live migrated if the cells are linked; else they are off during the move."""


class HostPart(msgspec.Struct, frozen=True):
    """One host of the cell."""

    host: str
    drain: str = ""
    """The id of the host's own drain; empty: it has not begun."""
    progress: DrainProgress = DrainProgress.WAITING
    servers: dict[str, int] = {}
    """Progress → number of servers."""
    why: str = ""


class RecordRow(msgspec.Struct, frozen=True):
    """One offloaded server: it is on no host, and its record is moved to another cell."""

    server: ServerId
    name: str
    to: str = ""
    """The cell that gets the record, or has it."""
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
    """Offloaded servers of the cell, as far as they are listed."""
    records_gone: int = 0
    """Offloaded servers that are in other cells by now."""
    began_at: int | None = None
    ended_at: int | None = None
    cancel: bool = False
    why: str = ""
    version: int = 0

    def counts(self) -> dict[str, int]:
        """Progress → number of servers."""
        counts = Counter(each.progress.value for each in self.records)
        counts[DrainProgress.DONE.value] += self.records_gone
        for each in self.hosts:
            counts.update(each.servers)
        return {each.value: counts[each.value] for each in DrainProgress}


class HostDrainPlan(msgspec.Struct, frozen=True):
    """The plan for one host: which server would go where."""

    host: str
    servers: tuple[DrainServer, ...]


class CellPlan(msgspec.Struct, frozen=True):
    """The plan for a cell: which servers would go where, and which stay."""

    hosts: tuple[HostDrainPlan, ...]
    records: tuple[RecordRow, ...]
