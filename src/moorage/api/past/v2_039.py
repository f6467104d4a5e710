"""2.39: image metadata is the image service's."""

from moorage.api import gone
from moorage.api.microversions import Change

CHANGE = Change(
    at=(2, 39),
    says="`maxImageMeta` is gone from limits, and image metadata is not proxied.",
    ends=gone.keys(gone.ENDED_BY_39),
    retires={"GET /limits": {"limits.absolute": ("maxImageMeta",)}},
)
