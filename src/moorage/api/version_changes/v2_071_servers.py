"""2.71: A server says which group it is in."""

from moorage.api.microversions import VersionChange

CHANGE = VersionChange(
    at=(2, 71),
    summary="A server says which group it is in.",
    adds={
        "GET /servers/{id}": {"server": ("server_groups",)},
        "PUT /servers/{id}": {"server": ("server_groups",)},
        "POST /servers/{id}/action:rebuild": {"server": ("server_groups",)},
        "GET /servers/detail": {"servers": ("server_groups",)},
    },
    # No version shows it in lists: neither those before it was added, nor those since.
    retires={"GET /servers/detail": {"servers": ("server_groups",)}},
)
