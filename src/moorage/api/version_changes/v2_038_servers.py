"""2.38: An unknown status in a filter is refused."""

from moorage.api.microversions import VersionChange

STATUS_MUST_BE_KNOWN = (2, 38)

CHANGE = VersionChange(
    at=(2, 38),
    summary="An unknown status in a filter is refused.",
    behaviour=("STATUS_MUST_BE_KNOWN: before, the list was empty",),
)
