"""2.35: key pairs are listed in pages (`limit` and `marker` are in the route's `Params` from here on)."""

from moorage.api.microversions import VersionChange

CHANGE = VersionChange(
    at=(2, 35),
    summary="`GET /os-keypairs` takes `limit` and `marker`, and links to the next page.",
    adds={"GET /os-keypairs": {"": ("keypairs_links",)}},
)
