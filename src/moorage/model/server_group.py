"""A server group: servers that want to be together, or apart."""

from typing import Literal, TypeAlias

import msgspec

Policy: TypeAlias = Literal["affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity"]


class ServerGroup(msgspec.Struct, frozen=True):
    id: str
    name: str
    project: str
    user: str
    policy: Policy
    max_per_host: int | None = None
    """Only anti-affinity: how many of the group one host may have; None was not said, and means 1."""
    members: tuple[str, ...] = ()
    """Ids of the servers that are in it and not deleted."""
    created_at: int = 0
