"""A server group: servers that shall be on one host, or on different hosts."""

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
    """Only for anti-affinity: how many of the group's servers one host may have; None: not given, which means 1."""
    members: tuple[str, ...] = ()
    """Ids of the servers that are in it and not deleted."""
    created_at: int = 0
