"""2.65: A live migration may be aborted before it runs."""

from moorage.api.microversions import VersionChange

ABORTED_BEFORE_IT_RUNS = (2, 65)

CHANGE = VersionChange(
    at=(2, 65),
    summary="A live migration may be aborted while it is queued or prepared.",
    behaviour=("ABORTED_BEFORE_IT_RUNS: before, only one that runs",),
)
