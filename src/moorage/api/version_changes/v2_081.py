"""2.81: an aggregate's hosts may be asked to cache images."""

from moorage.api.microversions import VersionChange

CHANGE = VersionChange(
    at=(2, 81),
    summary="`POST /os-aggregates/{id}/images` is there.",
    begins=("POST /os-aggregates/{id}/images",),
)
