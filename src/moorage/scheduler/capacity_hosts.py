"""Counts how many servers of one kind each host could still have, as if it were the only host: amounts, devices, server group.

Addresses are not counted here, because hosts share them (`capacity_pools.py`).  Amounts are divided, and also devices if each group of
the ask has providers of its own; any other tree is searched like the scheduler does, with every choice it may make (`capacity_trees.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from moorage.model.request_groups import RequestGroup
from moorage.model.world import Ask, Mask, World
from moorage.scheduler.capacity_trees import CapacityTrees
from moorage.scheduler.columns import Numbers, short
from moorage.scheduler.filters.devices import right_kind

Counts = NDArray[np.int64]

HOST_MAX = 1_000_000
"""The count for a host on which nothing that is asked runs out."""
SERVER_GROUP = "server group"
TOGETHER = "devices together"
NOTHING = "nothing"


@dataclass(frozen=True)
class PerHost:
    """The numbers of each host by itself."""

    least: Counts
    """The number with the worst choices of devices."""
    most: Counts
    """The number with the best choices; equal to `least` where it is sure."""
    bounds: dict[str, Mask] = field(default_factory=dict[str, Mask])
    """What runs out first → on which hosts; several resources may run out at once."""

    @property
    def sure(self) -> bool:
        return bool(np.array_equal(self.least, self.most))


def count_hosts(ask: Ask, world: World, willing: Mask) -> PerHost:
    """Count the hosts in `willing`; all others get 0."""
    parts: list[tuple[str, Counts]] = [(name, _amount(world, name, n)) for name, n in ask.resources.items() if n > 0]
    if ask.group is not None and ask.group.policy == "anti-affinity":
        parts.append((SERVER_GROUP, _members(ask, world)))
    plain = None if not ask.groups else _independent(ask, world)
    parts += plain or []
    least = np.where(willing, HOST_MAX, 0).astype(np.int64)
    for _, counts in parts:
        least = np.minimum(least, counts)
    most = least
    if ask.groups and plain is None:
        by_amounts = least
        least, most = CapacityTrees(ask, world).counts(least)
        parts.append((TOGETHER, np.where(most < by_amounts, most, HOST_MAX)))
    bounds: dict[str, Mask] = {}
    for name, counts in parts:
        if (bounded := willing & (counts <= most)).any():
            bounds[name] = bounds[name] | bounded if name in bounds else bounded
    if (endless := willing & (most >= HOST_MAX)).any():
        bounds[NOTHING] = endless
    return PerHost(least, most, bounds)


def _amount(numbers: Numbers, resource: str, amount: int) -> Counts:
    """How often the amount can be allocated."""
    free = numbers.free.get(resource)
    if free is None:
        return np.zeros(numbers.size, dtype=np.int64)
    counts: Counts = np.maximum(free.astype(np.int64) // amount, 0)
    counts[short(numbers, resource, amount)] = 0
    return counts


def _members(ask: Ask, world: World) -> Counts:
    """How many more servers of an anti-affinity group each host may have."""
    assert ask.group is not None
    counts = np.full(world.size, ask.group.max_per_host, dtype=np.int64)
    known = world.groups.get(ask.group.id)
    for host, members in ({} if known is None else known.hosts).items():
        if host in world.slots:
            counts[world.slots[host]] = max(0, ask.group.max_per_host - members)
    return counts


# -------------------------------------------------------------------------------------------------- devices


@dataclass(frozen=True)
class _Kind:
    """Equal groups of the ask, and the providers of the right kind for them."""

    group: RequestGroup
    times: int
    on_hosts: Mask
    on_devices: Mask


def _independent(ask: Ask, world: World) -> list[tuple[str, Counts]] | None:
    """The amounts that groups ask of each class; None: one group's choice may matter to another group."""
    if any(len(each) > 1 for each in (*ask.same_subtree, *ask.same_device)):
        return None
    if ask.group_policy == "isolate" and len(ask.groups) > 1:
        return None
    kinds = _kinds(ask, world)
    hosts, devices = np.zeros(world.size, dtype=np.int32), np.zeros(world.nested.size, dtype=np.int32)
    for kind in kinds:
        if not kind.group.resources or (kind.on_hosts.any() and set(kind.group.resources) & set(ask.resources)):
            return None
        hosts += kind.on_hosts
        devices += kind.on_devices
    if (hosts > 1).any() or (devices > 1).any():
        return None
    return [part for kind in kinds for part in _of_kind(world, kind)]


def _kinds(ask: Ask, world: World) -> Sequence[_Kind]:
    kinds: dict[object, list[RequestGroup]] = {}
    for group in ask.groups:
        key = (tuple(sorted(group.resources.items())), frozenset(group.required), frozenset(group.forbidden))
        kinds.setdefault(key, []).append(group)
    return [
        _Kind(same[0], len(same), right_kind(world, same[0]), right_kind(world.nested, same[0]))
        for same in kinds.values()
    ]


def _of_kind(world: World, kind: _Kind) -> list[tuple[str, Counts]]:
    """For how many servers the providers of a kind suffice: in all, and for each class alone, to see which class runs out first."""
    by_class = {
        name: (_amount(world, name, amount), _amount(world.nested, name, amount))
        for name, amount in kind.group.resources.items()
    }
    together = _summed(
        world, kind,
        np.minimum.reduce([hosts for hosts, _ in by_class.values()]),
        np.minimum.reduce([devices for _, devices in by_class.values()]),
    )  # fmt: skip
    alone = {name: _summed(world, kind, *each) for name, each in by_class.items()}
    scarcest = np.minimum.reduce(list(alone.values()))
    return [(name, np.where(counts <= scarcest, together, HOST_MAX)) for name, counts in alone.items()]


def _summed(world: World, kind: _Kind, on_hosts: Counts, on_devices: Counts) -> Counts:
    nested = world.nested
    right = np.flatnonzero(kind.on_devices & (nested.host >= 0))
    total = np.bincount(nested.host[right], weights=on_devices[right], minlength=world.size).astype(np.int64)
    total += np.where(kind.on_hosts, on_hosts, 0)
    counts: Counts = total // kind.times
    return counts
