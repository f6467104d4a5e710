"""2.19: A server may have a description."""

from moorage.api.microversions import VersionChange

CHANGE = VersionChange(
    at=(2, 19),
    summary="A server may have a description.",
    adds={
        "GET /servers/detail": {"servers": ("description",)},
        "GET /servers/{id}": {"server": ("description",)},
        "PUT /servers/{id}": {"server": ("description",)},
        "POST /servers/{id}/action:rebuild": {"server": ("description",)},
    },
    refuses={
        "POST /servers": {"server": ("description",)},
        "PUT /servers/{id}": {"server": ("description",)},
        "POST /servers/{id}/action:rebuild": {"rebuild": ("description",)},
    },
)
