"""2.29: An evacuation may be forced to its host; a host that is only named is judged."""

from moorage.api.microversions import VersionChange

CHANGE = VersionChange(
    at=(2, 29),
    summary="An evacuation may be forced to its host; a host that is only named is judged.",
    refuses={"POST /servers/{id}/action:evacuate": {"evacuate": ("force",)}},
)
