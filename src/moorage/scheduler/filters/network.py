"""Rejects hosts that the request's networks do not reach, and hosts whose segments have too few addresses left."""

from collections import Counter
from typing import NamedTuple

import numpy as np

from moorage.model.ids import ProviderId
from moorage.model.world import NO_SEGMENT, SEVERAL, Ask, Mask, Refusals, World

NAMED_MAX = 3
"""How many segments a refusal names; if there are more, it only counts them."""


class Demand(NamedTuple):
    """Equal NICs together: their number, the addresses of each, and the segments that can serve them."""

    segments: tuple[ProviderId, ...]
    addresses: int
    nics: int


def demands_of(ask: Ask) -> list[Demand]:
    counted = Counter((nic.segments, nic.addresses) for nic in ask.nics if nic.segments)
    return [Demand(segments, addresses, nics) for (segments, addresses), nics in counted.items()]


def _named(segments: tuple[ProviderId, ...], world: World) -> str:
    """Name the segments: if a port has its address already, only these segments are possible."""
    if len(segments) > NAMED_MAX:
        return f"any of the network's {len(segments)} segments"
    return " or ".join(world.segments[each].name if each in world.segments else str(each) for each in segments)


def network_reach(ask: Ask, world: World) -> Refusals | None:
    """Reject hosts that are not wired to each NIC's physical network, and to one of the segments that could serve it."""
    unreached: dict[str, Mask] = {}
    for names in {nic.physnets for nic in ask.nics if nic.physnets}:
        reached = ~world.physnets_known
        for name in names:
            if (mask := world.physnets.get(name)) is not None:
                reached = reached | mask
        unreached["physical network " + " or ".join(names)] = ~reached
    for demand in demands_of(ask):
        unwired = world.reach(demand.segments).unwired
        named = _named(demand.segments, world)
        before = unreached.get(named)
        unreached[named] = unwired if before is None else unwired | before
    if not unreached:
        return None
    first, *others = unreached.values()
    mask = first
    for part in others:
        mask = mask | part

    def why(slot: int) -> str:
        return "not wired to " + ", nor to ".join(what for what, part in unreached.items() if part[slot])

    return Refusals(mask, why, "not wired to the network")


def _short(demand: Demand, world: World) -> Mask | None:
    """Hosts whose segments have too few addresses for all NICs of the demand; None: every segment has enough."""
    each, known = demand.addresses, world.segments
    least = demand.nics * each
    if not each or all(known[s].free >= least for s in demand.segments if s in known):
        return None
    nics = np.zeros(len(demand.segments) + 2, dtype=np.int32)  # the last two: SEVERAL and NO_SEGMENT
    for place, segment in enumerate(demand.segments):
        if segment in known:
            nics[place] = min(demand.nics, max(0, known[segment].free) // each)
    only = world.reach(demand.segments).only
    short: Mask = nics[only] < demand.nics
    several = only == SEVERAL
    if several.any():
        count = np.zeros(world.size, dtype=np.int32)
        for place, segment in enumerate(demand.segments):
            if nics[place]:
                count += known[segment].wired * nics[place]
        short[several] = count[several] < demand.nics
    return short


def _unplaced(ask: Ask, demands: list[Demand], world: World, left: Mask) -> Mask:
    """Those of these hosts on which unequal NICs would have to share addresses that suffice for each alone, but not for all.

    Hosts with equal wiring are judged once; a network has few segments, so there are few kinds of wiring.
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
    """Reject hosts whose segments have too few free addresses for all NICs together."""
    demands = demands_of(ask)
    if not demands:
        return None
    shorts = [short for demand in demands if (short := _short(demand, world)) is not None]
    mask = shorts[0] if shorts else np.zeros(world.size, dtype=np.bool_)
    for short in shorts[1:]:
        mask = mask | short
    if len(demands) > 1:
        mask = mask | _unplaced(ask, demands, world, world.present & ~mask)
    elif not shorts:
        return None
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
    """Choose for each NIC the segment with the most free addresses on this host; None: the addresses do not suffice."""
    if not any(nic.segments for nic in ask.nics):
        return tuple(None for _ in ask.nics)
    if len(ask.nics) == 1 and (place := int(world.reach(ask.nics[0].segments).only[slot])) >= 0:
        one = ask.nics[0].segments[place]
        return (one,) if world.segments[one].free >= ask.nics[0].addresses else None
    left: dict[ProviderId, int] = {}
    chosen: dict[int, ProviderId] = {}
    order = sorted(range(len(ask.nics)), key=lambda index: len(ask.nics[index].segments))
    for index in order:
        nic = ask.nics[index]
        if not nic.segments:
            continue
        place = int(world.reach(nic.segments).only[slot])
        wired = (
            [s for s in nic.segments if s in world.segments and world.segments[s].wired[slot]]
            if place == SEVERAL
            else [nic.segments[place]]
            if place != NO_SEGMENT
            else []
        )
        free = {s: left.get(s, world.segments[s].free) for s in wired}
        enough = [s for s in wired if free[s] >= nic.addresses]
        if not enough:
            return None
        best = max(enough, key=lambda s: free[s])
        left[best] = free[best] - nic.addresses
        chosen[index] = best
    return tuple(chosen.get(index) for index in range(len(ask.nics)))
