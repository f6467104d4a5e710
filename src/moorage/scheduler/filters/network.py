"""Where the request's networks are: wires first, then free addresses on the segments."""

from collections import Counter
from typing import NamedTuple

import numpy as np

from moorage.model.ids import ProviderId
from moorage.model.world import Ask, Mask, Refusals, World


class _Demand(NamedTuple):
    """Equal NICs together: so many of them, so many addresses each, from any of these segments."""

    segments: tuple[ProviderId, ...]
    addresses: int
    nics: int


def _demands(ask: Ask) -> list[_Demand]:
    counted = Counter((nic.segments, nic.addresses) for nic in ask.nics if nic.segments)
    return [_Demand(segments, addresses, nics) for (segments, addresses), nics in counted.items()]


def network_reach(ask: Ask, world: World) -> Refusals | None:
    """A host must be wired to each NIC's physical network, and to one of the segments that could serve it."""
    unreached: dict[str, Mask] = {}
    for names in {nic.physnets for nic in ask.nics if nic.physnets}:
        reached = ~world.physnets_known
        for name in names:
            if (mask := world.physnets.get(name)) is not None:
                reached = reached | mask
        unreached["physical network " + " or ".join(names)] = ~reached
    for demand in _demands(ask):
        wired = np.zeros(world.size, dtype=np.bool_)
        for segment in demand.segments:
            if segment in world.segments:
                wired |= world.segments[segment].wired
        unreached["any of the network's segments"] = ~wired | unreached.get("any of the network's segments", False)
    if not unreached:
        return None
    mask = np.zeros(world.size, dtype=np.bool_)
    for part in unreached.values():
        mask |= part

    def why(slot: int) -> str:
        return "not wired to " + ", nor to ".join(what for what, part in unreached.items() if part[slot])

    return Refusals(mask, why, "not wired to the network")


def _served(demand: _Demand, world: World) -> Mask:
    """Hosts whose segments have enough addresses for every NIC of the demand."""
    known = [world.segments[s] for s in demand.segments if s in world.segments]
    each = demand.addresses
    nics = [demand.nics if not each else min(demand.nics, max(0, segment.free) // each) for segment in known]
    served = np.zeros(world.size, dtype=np.bool_)
    for segment, n in zip(known, nics, strict=True):
        if n == demand.nics:
            served |= segment.wired
    if demand.nics == 1 or not any(0 < n < demand.nics for n in nics):
        return served
    count = np.zeros(world.size, dtype=np.int32)
    for segment, n in zip(known, nics, strict=True):
        count += segment.wired * np.int32(n)
    return served | (count >= demand.nics)


def _unplaced(ask: Ask, demands: list[_Demand], world: World, left: Mask) -> Mask:
    """Of these hosts, where unequal NICs would have to share what is enough for each alone.

    Hosts that are wired alike are judged once; a network has few segments, so there are few ways to be wired.
    """
    mask = np.zeros(world.size, dtype=np.bool_)
    named = [s for demand in demands for s in demand.segments]
    shared = [s for s, times in Counter(named).items() if times > 1 and s in world.segments]
    slots = np.flatnonzero(left)
    if not shared or not len(slots):
        return mask
    known = [s for s in dict.fromkeys(named) if s in world.segments]
    wiring = np.stack([world.segments[s].wired[slots] for s in known])
    _, first, alike = np.unique(wiring, axis=1, return_index=True, return_inverse=True)
    in_vain = np.array([choose_segments(ask, world, int(slots[at])) is None for at in first], dtype=np.bool_)
    mask[slots] = in_vain[alike.reshape(-1)]
    return mask


def segment_addresses(ask: Ask, world: World) -> Refusals | None:
    """Free addresses on the segments that the host is wired to, for all NICs together."""
    demands = _demands(ask)
    if not demands:
        return None
    mask = np.zeros(world.size, dtype=np.bool_)
    for demand in demands:
        mask |= ~_served(demand, world)
    if len(demands) > 1:
        mask |= _unplaced(ask, demands, world, world.present & ~mask)
    numbers = {
        s: (world.segments[s].name, max(0, world.segments[s].free), world.segments[s].total)
        for demand in demands
        for s in demand.segments
        if s in world.segments
    }

    def why(slot: int) -> str:
        return "; ".join(
            f"{name} has {free} of {total} addresses free"
            for s, (name, free, total) in numbers.items()
            if world.segments[s].wired[slot]
        )

    return Refusals(mask, why, "no free address on the network's segment")


def choose_segments(ask: Ask, world: World, slot: int) -> tuple[ProviderId | None, ...] | None:
    """For each NIC the segment with the most free addresses that this host is wired to; None: they do not suffice."""
    if not any(nic.segments for nic in ask.nics):
        return tuple(None for _ in ask.nics)
    left: dict[ProviderId, int] = {}
    chosen: dict[int, ProviderId] = {}
    order = sorted(range(len(ask.nics)), key=lambda index: len(ask.nics[index].segments))
    for index in order:
        nic = ask.nics[index]
        if not nic.segments:
            continue
        wired = [s for s in nic.segments if s in world.segments and world.segments[s].wired[slot]]
        free = {s: left.get(s, world.segments[s].free) for s in wired}
        enough = [s for s in wired if free[s] >= nic.addresses]
        if not enough:
            return None
        best = max(enough, key=lambda s: free[s])
        left[best] = free[best] - nic.addresses
        chosen[index] = best
    return tuple(chosen.get(index) for index in range(len(ask.nics)))
