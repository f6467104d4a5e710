"""2.16: A server says how its host is."""

from moorage.api.microversions import VersionChange

CHANGE = VersionChange(
    at=(2, 16),
    summary="A server says how its host is.",
    adds={
        "GET /servers/detail": {"servers": ("host_status",)},
        "GET /servers/{id}": {"server": ("host_status",)},
        "PUT /servers/{id}": {"server": ("host_status",)},
        "POST /servers/{id}/action:rebuild": {"server": ("host_status",)},
    },
)
