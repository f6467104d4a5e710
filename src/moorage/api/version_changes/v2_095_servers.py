"""2.95: A server that was evacuated is off."""

from moorage.api.microversions import VersionChange

STAYS_STOPPED = (2, 95)

CHANGE = VersionChange(
    at=(2, 95),
    summary="A server that was evacuated is off.",
    behaviour=("STAYS_STOPPED: before, it was as it had been on the host that it left",),
)
