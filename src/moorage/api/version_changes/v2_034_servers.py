"""2.34: What forbids a live migration is found out after the answer."""

from moorage.api.microversions import VersionChange

CHECKED_LATER = (2, 34)

CHANGE = VersionChange(
    at=(2, 34),
    summary="What forbids a live migration is found out after the answer, and shows among the server's actions.",
    behaviour=("CHECKED_LATER: before, the checks were waited for, and a refusal was the answer",),
)
