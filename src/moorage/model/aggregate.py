"""A host aggregate: hosts with something in common, and with `availability_zone` in its metadata a zone."""

import msgspec

ZONE_KEY = "availability_zone"


class Aggregate(msgspec.Struct, frozen=True):
    number: int
    """Its id in the API."""
    id: str
    """A UUID: the aggregate of its hosts' resource providers."""
    name: str
    metadata: dict[str, str] = {}
    hosts: tuple[str, ...] = ()
    created_at: int = 0
    updated_at: int | None = None

    @property
    def zone(self) -> str | None:
        return self.metadata.get(ZONE_KEY)
