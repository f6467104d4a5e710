"""2.52: A server may be given tags when it is made."""

from moorage.api.microversions import VersionChange

CHANGE = VersionChange(
    at=(2, 52),
    summary="A server may be given tags when it is made.",
    refuses={"POST /servers": {"server": ("tags",)}},
)
