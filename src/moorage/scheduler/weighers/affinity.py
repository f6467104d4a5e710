"""Soft policies of server groups, and staying in one's cell."""

import numpy as np

from moorage.model.world import Ask, Scores, Slots, World


def soft_group(ask: Ask, world: World, slots: Slots) -> Scores | None:
    """soft-affinity: the more of the group the better; soft-anti-affinity: the fewer the better."""
    group = ask.group
    if group is None or not group.policy.startswith("soft-") or (known := world.groups.get(group.id)) is None:
        return None
    count = np.zeros(world.size, dtype=np.float32)
    for host, n in known.hosts.items():
        if host in world.slots:
            count[world.slots[host]] = n
    return count[slots] if group.policy == "soft-affinity" else -count[slots]


def same_cell(ask: Ask, world: World, slots: Slots) -> Scores | None:
    """A move that may leave its cell had better not."""
    if ask.prefer_cell is None:
        return None
    index = list(world.cell_names).index(ask.prefer_cell) if ask.prefer_cell in world.cell_names else -1
    scores: Scores = (world.cell[slots] == index).astype(np.float32)
    return scores
