"""2.9: A server says whether it is locked."""

from moorage.api.microversions import VersionChange

CHANGE = VersionChange(
    at=(2, 9),
    summary="A server says whether it is locked.",
    adds={
        "GET /servers/detail": {"servers": ("locked",)},
        "GET /servers/{id}": {"server": ("locked",)},
        "PUT /servers/{id}": {"server": ("locked",)},
        "POST /servers/{id}/action:rebuild": {"server": ("locked",)},
    },
)
