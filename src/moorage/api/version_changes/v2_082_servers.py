"""2.82: Accelerators say that they are bound."""

from moorage.api.microversions import Json, VersionChange, rows_at
from moorage.model.errors import Invalid


def no_accelerator_request_bound(body: Json) -> None:
    """Refuse the event `accelerator-request-bound`, which older versions do not know. Raises Invalid."""
    for event in rows_at(body, "events"):
        if event.get("name") == "accelerator-request-bound":
            raise Invalid(
                "Invalid input for field/attribute name. Value: accelerator-request-bound. 'accelerator-request-bound' is not known at this version"
            )


CHANGE = VersionChange(
    at=(2, 82),
    summary="Accelerators say that they are bound.",
    loosens={"POST /os-server-external-events": no_accelerator_request_bound},
)
