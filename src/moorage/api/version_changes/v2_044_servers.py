"""2.44: Addresses are managed at the network service."""

from moorage.api.microversions import VersionChange

CHANGE = VersionChange(
    at=(2, 44),
    summary="Addresses are managed at the network service.",
    ends=(
        "POST /servers/{id}/action:addFixedIp",
        "POST /servers/{id}/action:removeFixedIp",
        "POST /servers/{id}/action:addFloatingIp",
        "POST /servers/{id}/action:removeFloatingIp",
    ),
)
