"""Limits of compute that the identity service keeps, as Nova's `UnifiedLimitsDriver` reads them.

A registered limit holds for every project, and a limit of one project replaces it.  Only servers and classes of resources are counted
by project; the others are limits of one user, group, server or request, for which Nova asks for registered limits alone.
"""

import re
from collections.abc import Mapping
from typing import Literal

import msgspec

from moorage.model.errors import OverQuota

COMPUTE = "compute"
CLASS = "class:"
SERVERS = "servers"
UNIFIED_NAMES: Mapping[str, str] = {
    "instances": SERVERS,
    "cores": "class:VCPU",
    "ram": "class:MEMORY_MB",
    "metadata_items": "server_metadata_items",
    "injected_files": "server_injected_files",
    "injected_file_content_bytes": "server_injected_file_content_bytes",
    "injected_file_path_bytes": "server_injected_file_path_bytes",
    "key_pairs": "server_key_pairs",
    "server_groups": "server_groups",
    "server_group_members": "server_group_members",
}
"""Names of quotas → names of limits; the quotas that are missing have no limit at all."""
COUNTED_CLASSES = frozenset({"class:VCPU", "class:MEMORY_MB"})
"""Classes that the counters of cores and memory count."""
NO_LIMIT = -1
_CUSTOM = re.compile(r"class:CUSTOM_[A-Z0-9_]+")


def is_of_project(name: str) -> bool:
    """Whether a project may have a limit of its own."""
    return name == SERVERS or name.startswith(CLASS)


def is_resource(name: str, standard_classes: frozenset[str]) -> bool:
    """Whether this is a name that Nova's list of required or ignored resources may have."""
    if name.startswith(CLASS):
        return name.removeprefix(CLASS) in standard_classes or _CUSTOM.fullmatch(name) is not None
    return name in UNIFIED_NAMES.values()


class UnifiedLimits(msgspec.Struct, frozen=True):
    """All limits that hold for one project."""

    project: str
    registered: dict[str, int]
    own: dict[str, int] = {}
    strategy: Literal["require", "ignore"] = "require"
    listed: tuple[str, ...] = (SERVERS,)

    def limit(self, name: str) -> int:
        """Return the limit that holds; -1: none. The strategy decides on a resource that has no registered limit."""
        if (configured := self._configured(name)) is not None:
            return max(configured, NO_LIMIT)
        return 0 if (name in self.listed) == (self.strategy == "require") else NO_LIMIT

    def limited_classes(self) -> frozenset[str]:
        """The classes with a limit that only a counter of their own tells whether it is kept."""
        named = {*self.registered, *self.own} - COUNTED_CLASSES
        return frozenset(each for each in named if each.startswith(CLASS) and self.limit(each) > 0)

    def enforced(self, quotas: Mapping[str, int]) -> dict[str, int]:
        """Return the limit of each of these quotas that holds."""
        return {name: self.limit(UNIFIED_NAMES[name]) if name in UNIFIED_NAMES else NO_LIMIT for name in quotas}

    def shown(self, quotas: Mapping[str, int], *, defaults: bool = False) -> dict[str, int]:
        """Return these quotas as Nova shows them: 0 without a registered limit. `defaults`: only registered limits."""
        return {
            name: self._shown(UNIFIED_NAMES[name], defaults) if name in UNIFIED_NAMES else NO_LIMIT for name in quotas
        }

    def _configured(self, name: str) -> int | None:
        own = self.own.get(name) if is_of_project(name) else None
        return self.registered.get(name) if own is None else own

    def _shown(self, name: str, defaults: bool) -> int:
        configured = self.registered.get(name) if defaults else self._configured(name)
        return 0 if configured is None else configured


class OverUnified(msgspec.Struct, frozen=True):
    """One limit that a request would break, by its name at the identity service."""

    name: str
    limit: int
    used: int
    requested: int


def over_limits(project: str | None, over: tuple[OverUnified, ...]) -> OverQuota:
    """The error with Nova's message; no project: the limit is not one of projects."""
    named = ", ".join(
        f"Resource {each.name} is over limit of {each.limit} due to current usage {each.used} and delta {each.requested}"
        for each in over
    )
    return OverQuota(f"Project {project} is over a limit for [{named}]")
