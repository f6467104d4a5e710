"""2.58: Actions are paged, and say when they were last changed."""

from moorage.api.microversions import VersionChange

PAGED = (2, 58)

CHANGE = VersionChange(
    at=(2, 58),
    summary="Actions are paged, and say when they were last changed.",
    adds={
        "GET /servers/{id}/os-instance-actions": {"instanceActions": ("updated_at",)},
        "GET /servers/{id}/os-instance-actions/{request}": {"instanceAction": ("updated_at",)},
    },
    behaviour=("PAGED: before, all were listed",),
)
