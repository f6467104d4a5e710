"""An operation, as people see it: what was asked, who tells it, how far it is."""

from enum import StrEnum
from typing import Any

import msgspec

from moorage.model.ids import CellId, ConductorId, OperationId, ServerId


class OperationStatus(StrEnum):
    OPEN = "open"
    """Being executed, or waiting to be."""
    CLEANING = "cleaning"
    """The saga turned: what was done is being taken back (RULES §12)."""
    STUCK = "stuck"
    """Cleaning is past its patience; somebody should look."""
    DONE = "done"
    UNDONE = "undone"
    """Failed or cancelled, and all of it taken back."""


OPEN_STATUSES = frozenset({OperationStatus.OPEN, OperationStatus.CLEANING, OperationStatus.STUCK})


class Accepted(msgspec.Struct, frozen=True):
    """An operation as the API hands it to a conductor: everything is decided, nothing is done."""

    id: OperationId
    saga: str
    server: ServerId
    project: str
    user: str
    owner: ConductorId
    asked: bytes
    """JSON of the saga's asked Struct."""
    journal: bytes
    """The first lines: the intent of step one."""
    head: int
    request_id: str = ""
    seq: int = 1
    """Counts up per server; the first part of an agent's turn (RULES §10)."""
    after: OperationId | None = None
    created_at: int = 0
    epoch: int = 1
    cell: CellId | None = None
    """Of its server, if it has one; not stored: the server's row says it too."""


class Operation(msgspec.Struct, frozen=True):
    """One row of `operations`."""

    id: OperationId
    saga: str
    server: ServerId
    project: str
    user: str
    owner: ConductorId
    status: OperationStatus
    epoch: int
    head: int
    created_at: int
    updated_at: int
    ended_at: int | None = None
    cancel: str | None = None
    after: OperationId | None = None
    seq: int = 1
    request_id: str = ""
    waiting: str | None = None
    """What it waits for just now, in words (`waiting for the network service since …`)."""
    fault: str | None = None
    asked: bytes = b""
    journal: bytes = b""
    ledger: bytes | None = None
    """Every refused host and failed attempt, with reasons and numbers (N2)."""

    @property
    def name(self) -> str:
        return self.saga.partition("/")[0]

    @property
    def waiting_named(self) -> str | None:
        """The same for operators: with the names of hosts and cells, which owners of servers are not told."""
        if self.waiting is None:
            return None
        told = (line for line in reversed(self.lines()) if line.get("public") == self.waiting)
        return next((str(line["named"]) for line in told if line.get("named")), self.waiting)

    def lines(self) -> list[Any]:
        return [msgspec.json.decode(line) for line in self.journal.splitlines() if line]
