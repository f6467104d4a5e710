"""2.51: Volumes say that they have grown; owners see the events of an action."""

from moorage.api.microversions import Json, VersionChange, rows_at
from moorage.model.errors import Invalid

EVENTS_FOR_OWNERS = (2, 51)


def no_volume_extended(body: Json) -> None:
    """Refuse the event `volume-extended`, which older versions do not know. Raises Invalid."""
    for event in rows_at(body, "events"):
        if event.get("name") == "volume-extended":
            raise Invalid(
                "Invalid input for field/attribute name. Value: volume-extended. 'volume-extended' is not known at this version"
            )


CHANGE = VersionChange(
    at=(2, 51),
    summary="Volumes say that they have grown; owners see the events of an action.",
    loosens={"POST /os-server-external-events": no_volume_extended},
    behaviour=("EVENTS_FOR_OWNERS: before, events of actions were for administrators",),
)
