"""2.72: Ports with a resource request may be given when a server is made."""

from moorage.api.microversions import Change

QOS_PORTS = (2, 72)

CHANGE = Change(
    at=(2, 72),
    says="Ports with a resource request may be given when a server is made.",
    behaviour=("QOS_PORTS: before, such a port was refused",),
)
