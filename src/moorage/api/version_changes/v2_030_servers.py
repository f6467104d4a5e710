"""2.30: A live migration may be forced to a host."""

from moorage.api.microversions import VersionChange

CHANGE = VersionChange(
    at=(2, 30),
    summary="A live migration may be forced to a host.",
    refuses={"POST /servers/{id}/action:os-migrateLive": {"os-migrateLive": ("force",)}},
)
