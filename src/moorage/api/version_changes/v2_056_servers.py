"""2.56: a cold migration may name its host."""

from typing import Any

from moorage.api.microversions import VersionChange


def whatever_it_holds(body: Any) -> Any:
    """Accept any value, because older versions never checked it."""
    return {**body, "migrate": None} if isinstance(body, dict) and "migrate" in body else body


CHANGE = VersionChange(
    at=(2, 56),
    summary="`migrate` may name a host.",
    request={"POST /servers/{id}/action:migrate": whatever_it_holds},
)
