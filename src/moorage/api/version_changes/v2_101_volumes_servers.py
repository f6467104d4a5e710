"""2.101: An attach is answered with 202 and no body."""

from moorage.api.microversions import VersionChange

NO_BODY = (2, 101)

CHANGE = VersionChange(
    at=(2, 101),
    summary="An attach is answered with 202 and no body.",
    behaviour=("NO_BODY: before, it was answered with 200 and the attachment",),
)
