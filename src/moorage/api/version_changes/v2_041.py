"""2.41: aggregates show their UUID."""

from moorage.api.microversions import VersionChange

UUID = ("uuid",)
ACTIONS = tuple(f"POST /os-aggregates/{{id}}/action:{name}" for name in ("add_host", "remove_host", "set_metadata"))

CHANGE = VersionChange(
    at=(2, 41),
    summary="Aggregates show `uuid`.",
    adds={
        "GET /os-aggregates": {"aggregates": UUID},
        "POST /os-aggregates": {"aggregate": UUID},
        "GET /os-aggregates/{id}": {"aggregate": UUID},
        "PUT /os-aggregates/{id}": {"aggregate": UUID},
        **{action: {"aggregate": UUID} for action in ACTIONS},
    },
)
