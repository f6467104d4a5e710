"""2.73: A lock may have a reason."""

from typing import Any

from moorage.api.microversions import VersionChange


def whatever_it_holds(body: Any) -> Any:
    """Accept any value, because older versions never checked it: null, an empty object (as clients send it) and text all lock."""
    return {**body, "lock": None} if isinstance(body, dict) and "lock" in body else body


CHANGE = VersionChange(
    at=(2, 73),
    summary="A lock may have a reason.",
    adds={
        "GET /servers/detail": {"servers": ("locked_reason",)},
        "GET /servers/{id}": {"server": ("locked_reason",)},
        "PUT /servers/{id}": {"server": ("locked_reason",)},
        "POST /servers/{id}/action:rebuild": {"server": ("locked_reason",)},
    },
    request={"POST /servers/{id}/action:lock": whatever_it_holds},
)
