"""2.22: A live migration may be forced to complete."""

from moorage.api.microversions import VersionChange

CHANGE = VersionChange(
    at=(2, 22),
    summary="A live migration may be forced to complete.",
    begins=("POST /servers/{id}/migrations/{migration}/action:force_complete",),
)
