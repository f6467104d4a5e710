"""2.21: Actions of deleted servers are shown."""

from moorage.api.microversions import Change

DELETED_TOO = (2, 21)

CHANGE = Change(
    at=(2, 21),
    says="Actions of deleted servers are shown.",
    behaviour=("DELETED_TOO: before, a deleted server was not found",),
)
