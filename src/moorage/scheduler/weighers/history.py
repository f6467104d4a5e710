"""What happened lately: hosts where builds failed come last."""

import numpy as np

from moorage.model.world import Ask, Scores, Slots, World


def build_failure(ask: Ask, world: World, slots: Slots) -> Scores | None:
    """Minus the builds that failed there since the last that worked, as this process saw it."""
    failures = world.failures[slots]
    return -failures.astype(np.float32) if failures.any() else None
