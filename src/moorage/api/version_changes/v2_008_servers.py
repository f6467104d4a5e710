"""2.8: MKS consoles."""

from moorage.api.microversions import Json, VersionChange
from moorage.model.errors import Invalid

ROUTE = "POST /servers/{id}/remote-consoles"
THEN = {
    "protocol": ("vnc", "spice", "serial", "rdp"),
    "type": ("novnc", "xvpvnc", "spice-html5", "serial", "rdp-html5"),
}


def refused_then(body: Json) -> None:
    """Raises Invalid for a protocol or type that was unknown."""
    console = body.get("remote_console") if isinstance(body, dict) else None
    for name, known in THEN.items():
        value = console.get(name) if isinstance(console, dict) else None
        if isinstance(value, str) and value not in known:
            raise Invalid(
                f"Invalid input for field/attribute {name}. Value: {value}. '{value}' is not one of {list(known)}"
            )


CHANGE = VersionChange(
    at=(2, 8),
    summary="Consoles of the protocol `mks`, type `webmks`.",
    loosens={ROUTE: refused_then},
)
