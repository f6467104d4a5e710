"""2.21: Actions of deleted servers are shown."""

from moorage.api.microversions import VersionChange

DELETED_TOO = (2, 21)

CHANGE = VersionChange(
    at=(2, 21),
    summary="Actions of deleted servers are shown.",
    behaviour=("DELETED_TOO: before, a deleted server was not found",),
)
