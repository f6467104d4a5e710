"""Counts for how many servers the shared addresses suffice: each segment, or several segments with the same hosts, is a pool.

A server takes from one pool for each network.  If pools have no common hosts, or one contains the other, the number of servers that fit
does not depend on the order in which hosts are filled.  If they overlap in any other way, the order matters, and there is no result
here: the servers must be placed (`capacity.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from moorage.model.ids import ProviderId
from moorage.model.world import SEVERAL, Ask, Mask, World
from moorage.scheduler.filters.network import Demand, demands_of

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class AddressPool:
    """Addresses that the same hosts share."""

    segments: tuple[ProviderId, ...]
    hosts: Mask
    servers: int
    """The number of servers for which they suffice."""


def pools_of(ask: Ask, world: World, live: Mask) -> list[AddressPool] | None:
    """Return the pools of the hosts that could have a server; None: the order in which hosts are filled matters."""
    demands = [each for each in demands_of(ask) if each.addresses > 0]
    lefts = [_left(demand, world) for demand in demands]
    dry = np.zeros(world.size, dtype=np.bool_)
    for left in lefts:
        dry |= live & world.reach(left).unwired
    shares: dict[tuple[ProviderId, ...], list[tuple[Demand, Mask]]] = {}
    for demand, left in zip(demands, lefts, strict=True):
        for segments, hosts in _shares(left, world, live & ~dry):
            shares.setdefault(segments, []).append((demand, hosts))
    if not _apart(list(shares)):
        return None
    pools = [AddressPool((), dry, 0)] if dry.any() else []
    for segments, users in shares.items():
        servers = _suffice_for(segments, users, world)
        if servers is None:
            return None
        pools.append(AddressPool(segments, np.logical_or.reduce([hosts for _, hosts in users]), servers))
    return pools if len(demands) < 2 or _laminar(pools, world.size) else None


def most_of(ask: Ask, world: World) -> int | None:
    """Return an upper bound of servers that can get addresses, in any order; None: the ask has no addresses."""
    bounds = [
        sum(max(0, world.segments[each].free) // demand.addresses for each in demand.segments if each in world.segments)
        // demand.nics
        for demand in demands_of(ask)
        if demand.addresses > 0
    ]
    return min(bounds, default=None)


def _left(demand: Demand, world: World) -> tuple[ProviderId, ...]:
    """The demand's segments that have an address left."""
    known = world.segments
    return tuple(each for each in demand.segments if each in known and known[each].free >= demand.addresses)


def _shares(left: tuple[ProviderId, ...], world: World, live: Mask) -> list[tuple[tuple[ProviderId, ...], Mask]]:
    """Sets of segments, each with the hosts that can choose exactly from it."""
    known = world.segments
    only = world.reach(left).only
    shares: list[tuple[tuple[ProviderId, ...], Mask]] = [
        ((segment,), mask) for place, segment in enumerate(left) if (mask := live & (only == place)).any()
    ]
    several = np.flatnonzero(live & (only == SEVERAL))
    if len(several):
        wiring = np.stack([known[each].wired[several] for each in left])
        ways, alike = np.unique(wiring, axis=1, return_inverse=True)
        for number in range(ways.shape[1]):
            mask = np.zeros(world.size, dtype=np.bool_)
            mask[several[alike.reshape(-1) == number]] = True
            shares.append((tuple(left[at] for at in np.flatnonzero(ways[:, number]).tolist()), mask))
    return shares


def _apart(sets: Sequence[tuple[ProviderId, ...]]) -> bool:
    """Whether no segment is in two of the sets."""
    named = [each for segments in sets for each in segments]
    return len(named) == len(set(named))


def _suffice_for(segments: tuple[ProviderId, ...], users: Sequence[tuple[Demand, Mask]], world: World) -> int | None:
    if not segments:
        return 0
    free = [max(0, world.segments[each].free) for each in segments]
    if len(segments) > 1:
        if len(users) > 1:
            return None
        demand = users[0][0]
        return sum(each // demand.addresses for each in free) // demand.nics
    first = users[0][1]
    if any(not np.array_equal(first, hosts) for _, hosts in users):
        return None  # hosts take different numbers of addresses from it
    return free[0] // sum(demand.addresses * demand.nics for demand, _ in users)


def _laminar(pools: Sequence[AddressPool], size: int) -> bool:
    """Whether of any two pools that share hosts one contains the other."""
    sizes = [int(np.count_nonzero(pool.hosts)) for pool in pools]
    layers: list[NDArray[np.int64]] = []
    """Layers of pools without common hosts; a layer has the pool's number for each host, or -1."""
    for number, pool in enumerate(pools):
        layer = next((each for each in layers if not (each[pool.hosts] >= 0).any()), None)
        if layer is None:
            layers.append(layer := np.full(size, -1, dtype=np.int64))
        layer[pool.hosts] = number
    pairs: set[tuple[int, int]] = set()
    for at, one in enumerate(layers):
        for other in layers[at + 1 :]:
            both = (one >= 0) & (other >= 0)
            pairs |= set(zip(one[both].tolist(), other[both].tolist(), strict=True))
    return all(int(np.count_nonzero(pools[a].hosts & pools[b].hosts)) == min(sizes[a], sizes[b]) for a, b in pairs)


def filled(counts: Counts, pools: Sequence[AddressPool], live: Mask) -> tuple[int, list[int]]:
    """Return how many servers fit on these hosts, each limited by its count; and for each pool the room of its hosts."""
    left = np.where(live, counts, 0)
    masks = [pool.hosts & live for pool in pools]
    room = [0] * len(pools)
    for at in sorted(range(len(pools)), key=lambda each: int(np.count_nonzero(masks[each]))):
        mask, servers = masks[at], pools[at].servers
        room[at] = int(left[mask].sum())
        if room[at] > servers:
            left[mask] = 0
            left[int(np.argmax(mask))] = servers
    return int(left.sum()), room
