"""2.54: A rebuild may bring another key pair."""

from moorage.api.microversions import VersionChange

CHANGE = VersionChange(
    at=(2, 54),
    summary="A rebuild may bring another key pair.",
    adds={"POST /servers/{id}/action:rebuild": {"server": ("key_name",)}},
    refuses={"POST /servers/{id}/action:rebuild": {"rebuild": ("key_name",)}},
)
