"""What rounds of faults are made of, and what they count."""

import math
import statistics
from collections import Counter
from dataclasses import dataclass, field

from moorage_testing.fault_moves import MoveOutcomes


@dataclass(frozen=True)
class RoundLoad:
    """What rounds are made of."""

    hosts: int = 4
    standing: int = 24
    """Servers that stay from round to round; what is more is deleted in the next one."""
    filled: bool = False
    """So many are booted before the first round."""
    moves: int = 0
    """Servers that are moved in each round."""
    kills_only: bool = False
    """Of APIs, conductors and agents: nothing is frozen, and PostgreSQL and NATS stay."""
    most_s: float = math.inf
    """After this time no round begins."""


@dataclass
class Orders:
    """What was acknowledged, and must therefore be kept."""

    boots: set[str] = field(default_factory=set)
    deletes: set[str] = field(default_factory=set)
    deletes_asked: set[str] = field(default_factory=set)
    """With those that got no answer."""
    stops: set[str] = field(default_factory=set)
    attaches: dict[str, str] = field(default_factory=dict)
    """Port → server."""
    audit: str | None = None
    """The audit that looks meanwhile."""
    unheard: int = 0
    """Requests without an answer: they may count or not."""

    def __len__(self) -> int:
        return len(self.boots) + len(self.deletes) + len(self.stops) + len(self.attaches)


@dataclass
class Totals:
    """Of all rounds."""

    rounds: int = 0
    acknowledged: int = 0
    unheard: int = 0
    failed: int = 0
    lost: list[str] = field(default_factory=list)
    leaked: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    recovery_s: list[float] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    moves: MoveOutcomes = field(default_factory=MoveOutcomes)

    @property
    def wrong(self) -> list[str]:
        """All that must not be."""
        return [*self.lost, *self.leaked, *self.stuck, *self.moves.alarms]

    def lines(self) -> list[str]:
        """For people."""
        took = sorted(self.recovery_s) or [0.0]
        drawn = ", ".join(f"{count} × {name}" for name, count in sorted(self.faults.items()))
        return [
            f"{self.rounds} rounds, {sum(self.faults.values())} faults: {drawn}",
            f"{self.acknowledged} acknowledged orders, {self.unheard} requests without an answer",
            f"{len(self.lost)} lost, {len(self.leaked)} leaked, {len(self.stuck)} stuck, {self.failed} servers ended in ERROR with a reason",
            *(f"  {count} × {reason}" for reason, count in self.reasons.most_common(8)),
            *(self.moves.lines() if self.moves.audits else ()),
            f"everything kept after the last fault's end: median {statistics.median(took):.1f} s, longest {took[-1]:.1f} s",
        ]
