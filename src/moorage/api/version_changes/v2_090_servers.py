"""2.90: A server may be given a hostname, and everybody who sees the server sees it."""

from moorage.api.microversions import VersionChange

HOSTNAME_FOR_ALL = (2, 90)

CHANGE = VersionChange(
    at=(2, 90),
    summary="A server may be given a hostname, and everybody who sees the server sees it.",
    refuses={
        "POST /servers": {"server": ("hostname",)},
        "PUT /servers/{id}": {"server": ("hostname",)},
        "POST /servers/{id}/action:rebuild": {"rebuild": ("hostname",)},
    },
    behaviour=("HOSTNAME_FOR_ALL: before, the hostname was shown to administrators",),
)
