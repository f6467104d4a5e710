"""Weighs recent failures: hosts on which builds failed come last."""

import numpy as np

from moorage.model.world import Ask, Scores, Slots, World


def build_failure(ask: Ask, world: World, slots: Slots) -> Scores | None:
    """Return minus the number of builds that failed since the last success, as this process saw it."""
    failures = world.failures[slots]
    return -failures.astype(np.float32) if failures.any() else None
