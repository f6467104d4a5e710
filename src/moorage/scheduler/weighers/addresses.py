"""Weighs free addresses: a server that can choose takes a segment with many left, and leaves the last ones to servers without a choice."""

from collections.abc import Callable

import numpy as np

from moorage.model.ids import ProviderId
from moorage.model.world import SEVERAL, Ask, NicRequirement, Scores, Segment, Slots, World

LAST_SHARE = 0.1
"""The last tenth of a segment's addresses is for servers that can be nowhere else."""


def segment_addresses(ask: Ask, world: World, slots: Slots) -> Scores | None:
    """Prefer the segment with the most addresses left."""
    return _lowest(ask, world, slots, lambda segment, nic: float(segment.free - nic.addresses))


def last_addresses(ask: Ask, world: World, slots: Slots) -> Scores | None:
    """Avoid segments with less than a tenth of their addresses left, the more the fewer are left; all other segments are equal."""
    scores = _lowest(ask, world, slots, _below_reserve)
    return scores if scores is not None and scores.any() else None


def _below_reserve(segment: Segment, nic: NicRequirement) -> float:
    reserve = max(1.0, segment.total * LAST_SHARE)
    return min(0.0, (segment.free - nic.addresses - reserve) / reserve)


def _lowest(ask: Ask, world: World, slots: Slots, worth: Callable[[Segment, NicRequirement], float]) -> Scores | None:
    """The value of each host's best segment, for the NIC with the lowest value; None: no NIC can choose."""
    lowest: Scores | None = None
    for nic in dict.fromkeys(nic for nic in ask.nics if len(nic.segments) > 1 and nic.addresses):
        scores = _of_hosts(nic, world, slots, worth)
        lowest = scores if lowest is None else np.minimum(lowest, scores)
    return lowest


def _of_hosts(
    nic: NicRequirement, world: World, slots: Slots, worth: Callable[[Segment, NicRequirement], float]
) -> Scores:
    known: list[tuple[int, ProviderId, float]] = []
    values = np.zeros(len(nic.segments) + 2, dtype=np.float32)  # the last two: SEVERAL and NO_SEGMENT
    for place, id in enumerate(nic.segments):
        if (segment := world.segments.get(id)) is not None:
            values[place] = worth(segment, nic)
            known.append((place, id, float(values[place])))
    only = world.reach(nic.segments).only[slots]
    scores: Scores = values[only]
    several = np.flatnonzero(only == SEVERAL)
    if len(several):
        most = np.full(len(several), -np.inf, dtype=np.float32)
        for _, id, value in known:
            wired = world.segments[id].wired[slots[several]]
            most[wired] = np.maximum(most[wired], np.float32(value))
        scores[several] = most
    return scores
