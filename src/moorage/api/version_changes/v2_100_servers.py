"""2.100: A server shows the scheduler hints it was made with."""

from moorage.api.microversions import VersionChange

CHANGE = VersionChange(
    at=(2, 100),
    summary="A server shows the scheduler hints it was made with.",
    adds={
        "GET /servers/detail": {"servers": ("scheduler_hints",)},
        "GET /servers/{id}": {"server": ("scheduler_hints",)},
        "PUT /servers/{id}": {"server": ("scheduler_hints",)},
        "POST /servers/{id}/action:rebuild": {"server": ("scheduler_hints",)},
    },
)
