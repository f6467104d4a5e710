"""2.99: SPICE without a proxy of ours, and the port of its TLS; unknown query parameters are refused there."""

from moorage.api.microversions import Json, VersionChange
from moorage.model.errors import Invalid

ROUTE = "POST /servers/{id}/remote-consoles"
THEN = ("novnc", "xvpvnc", "spice-html5", "serial", "rdp-html5", "webmks")


def refused_then(body: Json) -> None:
    """Raises Invalid for the type that was unknown."""
    console = body.get("remote_console") if isinstance(body, dict) else None
    value = console.get("type") if isinstance(console, dict) else None
    if isinstance(value, str) and value not in THEN:
        raise Invalid(f"Invalid input for field/attribute type. Value: {value}. '{value}' is not one of {list(THEN)}")


CHANGE = VersionChange(
    at=(2, 99),
    summary="Consoles of the type `spice-direct`; `tls_port` of their tokens.",
    loosens={ROUTE: refused_then},
    adds={"GET /os-console-auth-tokens/{id}": {"console": ("tls_port",)}},
)
