"""2.74: The host of a server may be asked for."""

from moorage.api.microversions import VersionChange

CHANGE = VersionChange(
    at=(2, 74),
    summary="The host of a server may be asked for.",
    refuses={"POST /servers": {"server": ("host", "hypervisor_hostname")}},
)
