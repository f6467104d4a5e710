"""2.11: a host may be said to be down."""

from moorage.api.microversions import VersionChange

FORCE_DOWN = (2, 11)

CHANGE = VersionChange(
    at=(2, 11),
    summary="Services show `forced_down`, and `PUT /os-services/force-down` changes it.",
    adds={"GET /os-services": {"services": ("forced_down",)}},
    refuses={"PUT /os-services/{id}": {"": ("forced_down",)}},
    behaviour=("FORCE_DOWN: the action `force-down` is there.",),
)
