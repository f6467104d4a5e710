"""Weighs soft policies of server groups, and moves that stay in their cell."""

import numpy as np

from moorage.model.world import Ask, Scores, Slots, World


def soft_affinity(ask: Ask, world: World, slots: Slots) -> Scores | None:
    """Prefer hosts with more servers of the group."""
    return _members(ask, world, slots, "soft-affinity")


def soft_anti_affinity(ask: Ask, world: World, slots: Slots) -> Scores | None:
    """Prefer hosts with fewer servers of the group."""
    count = _members(ask, world, slots, "soft-anti-affinity")
    return None if count is None else -count


def _members(ask: Ask, world: World, slots: Slots, policy: str) -> Scores | None:
    """The number of the group's servers on each host; None: it has another policy."""
    group = ask.group
    if group is None or group.policy != policy or (known := world.groups.get(group.id)) is None:
        return None
    count: Scores = np.zeros(world.size, dtype=np.float32)
    for host, n in known.hosts.items():
        if host in world.slots:
            count[world.slots[host]] = n
    return count[slots]


def cross_cell_move(ask: Ask, world: World, slots: Slots) -> Scores | None:
    """Prefer hosts of the same cell for a move that may leave it."""
    if ask.prefer_cell is None:
        return None
    index = list(world.cell_names).index(ask.prefer_cell) if ask.prefer_cell in world.cell_names else -1
    scores: Scores = (world.cell[slots] == index).astype(np.float32)
    return scores
