"""2.24: A live migration may be given up."""

from moorage.api.microversions import VersionChange

CHANGE = VersionChange(
    at=(2, 24),
    summary="A live migration may be given up.",
    begins=("DELETE /servers/{id}/migrations/{migration}",),
)
