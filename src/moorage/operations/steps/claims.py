"""What every region step that claims resources does with the result of its commit."""

from typing import TypeVar

from moorage.model.verdict import Claimed, Shortage
from moorage.placement.engine import Engine

T = TypeVar("T")


def first(answer: tuple[T, object] | tuple[T, object, object]) -> T:
    """For `Run.commit`: the step's result is the first part of what the work returns."""
    return answer[0]


def granted(engine: Engine, answer: tuple[T, Claimed] | Shortage) -> T | Shortage:
    """Apply the result of a claim to the cache; return the step's result, or why the claim was lost."""
    if isinstance(answer, Shortage):
        engine.lost(answer)
        return answer
    engine.claimed(answer[1])
    return answer[0]
