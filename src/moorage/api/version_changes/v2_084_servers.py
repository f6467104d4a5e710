"""2.84: Events of actions have details."""

from moorage.api.microversions import VersionChange

CHANGE = VersionChange(
    at=(2, 84),
    summary="Events of actions have details.",
    adds={"GET /servers/{id}/os-instance-actions/{request}": {"instanceAction.events": ("details",)}},
)
