"""2.62: Events of actions name the host, veiled for those who may not know it."""

from moorage.api.microversions import VersionChange

CHANGE = VersionChange(
    at=(2, 62),
    summary="Events of actions name the host, veiled for those who may not know it.",
    adds={"GET /servers/{id}/os-instance-actions/{request}": {"instanceAction.events": ("host", "hostId")}},
)
