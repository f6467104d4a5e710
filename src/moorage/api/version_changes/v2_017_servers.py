"""2.17: A guest may be crashed to get a dump."""

from moorage.api.microversions import VersionChange

CHANGE = VersionChange(
    at=(2, 17),
    summary="A guest may be made to crash, for its dump.",
    begins=("POST /servers/{id}/action:trigger_crash_dump",),
)
