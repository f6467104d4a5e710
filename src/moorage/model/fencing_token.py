"""The fencing token of a command (its `turn`): it tells which of two commands for one server is newer (RULES §10).

A host stores the highest token of each server before it acts, and refuses a command with a lower token, which came late.  The token
of an undo is higher than that of its do, so after the undo a late do is refused.
"""

import msgspec

DO = 0
UNDO = 1
LAST_ATTEMPT = 1 << 20
"""Higher than every attempt: a command with it is newer than all earlier commands of its operation."""


class FencingToken(msgspec.Struct, frozen=True, order=True, array_like=True):
    """A token. A later operation is higher; then a later attempt; then an undo."""

    operation_seq: int
    """Number of the operation; the region counts it for each server."""
    attempt: int = 0
    phase: int = DO

    def undo(self) -> "FencingToken":
        """The token of the command that undoes this one."""
        return FencingToken(self.operation_seq, self.attempt, UNDO)
