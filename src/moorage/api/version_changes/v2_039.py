"""2.39: image metadata is the image service's."""

from moorage.api import removed_routes
from moorage.api.microversions import VersionChange

CHANGE = VersionChange(
    at=(2, 39),
    summary="`maxImageMeta` is gone from limits, and image metadata is not proxied.",
    ends=removed_routes.keys(removed_routes.ENDED_BY_39),
    retires={"GET /limits": {"limits.absolute": ("maxImageMeta",)}},
)
