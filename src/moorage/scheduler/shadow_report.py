"""What differed between recorded decisions and a shadow's: placed, spread, and the addresses that are left."""

from dataclasses import dataclass, field

import msgspec
import numpy as np

from moorage.model.ids import HostId, ProviderId
from moorage.model.resources import IPV4_ADDRESS
from moorage.model.world import Ask, Ints, World
from moorage.scheduler.shadow import ShadowOutcome
from moorage.scheduler.shadow_world import Key, ShadowWorld

SAMPLES_MAX = 400
RESOURCE = "MEMORY_MB"


class Sample(msgspec.Struct, frozen=True):
    """One moment, then and in the shadow."""

    at: float
    placed: tuple[int, int]
    """Servers with a host, so far."""
    refused: tuple[int, int]
    """Without one."""
    spread: tuple[float, float]
    """Standard deviation of the part of memory that is taken, over all hosts in service."""
    addresses: tuple[int, int]
    """Left on the segment with the fewest, of those that were asked for so far."""


class SegmentLeft(msgspec.Struct, frozen=True):
    """Addresses of one segment."""

    name: str
    total: int
    left: tuple[int, int]
    """At the end, then and in the shadow."""
    least: tuple[int, int]
    """When there were fewest."""


class ShadowReport(msgspec.Struct, frozen=True):
    """All of it."""

    decisions: int
    placements: int
    """Attempts to place a server; one that lost its claim decided more than once."""
    placed: tuple[int, int]
    elsewhere: int
    """Placed by both, on different hosts."""
    gained: int
    """Placed by the shadow only."""
    missed: int
    """Placed then, and not by the shadow."""
    hosts_used: tuple[int, int]
    """Different hosts that were chosen."""
    most_on_one: tuple[int, int]
    """How often the host that was chosen most was chosen."""
    spread: tuple[float, float]
    segments: tuple[SegmentLeft, ...]
    samples: tuple[Sample, ...]


@dataclass
class _Seen:
    name: str
    total: int
    left: tuple[int, int]
    least: tuple[int, int]


@dataclass
class Collector:
    """Takes in outcome after outcome."""

    decisions: int = 0
    _last: dict[tuple[str, int], ShadowOutcome] = field(default_factory=dict)
    _placed: list[int] = field(default_factory=lambda: [0, 0])
    _segments: dict[ProviderId, _Seen] = field(default_factory=dict)
    _samples: list[Sample] = field(default_factory=list)
    _every: int = 1
    _spread: tuple[float, float] = (0.0, 0.0)
    _latest: tuple[World, ShadowWorld, dict[Key, int]] | None = None

    def add(self, outcome: ShadowOutcome, ask: Ask, base: World, shadow: ShadowWorld) -> None:
        """One decision, with the Worlds after it was made."""
        self.decisions += 1
        key = outcome.operation, outcome.attempt
        before, self._last[key] = self._last.get(key), outcome
        for side in (0, 1):
            self._placed[side] += _where(outcome, side) is not None
            self._placed[side] -= before is not None and _where(before, side) is not None
        for segment in {each for nic in ask.nics for each in nic.segments if each in base.segments}:
            self._see(segment, base, shadow, outcome.taken.get((segment, IPV4_ADDRESS), 0))
        self._latest = base, shadow, outcome.taken
        if self.decisions % self._every == 0:
            self._sample(outcome.at)

    def _see(self, segment: ProviderId, base: World, shadow: ShadowWorld, taken: int) -> None:
        now = base.segments[segment]
        left = now.free - taken, shadow.free_addresses(base, segment) - taken
        known = self._segments.get(segment)
        least = left if known is None else (min(left[0], known.least[0]), min(left[1], known.least[1]))
        self._segments[segment] = _Seen(now.name, now.total, left, least)

    def _sample(self, at: float) -> None:
        if self._latest is None:
            return
        self._spread = _spreads(*self._latest)
        lefts = [each.left for each in self._segments.values()]
        addresses = (min(left[0] for left in lefts), min(left[1] for left in lefts)) if lefts else (0, 0)
        placed, attempts = (self._placed[0], self._placed[1]), len(self._last)
        refused = attempts - placed[0], attempts - placed[1]
        self._samples.append(Sample(at, placed, refused, self._spread, addresses))
        if len(self._samples) > SAMPLES_MAX:
            self._samples, self._every = self._samples[1::2], 2 * self._every

    def report(self) -> ShadowReport:
        """Of all that was taken in."""
        outcomes = list(self._last.values())
        if outcomes and (not self._samples or self._samples[-1].at != outcomes[-1].at):
            self._sample(outcomes[-1].at)
        used: tuple[dict[str, int], dict[str, int]] = ({}, {})
        for outcome in outcomes:
            for side in (0, 1):
                if (host := _where(outcome, side)) is not None:
                    used[side][host] = used[side].get(host, 0) + 1
        both = [each for each in outcomes if each.recorded is not None and each.shadow is not None]
        return ShadowReport(
            decisions=self.decisions,
            placements=len(outcomes),
            placed=(self._placed[0], self._placed[1]),
            elsewhere=sum(each.recorded != each.shadow for each in both),
            gained=sum(each.recorded is None and each.shadow is not None for each in outcomes),
            missed=sum(each.recorded is not None and each.shadow is None for each in outcomes),
            hosts_used=(len(used[0]), len(used[1])),
            most_on_one=(max(used[0].values(), default=0), max(used[1].values(), default=0)),
            spread=self._spread,
            segments=tuple(
                SegmentLeft(each.name, each.total, each.left, each.least)
                for each in sorted(self._segments.values(), key=lambda segment: segment.name)
            ),
            samples=tuple(self._samples),
        )


def _where(outcome: ShadowOutcome, side: int) -> str | None:
    return outcome.shadow if side else outcome.recorded


def _spreads(base: World, shadow: ShadowWorld, taken: dict[Key, int]) -> tuple[float, float]:
    if RESOURCE not in base.free:
        return 0.0, 0.0
    then, other = base.free[RESOURCE].copy(), shadow.free(base, RESOURCE).copy()
    for (provider, resource), amount in taken.items():
        if resource == RESOURCE and (slot := base.slots.get(HostId(provider))) is not None:
            then[slot] -= amount
            other[slot] -= amount
    return _spread(base, then), _spread(base, other)


def _spread(base: World, free: Ints) -> float:
    capacity = base.capacity[RESOURCE]
    mask = base.present & base.enabled & (capacity > 0)
    if not mask.any():
        return 0.0
    return float(np.std(1 - free[mask] / capacity[mask]))
