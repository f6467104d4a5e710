"""2.92: keys are imported only, and their names may have `@` and `.`."""

import re

from moorage.api.microversions import Json, VersionChange
from moorage.model.errors import Invalid

KEYS_ARE_IMPORTED_ONLY = (2, 92)
OLD_NAME = re.compile(r"^[_\- a-zA-Z0-9]+$")


def plain_name(body: Json) -> None:
    """Refuse names that older versions do not allow. Raises Invalid."""
    pair = body.get("keypair") if isinstance(body, dict) else None
    name = pair.get("name") if isinstance(pair, dict) else None
    if isinstance(name, str) and name and not OLD_NAME.match(name):
        raise Invalid(
            f"Invalid input for field/attribute name. Value: {name}. '{name}' does not match '{OLD_NAME.pattern}'"
        )


CHANGE = VersionChange(
    at=(2, 92),
    summary="A key pair must bring its public key; `@` and `.` are allowed in names.",
    loosens={"POST /os-keypairs": plain_name},
    behaviour=("KEYS_ARE_IMPORTED_ONLY: without a public key the request is refused.",),
)
