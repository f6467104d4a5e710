"""2.13: a server group says whose it is."""

from moorage.api.microversions import VersionChange

WHOSE = ("project_id", "user_id")

CHANGE = VersionChange(
    at=(2, 13),
    summary="Server groups show `project_id` and `user_id`.",
    adds={
        "GET /os-server-groups": {"server_groups": WHOSE},
        "GET /os-server-groups/{id}": {"server_group": WHOSE},
        "POST /os-server-groups": {"server_group": WHOSE},
    },
)
