"""2.78: The topology of a server is shown."""

from moorage.api.microversions import VersionChange

CHANGE = VersionChange(
    at=(2, 78),
    summary="The topology of a server is shown.",
    begins=("GET /servers/{id}/topology",),
)
