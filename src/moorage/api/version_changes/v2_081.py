"""2.81: an aggregate's hosts may be told to keep images."""

from moorage.api.microversions import VersionChange

CHANGE = VersionChange(
    at=(2, 81),
    says="`POST /os-aggregates/{id}/images` is there.",
    begins=("POST /os-aggregates/{id}/images",),
)
