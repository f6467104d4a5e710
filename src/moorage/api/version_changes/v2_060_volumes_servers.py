"""2.60: Volumes of several writers are attached."""

from moorage.api.microversions import VersionChange

MULTIATTACH = (2, 60)

CHANGE = VersionChange(
    at=(2, 60),
    summary="Volumes of several writers are attached.",
    behaviour=("MULTIATTACH: before, a volume of several writers was refused",),
)
