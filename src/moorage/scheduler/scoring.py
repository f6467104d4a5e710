"""Scores hosts: scales the result of each weigher, and multiplies it as configuration and aggregates say."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from moorage.model.world import Ask, Scores, Slots, Weigher, World

SUFFIX = "_weight_multiplier"
"""Suffix of settings and of aggregates' metadata, after the weigher's name (Nova's names)."""


class Weighing(NamedTuple):
    """One weigher, and its multiplier if neither configuration nor an aggregate sets another."""

    weigher: Weigher
    multiplier: float

    @property
    def name(self) -> str:
        return str(getattr(self.weigher, "__name__", type(self.weigher).__name__))


@dataclass(frozen=True)
class Weighed:
    """The scores of hosts that were scored together: the sum, and the part of each weigher."""

    slots: Slots
    total: Scores
    parts: Sequence[tuple[str, Scores]]

    def of(self, slot: int) -> dict[str, float] | None:
        """Return the parts of one host, by weigher; None: it was not among these hosts."""
        at = np.flatnonzero(self.slots == slot)
        if not len(at):
            return None
        return {name: round(float(part[at[0]]), 3) for name, part in self.parts}


def weigh(weighers: Sequence[Weighing], ask: Ask, world: World, slots: Slots) -> Weighed:
    """Return the weighted sum, each weigher scaled to 0…1 over these hosts; zeros if no weigher applies."""
    total = np.zeros(len(slots), dtype=np.float32)
    parts: list[tuple[str, Scores]] = []
    set_apart = of_aggregates(world, slots, {each.name: each.multiplier for each in weighers})
    for each in weighers:
        multiplier = set_apart.get(each.name, each.multiplier)
        if isinstance(multiplier, float) and not multiplier:
            continue
        if (scores := each.weigher(ask, world, slots)) is None:
            continue
        low, high = scores.min(), scores.max()
        if high > low:
            part = np.float32(multiplier) * ((scores - low) / (high - low))
            total += part
            parts.append((each.name, part))
    return Weighed(slots, total, parts)


def of_aggregates(world: World, slots: Slots, multipliers: Mapping[str, float]) -> dict[str, Scores]:
    """Return weigher → its multiplier on each host, if an aggregate's metadata sets one; of several the lowest, as in Nova.

    A value that is not a number is ignored, because the API accepts any text there.
    """
    columns: dict[str, Scores] = {}
    for aggregate in world.aggregates:
        for key, value in aggregate.metadata.items():
            name = key.removesuffix(SUFFIX)
            if name == key or name not in multipliers or (number := _number(value)) is None:
                continue
            column = columns.setdefault(name, np.full(len(slots), np.inf, dtype=np.float32))
            inside = aggregate.hosts[slots]
            column[inside] = np.minimum(column[inside], np.float32(number))
    return {
        name: np.where(np.isinf(column), np.float32(multipliers[name]), column).astype(np.float32)
        for name, column in columns.items()
    }


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
