"""Searches the best hosts, in the order of their scores, for a place for all request groups together."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

import numpy as np

from moorage.model.ids import ProviderId
from moorage.model.world import Ask, Choice, Mask, Refusals, Slots, World
from moorage.scheduler.filters.network import choose_segments
from moorage.scheduler.host_tree import GAVE_UP, Providers, cause_of, describe, read_tree, search, ways

WAYS_PER_HOST_MAX = 4
"""Number of ways that are offered for one host if only few hosts pass: if another claim takes one device, others are left."""

NAME = "devices_together"

Segments = tuple[ProviderId | None, ...]


@dataclass
class GroupPlacement:
    """The choices, best first, and the hosts on which the groups have no place together."""

    best: list[Choice] = field(default_factory=list)
    refused: dict[str, list[int]] = field(default_factory=dict)
    """Cause → slots."""

    def refusals(self, ask: Ask, world: World) -> Iterator[tuple[str, Refusals, Mask]]:
        for cause, slots in self.refused.items():
            mask = np.zeros(world.size, dtype=np.bool_)
            mask[slots] = True
            yield NAME, Refusals(mask, partial(_why, ask, world, cause), cause), mask


def _why(ask: Ask, world: World, cause: str, slot: int) -> str:
    return describe(ask, read_tree(ask, world, slot), cause)


def place(ask: Ask, world: World, runs: Iterable[Slots], enough: int) -> GroupPlacement:
    """Search the hosts of each run in order until `enough` have a place; the next run is searched only if no host had one."""
    placement, searches = GroupPlacement(), _HostSearches(ask, world)
    firsts: list[tuple[int, Segments, Providers]] = []
    for run in runs:
        for slot in run.tolist():
            segments = choose_segments(ask, world, slot)
            if segments is None:
                continue
            answer = searches.first(slot)
            if isinstance(answer, str):
                placement.refused.setdefault(answer, []).append(slot)
                continue
            firsts.append((slot, segments, answer))
            if len(firsts) == enough:
                break
        if firsts:
            break
    placement.best = [_choice(world, slot, segments, way) for slot, segments, way in firsts]
    for slot, segments, first in firsts:
        room = min(WAYS_PER_HOST_MAX - 1, enough - len(placement.best))
        others = (way for way in searches.every(slot) if way != first) if room > 0 else iter(())
        placement.best += [_choice(world, slot, segments, way) for way in islice(others, max(0, room))]
    return placement


def _choice(world: World, slot: int, segments: Segments, providers: Providers) -> Choice:
    cell = world.cell_names[int(world.cell[slot])]
    return Choice(world.host_ids[slot], world.names[slot], cell, segments, providers)


class _HostSearches:
    """Searches each shape of host once, so that a fleet of equal hosts without a place needs one search."""

    def __init__(self, ask: Ask, world: World) -> None:
        self._ask, self._world = ask, world
        self._causes: dict[object, str] = {}

    def first(self, slot: int) -> Providers | str:
        """Return the first way to serve the groups, or why there is none."""
        tree = read_tree(self._ask, self._world, slot)
        shape = tree.shape(named=bool(self._ask.same_device))
        if (cause := self._causes.get(shape)) is not None:
            return cause
        searched = search(self._ask, tree)
        if (first := next(ways(searched), None)) is not None:
            return first
        cause = self._causes[shape] = GAVE_UP if searched.exhausted else cause_of(self._ask, tree)
        return cause

    def every(self, slot: int) -> Iterator[Providers]:
        """Return all ways, also those that differ only in which of several equal providers is taken."""
        return ways(search(self._ask, read_tree(self._ask, self._world, slot), every=True))
