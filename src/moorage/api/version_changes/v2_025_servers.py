"""2.25: A live migration may find out by itself whether disks are sent."""

from typing import Any

from moorage.api.microversions import VersionChange
from moorage.model.errors import Invalid

ACTION = "os-migrateLive"


def as_before(body: Any) -> None:
    """Require both fields of old versions, and refuse `auto`, which they do not know. Raises Invalid."""
    action = body.get(ACTION) if isinstance(body, dict) else None
    if not isinstance(action, dict):
        return
    if "disk_over_commit" not in action:
        raise Invalid(f"Invalid input for field/attribute {ACTION}. 'disk_over_commit' is a required property")
    if action.get("block_migration") == "auto":
        raise Invalid(
            "Invalid input for field/attribute block_migration. Value: auto. 'auto' is not known at this version"
        )


CHANGE = VersionChange(
    at=(2, 25),
    summary="A live migration may find out by itself whether disks are sent, and is not asked to overcommit them.",
    refuses_from={f"POST /servers/{{id}}/action:{ACTION}": {ACTION: ("disk_over_commit",)}},
    loosens={f"POST /servers/{{id}}/action:{ACTION}": as_before},
)
