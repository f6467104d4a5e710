"""2.76: Power changes can be reported as external events."""

from moorage.api.microversions import Json, VersionChange, rows_at
from moorage.model.errors import Invalid


def no_power_update(body: Json) -> None:
    """Refuse the event `power-update`, which older versions do not know. Raises Invalid."""
    for event in rows_at(body, "events"):
        if event.get("name") == "power-update":
            raise Invalid(
                "Invalid input for field/attribute name. Value: power-update. 'power-update' is not known at this version"
            )


CHANGE = VersionChange(
    at=(2, 76),
    summary="Power changes are told from outside.",
    loosens={"POST /os-server-external-events": no_power_update},
)
