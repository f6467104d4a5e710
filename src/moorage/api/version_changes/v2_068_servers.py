"""2.68: No evacuation and no live migration is forced to a host."""

from moorage.api.microversions import VersionChange

CHANGE = VersionChange(
    at=(2, 68),
    summary="No evacuation and no live migration is forced to a host.",
    refuses_from={
        "POST /servers/{id}/action:os-migrateLive": {"os-migrateLive": ("force",)},
        "POST /servers/{id}/action:evacuate": {"evacuate": ("force",)},
    },
)
