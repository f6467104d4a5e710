"""2.69: what the region knows about servers of a cell that does not answer."""

from moorage.api.microversions import VersionChange

CELLS_MAY_BE_DOWN = (2, 69)

CHANGE = VersionChange(
    at=(2, 69),
    summary="Services of a cell that does not answer are listed with status UNKNOWN, instead of being left out.",
    behaviour=("CELLS_MAY_BE_DOWN: hosts the region knows of stand for those their cell cannot tell.",),
)
