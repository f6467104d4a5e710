"""2.26: Servers have tags."""

from moorage.api.microversions import VersionChange

CHANGE = VersionChange(
    at=(2, 26),
    summary="Servers have tags.",
    adds={
        "GET /servers/detail": {"servers": ("tags",)},
        "GET /servers/{id}": {"server": ("tags",)},
        "PUT /servers/{id}": {"server": ("tags",)},
        "POST /servers/{id}/action:rebuild": {"server": ("tags",)},
    },
    begins=(
        "GET /servers/{id}/tags",
        "PUT /servers/{id}/tags",
        "DELETE /servers/{id}/tags",
        "GET /servers/{id}/tags/{tag}",
        "PUT /servers/{id}/tags/{tag}",
        "DELETE /servers/{id}/tags/{tag}",
    ),
)
