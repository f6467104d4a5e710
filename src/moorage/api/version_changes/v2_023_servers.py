"""2.23: The migrations of one server are listed, and every migration says of which type it is."""

from moorage.api.microversions import VersionChange

CHANGE = VersionChange(
    at=(2, 23),
    summary="The migrations of one server are listed, and every migration says of which type it is.",
    adds={"GET /os-migrations": {"migrations": ("migration_type", "links")}},
    begins=("GET /servers/{id}/migrations", "GET /servers/{id}/migrations/{migration}"),
)
