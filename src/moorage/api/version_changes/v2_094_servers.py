"""2.94: A hostname may be a fully qualified name."""

import re

from moorage.api.microversions import Json, VersionChange, rows_at
from moorage.model.errors import Invalid

LABEL = re.compile(r"[a-zA-Z0-9]+[a-zA-Z0-9-]*[a-zA-Z0-9]+")
LABEL_MAX = 63


def a_label(body: Json) -> None:
    """Refuse host names with dots, which older versions do not allow. Raises Invalid."""
    for server in (*rows_at(body, "server"), *rows_at(body, "rebuild")):
        name = server.get("hostname")
        if isinstance(name, str) and (len(name) > LABEL_MAX or not LABEL.fullmatch(name)):
            raise Invalid(
                f"Invalid input for field/attribute hostname. Value: {name}. "
                f"'{name}' does not match '^[a-zA-Z0-9]+[a-zA-Z0-9-]*[a-zA-Z0-9]+$'"
            )


CHANGE = VersionChange(
    at=(2, 94),
    summary="A hostname may be a fully qualified name.",
    loosens={"POST /servers": a_label, "PUT /servers/{id}": a_label, "POST /servers/{id}/action:rebuild": a_label},
)
