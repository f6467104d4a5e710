"""The parts of a proof, which need nothing of one another, so that a suite can spread them over its workers."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

Way: TypeAlias = Literal["failing", "repeating", "dying at commits", "dying", "cancelling", "overtaken"]


@dataclass(frozen=True)
class ProofPart:
    """One way of breaking a saga, and which of its cases: `share` of every `of` points of an execution, in every scenario."""

    way: Way
    share: int = 0
    of: int = 1
    scenarios: str = ".*"
    points: str = ".*"
    """Only the scenarios and points whose names match these expressions: with real services each case takes a second."""

    @property
    def daily(self) -> bool:
        """For every run of the suite. The others are the whole matrix of crashes."""
        return self.way == "dying at commits"

    @property
    def quick(self) -> bool:
        """A few seconds at most."""
        return self.way in {"failing", "repeating", "dying at commits"}

    @property
    def name(self) -> str:
        return self.way.replace(" ", "-") + (f"-{self.share + 1}-of-{self.of}" if self.of > 1 else "")


_SHARES: dict[Way, int] = {
    "failing": 1,
    "repeating": 1,
    "dying at commits": 1,
    "dying": 2,
    "cancelling": 2,
    "overtaken": 3,
}
PARTS = tuple(ProofPart(way, share, of) for way, of in _SHARES.items() for share in range(of))
"""All of a proof; `dying` is without what `dying at commits` has."""
