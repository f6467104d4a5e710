"""2.104: The zone a server is pinned to may be changed."""

from moorage.api.microversions import VersionChange

CHANGE = VersionChange(
    at=(2, 104),
    summary="The zone a server is pinned to may be changed.",
    refuses={"PUT /servers/{id}": {"server": ("pinned_availability_zone",)}},
)
