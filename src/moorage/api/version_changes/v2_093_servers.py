"""2.93: Volumes say that they have a new image."""

from moorage.api.microversions import Json, VersionChange, rows_at
from moorage.model.errors import Invalid


def no_volume_reimaged(body: Json) -> None:
    """Refuse the event `volume-reimaged`, which older versions do not know. Raises Invalid."""
    for event in rows_at(body, "events"):
        if event.get("name") == "volume-reimaged":
            raise Invalid(
                "Invalid input for field/attribute name. Value: volume-reimaged. 'volume-reimaged' is not known at this version"
            )


CHANGE = VersionChange(
    at=(2, 93),
    summary="Volumes say that they have a new image.",
    loosens={"POST /os-server-external-events": no_volume_reimaged},
)
