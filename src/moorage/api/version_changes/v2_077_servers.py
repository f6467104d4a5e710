"""2.77: a server may be unshelved in an availability zone."""

from typing import Any

from moorage.api.microversions import VersionChange

ZONE_AT_UNSHELVE = (2, 77)


def whatever_it_holds(body: Any) -> Any:
    """Accept any value, because older versions never checked it."""
    return {**body, "unshelve": None} if isinstance(body, dict) and "unshelve" in body else body


CHANGE = VersionChange(
    at=ZONE_AT_UNSHELVE,
    summary="`unshelve` may name an availability zone.",
    request={"POST /servers/{id}/action:unshelve": whatever_it_holds},
)
