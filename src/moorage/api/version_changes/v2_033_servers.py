"""2.33: Block devices lose their tag again, until 2.42."""

from moorage.api.microversions import VersionChange

DEVICE_TAGS_GONE = (2, 33)

CHANGE = VersionChange(
    at=(2, 33),
    summary="Block devices lose their tag again, until 2.42.",
    behaviour=("DEVICE_TAGS_GONE: a tag of a block device is refused from here until 2.42",),
)
