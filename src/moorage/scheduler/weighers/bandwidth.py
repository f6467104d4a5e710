"""Lets a host's guaranteed bandwidth and compute run out together, because one without the other cannot be used."""

import numpy as np
from numpy.typing import NDArray

from moorage.model.world import Ask, Scores, Slots, World

CLASSES = ("NET_BW_EGR_KILOBIT_PER_SEC", "NET_BW_IGR_KILOBIT_PER_SEC")
COMPUTE = ("VCPU", "MEMORY_MB")

Shares = NDArray[np.float64]


def bandwidth(ask: Ask, world: World, slots: Slots) -> Scores | None:
    """Prefer hosts with relatively more bandwidth than compute left if the request has a guarantee, and with relatively less otherwise.

    A host without any bandwidth cannot waste it: it comes first for requests without a guarantee.
    """
    left = _bandwidth_left(world, slots)
    if left is None:
        return None
    over = left - _compute_left(world, slots)
    guaranteed = any(name in group.resources for group in ask.groups for name in CLASSES)
    return (over if guaranteed else -over).astype(np.float32)


def _bandwidth_left(world: World, slots: Slots) -> Shares | None:
    """For each host the free share of the bandwidth of all its devices; None: no host has any."""
    nested = world.nested
    free, total = np.zeros(world.size), np.zeros(world.size)
    for name in CLASSES:
        if (own := world.capacity.get(name)) is not None:
            free += world.free[name]
            total += own
        if (of_devices := nested.capacity.get(name)) is not None:
            devices = np.flatnonzero((of_devices > 0) & (nested.host >= 0))
            hosts = nested.host[devices]
            free += np.bincount(hosts, nested.free[name][devices], world.size)
            total += np.bincount(hosts, of_devices[devices], world.size)
    if not total.any():
        return None
    return _share(free[slots], total[slots])


def _compute_left(world: World, slots: Slots) -> Shares:
    """For each host the free share of its scarcest compute resource."""
    least: Shares = np.ones(len(slots))
    for name in COMPUTE:
        if (capacity := world.capacity.get(name)) is not None:
            least = np.minimum(least, _share(world.free[name][slots], capacity[slots]))
    return least


def _share(free: NDArray[np.float64] | NDArray[np.int32], total: NDArray[np.float64] | NDArray[np.int32]) -> Shares:
    shares: Shares = np.maximum(free, 0) / np.maximum(total, 1)
    return shares
