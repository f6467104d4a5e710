"""2.91: a server may be unshelved to a host, and be pinned to no zone any more."""

from typing import Any

from moorage.api.microversions import VersionChange, unexpected
from moorage.model.errors import Invalid

NAME_MAX_CHARS = 255


def a_zone_alone(body: Any) -> Any:
    """Convert the body of old versions: an object with one key, the name of a zone. Raises Invalid for any other body."""
    wish = body.get("unshelve") if isinstance(body, dict) else None
    if not isinstance(wish, dict):
        return body
    for name in wish:
        if name != "availability_zone":
            unexpected([name])
    if "availability_zone" not in wish:
        raise Invalid(
            "Invalid input for field/attribute unshelve. Value: {}. 'availability_zone' is a required property"
        )
    zone = wish["availability_zone"]
    if not isinstance(zone, str) or not 0 < len(zone.strip()) <= NAME_MAX_CHARS:
        raise Invalid(f"Invalid input for field/attribute availability_zone. Value: {zone}. It is no name.")
    return body


CHANGE = VersionChange(
    at=(2, 91),
    summary="`unshelve` may name a host, and a null zone takes the server off the zone it was pinned to.",
    request={"POST /servers/{id}/action:unshelve": a_zone_alone},
)
