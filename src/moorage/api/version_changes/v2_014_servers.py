"""2.14: An evacuation does not name whether disks are shared, and returns no password."""

from moorage.api.microversions import Json, VersionChange, rows_at
from moorage.model.errors import Invalid

NO_PASSWORD_SHOWN = (2, 14)


def require_shared_storage(body: Json) -> None:
    """Require `onSharedStorage`, as old versions do. Raises Invalid when it is missing."""
    for evacuate in rows_at(body, "evacuate"):
        if "onSharedStorage" not in evacuate:
            raise Invalid("Invalid input for field/attribute evacuate. 'onSharedStorage' is a required property")


CHANGE = VersionChange(
    at=(2, 14),
    summary="An evacuate request does not say whether disks are shared, and its answer has no password.",
    refuses_from={"POST /servers/{id}/action:evacuate": {"evacuate": ("onSharedStorage",)}},
    loosens={"POST /servers/{id}/action:evacuate": require_shared_storage},
    behaviour=("NO_PASSWORD_SHOWN: before, an evacuation answered `adminPass`",),
)
