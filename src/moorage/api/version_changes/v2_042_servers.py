"""2.42: Tags of network cards and block devices are back."""

from moorage.api.microversions import VersionChange

TAGS_AGAIN = (2, 42)

CHANGE = VersionChange(
    at=(2, 42),
    summary="Tags of network cards and block devices are back.",
    behaviour=("TAGS_AGAIN: tags at create are taken again",),
)
