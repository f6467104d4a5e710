"""2.72: Ports with a resource request may be given when a server is made."""

from moorage.api.microversions import VersionChange

QOS_PORTS = (2, 72)

CHANGE = VersionChange(
    at=(2, 72),
    summary="Ports with a resource request may be given when a server is made.",
    behaviour=("QOS_PORTS: before, such a port was refused",),
)
