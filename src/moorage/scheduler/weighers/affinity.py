"""Soft policies of server groups, and staying in one's cell."""

import numpy as np

from moorage.model.world import Ask, Scores, Slots, World


def soft_affinity(ask: Ask, world: World, slots: Slots) -> Scores | None:
    """The more of the group the better."""
    return _members(ask, world, slots, "soft-affinity")


def soft_anti_affinity(ask: Ask, world: World, slots: Slots) -> Scores | None:
    """The fewer of the group the better."""
    count = _members(ask, world, slots, "soft-anti-affinity")
    return None if count is None else -count


def _members(ask: Ask, world: World, slots: Slots, policy: str) -> Scores | None:
    """How many of the group are on each host; None: its policy is another."""
    group = ask.group
    if group is None or group.policy != policy or (known := world.groups.get(group.id)) is None:
        return None
    count: Scores = np.zeros(world.size, dtype=np.float32)
    for host, n in known.hosts.items():
        if host in world.slots:
            count[world.slots[host]] = n
    return count[slots]


def cross_cell_move(ask: Ask, world: World, slots: Slots) -> Scores | None:
    """A move that may leave its cell had better not."""
    if ask.prefer_cell is None:
        return None
    index = list(world.cell_names).index(ask.prefer_cell) if ask.prefer_cell in world.cell_names else -1
    scores: Scores = (world.cell[slots] == index).astype(np.float32)
    return scores
