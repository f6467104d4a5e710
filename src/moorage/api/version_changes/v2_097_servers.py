"""2.97: Shares may be attached to servers."""

from moorage.api.microversions import VersionChange

CHANGE = VersionChange(
    at=(2, 97),
    summary="Shares may be attached to servers.",
    begins=(
        "GET /servers/{id}/shares",
        "POST /servers/{id}/shares",
        "GET /servers/{id}/shares/{share}",
        "DELETE /servers/{id}/shares/{share}",
    ),
)
