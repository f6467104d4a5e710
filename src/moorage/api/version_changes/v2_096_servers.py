"""2.96: A server says which zone it is pinned to."""

from moorage.api.microversions import VersionChange

CHANGE = VersionChange(
    at=(2, 96),
    summary="A server says which zone it is pinned to.",
    adds={
        "GET /servers/detail": {"servers": ("pinned_availability_zone",)},
        "GET /servers/{id}": {"server": ("pinned_availability_zone",)},
        "PUT /servers/{id}": {"server": ("pinned_availability_zone",)},
        "POST /servers/{id}/action:rebuild": {"server": ("pinned_availability_zone",)},
    },
)
