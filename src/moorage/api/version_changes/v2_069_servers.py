"""2.69: Servers of a cell that is out are listed with the fields that the region knows."""

from moorage.api.microversions import VersionChange

PARTIAL_ROWS = (2, 69)

CHANGE = VersionChange(
    at=(2, 69),
    summary="Servers of a cell that is out are listed with what is known of them.",
    behaviour=("PARTIAL_ROWS: before, servers of a cell that is out were left out",),
)
