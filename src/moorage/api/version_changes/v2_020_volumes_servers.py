"""2.20: Volumes are attached to shelved servers, and detached from them."""

from moorage.api.microversions import VersionChange

SHELVED_VOLUMES = (2, 20)

CHANGE = VersionChange(
    at=(2, 20),
    summary="Volumes are attached to shelved servers, and detached from them.",
    behaviour=("SHELVED_VOLUMES: before, a shelved server was refused",),
)
