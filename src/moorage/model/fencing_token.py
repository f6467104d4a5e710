"""The turn of a command: which of two commands about one server is the newer (RULES §10).

A host keeps the highest turn it was given per server, before it acts.  A lower one came late and is refused; so an undo,
whose phase is higher than its do's, closes the door behind itself.
"""

import msgspec

DO = 0
UNDO = 1
LAST_ATTEMPT = 1 << 20
"""Above every attempt: a command with it is newer than all that its operation sent before."""


class FencingToken(msgspec.Struct, frozen=True, order=True, array_like=True):
    """Ordered as it reads: a later operation first, then a later attempt, then the undo."""

    operation_seq: int
    """Counts up per server, in the region."""
    attempt: int = 0
    phase: int = DO

    def undo(self) -> "FencingToken":
        """The turn that takes this one back."""
        return FencingToken(self.operation_seq, self.attempt, UNDO)
