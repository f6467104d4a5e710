"""2.83: Everybody may filter servers by more of their fields."""

from moorage.api.microversions import VersionChange

MORE_FILTERS_FOR_ALL = (2, 83)

CHANGE = VersionChange(
    at=(2, 83),
    summary="Everybody may filter servers by more of their fields.",
    behaviour=("MORE_FILTERS_FOR_ALL: before, these were for administrators",),
)
