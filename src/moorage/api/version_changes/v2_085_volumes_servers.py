"""2.85: Whether an attached volume goes with its server may be changed."""

from moorage.api.microversions import VersionChange

CHANGED = (2, 85)
FIELDS = ("device", "tag", "delete_on_termination", "serverId", "id")

CHANGE = VersionChange(
    at=(2, 85),
    summary="Whether an attached volume goes with its server may be changed.",
    refuses={"PUT /servers/{id}/os-volume_attachments/{volume}": {"volumeAttachment": FIELDS}},
    behaviour=("CHANGED: before, a PUT was a swap whatever it named",),
)
