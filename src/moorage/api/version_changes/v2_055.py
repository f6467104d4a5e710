"""2.55: flavors have a description."""

from moorage.api.microversions import VersionChange

CHANGE = VersionChange(
    at=(2, 55),
    summary="Flavors have a `description`: given when one is made, shown, and changed by PUT.",
    refuses={"POST /flavors": {"flavor": ("description",)}},
    adds={
        "GET /flavors": {"flavors": ("description",)},
        "GET /flavors/detail": {"flavors": ("description",)},
        "GET /flavors/{id}": {"flavor": ("description",)},
        "POST /flavors": {"flavor": ("description",)},
    },
    begins=("PUT /flavors/{id}",),
)
