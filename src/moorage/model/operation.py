"""An operation, as people see it: the request, the conductor that executes it, and its progress."""

from enum import StrEnum
from typing import Any

import msgspec

from moorage.model.ids import CellId, ConductorId, OperationId, ServerId


class OperationStatus(StrEnum):
    OPEN = "open"
    """Being executed, or waiting to be."""
    CLEANING = "cleaning"
    """The saga unwinds: its steps are being undone (RULES §12)."""
    STUCK = "stuck"
    """Unwinding takes longer than its limit; a person should look at it."""
    DONE = "done"
    UNDONE = "undone"
    """It failed or was cancelled, and everything is undone."""


OPEN_STATUSES = frozenset({OperationStatus.OPEN, OperationStatus.CLEANING, OperationStatus.STUCK})


class Accepted(msgspec.Struct, frozen=True):
    """An operation as the API passes it to a conductor: everything is decided, and nothing is done yet."""

    id: OperationId
    saga: str
    server: ServerId
    project: str
    user: str
    owner: ConductorId
    asked: bytes
    """JSON of the saga's input Struct."""
    journal: bytes
    """The first records: the intent of the first step."""
    head: int
    request_id: str = ""
    seq: int = 1
    """Counted for each server; the first part of a fencing token (RULES §10)."""
    after: OperationId | None = None
    created_at: int = 0
    epoch: int = 1
    cell: CellId | None = None
    """The server's cell, if it has one; not stored here, because the server's row has it."""


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
    """What it waits for at present, as text (`waiting for the network service since …`)."""
    fault: str | None = None
    asked: bytes = b""
    journal: bytes = b""
    ledger: bytes | None = None
    """The decision records: rejected hosts and failed attempts, with reasons and numbers (N2)."""

    @property
    def name(self) -> str:
        return self.saga.partition("/")[0]

    @property
    def waiting_named(self) -> str | None:
        """The same text for operators: with the names of hosts and cells, which owners of servers do not see."""
        if self.waiting is None:
            return None
        lines = (line for line in reversed(self.lines()) if line.get("public") == self.waiting)
        return next((str(line["named"]) for line in lines if line.get("named")), self.waiting)

    def lines(self) -> list[Any]:
        return [msgspec.json.decode(line) for line in self.journal.splitlines() if line]
