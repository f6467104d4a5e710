"""Quotas: a project's limits, with Nova's names, and the error when a request exceeds them."""

from collections.abc import Mapping

import msgspec

from moorage.model.errors import OverQuota

COUNTED = ("instances", "cores", "ram")
"""Resources whose use is kept in counters of the project, which change together with the servers."""

DEFAULT_LIMITS: Mapping[str, int] = {
    "instances": 10,
    "cores": 20,
    "ram": 51_200,
    "fixed_ips": -1,
    "floating_ips": -1,
    "metadata_items": 128,
    "injected_files": 5,
    "injected_file_content_bytes": 10_240,
    "injected_file_path_bytes": 255,
    "key_pairs": 100,
    "security_groups": -1,
    "security_group_rules": -1,
    "server_groups": 10,
    "server_group_members": 10,
}
"""Nova's resources in Nova's order; -1 is no limit."""


OF_PROJECTS_ONLY = frozenset({"fixed_ips", "floating_ips"})
"""Limits that always apply to the project, also if they are set for a user."""


def narrower(one: int, other: int) -> int:
    """Return the stricter of two limits; -1 is no limit."""
    return max(one, other) if min(one, other) < 0 else min(one, other)


class Over(msgspec.Struct, frozen=True):
    """One limit that a request would break."""

    resource: str
    requested: int
    used: int
    limit: int


class Shortfall(msgspec.Struct, frozen=True):
    """Why a project's request is refused: every limit it would break."""

    over: tuple[Over, ...]

    def problem(self) -> OverQuota:
        """The error with Nova's message, which names the limits."""
        names = ",".join(each.resource for each in self.over)
        requested = ",".join(str(each.requested) for each in self.over)
        used = ",".join(str(each.used) for each in self.over)
        allowed = ",".join(str(each.limit) for each in self.over)
        return OverQuota(
            f"Quota exceeded for {names}: Requested {requested}, but already used {used} of {allowed} {names}"
        )


def shortfall(wants: Mapping[str, int], used: Mapping[str, int], limits: Mapping[str, int]) -> Shortfall:
    """Return the limits that the request would exceed, by name."""
    return Shortfall(
        tuple(
            Over(resource, wants[resource], used.get(resource, 0), limits[resource])
            for resource in sorted(wants)
            if wants[resource] > 0 and 0 <= limits[resource] < used.get(resource, 0) + wants[resource]
        )
    )
