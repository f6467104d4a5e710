"""2.33: hypervisors are listed in pages (`limit` and `marker` are in the routes' `Params` from here on)."""

from moorage.api.microversions import VersionChange

LINKS = {"": ("hypervisors_links",)}

CHANGE = VersionChange(
    at=(2, 33),
    summary="Lists of hypervisors take `limit` and `marker`, and link to the next page.",
    adds={"GET /os-hypervisors": LINKS, "GET /os-hypervisors/detail": LINKS},
)
