"""Quotas: a project's limits, with Nova's names, and the error when a request exceeds them."""

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from moorage.model.errors import OverQuota
from moorage.model.unified_limits import UNIFIED_NAMES, OverUnified, UnifiedLimits, is_of_project, over_limits

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


Limits: TypeAlias = Mapping[str, int] | UnifiedLimits
"""Default limits, over which those of classes, projects and users go; or the limits of the identity service, which alone hold."""


class Over(msgspec.Struct, frozen=True):
    """One limit that a request would break."""

    resource: str
    requested: int
    used: int
    limit: int


class Shortfall(msgspec.Struct, frozen=True):
    """Why a project's request is refused: every limit it would break."""

    over: tuple[Over, ...]
    unified: UnifiedLimits | None = None
    """The limits of the identity service, if they hold."""

    def problem(self) -> OverQuota:
        """The error with Nova's message, which names the limits."""
        if self.unified is not None:
            over = tuple(
                OverUnified(UNIFIED_NAMES.get(each.resource, each.resource), each.limit, each.used, each.requested)
                for each in self.over
            )
            project = self.unified.project if all(is_of_project(each.name) for each in over) else None
            return over_limits(project, over)
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


class CountLimit(msgspec.Struct, frozen=True):
    """How much of one resource one server, user or request may have, and how a refusal is worded."""

    resource: str
    limit: int
    unified: bool = False

    def excess(self, count: int, otherwise: str, used: int = 0) -> OverQuota | None:
        """Return the error for `count` more than `used`, or None. `otherwise`: the message without the identity service."""
        if not 0 <= self.limit < used + count:
            return None
        if not self.unified:
            return OverQuota(otherwise)
        return over_limits(None, (OverUnified(UNIFIED_NAMES[self.resource], self.limit, used, count),))


def count_limit(limits: Limits, resource: str, narrowed: Mapping[str, int]) -> CountLimit:
    """The limit of one resource; `narrowed`: the limits as they hold for the user."""
    return CountLimit(resource, narrowed[resource], isinstance(limits, UnifiedLimits))
