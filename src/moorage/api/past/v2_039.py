"""2.39: image metadata is the image service's."""

from moorage.api.microversions import Change

CHANGE = Change(
    at=(2, 39),
    says="`maxImageMeta` is gone from limits, and image metadata is not proxied.",
    retires={"GET /limits": {"limits.absolute": ("maxImageMeta",)}},
)
