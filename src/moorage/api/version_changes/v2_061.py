"""2.61: a flavor is shown with its extra specs."""

from moorage.api.microversions import VersionChange

CHANGE = VersionChange(
    at=(2, 61),
    summary="Flavors are shown with `extra_specs`, if policy lets the asker list them.",
    adds={
        "GET /flavors/detail": {"flavors": ("extra_specs",)},
        "GET /flavors/{id}": {"flavor": ("extra_specs",)},
        "POST /flavors": {"flavor": ("extra_specs",)},
        "PUT /flavors/{id}": {"flavor": ("extra_specs",)},
    },
)
