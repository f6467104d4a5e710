"""Rejects hosts that a server group's policy forbids.  The claim's counters decide; this filter avoids most refused claims."""

import numpy as np

from moorage.model.world import Ask, Refusals, World


def server_group(ask: Ask, world: World) -> Refusals | None:
    """Reject hosts that a server group's policy forbids; soft policies only change weights.

    Affinity: only the group's host is allowed, except for a move of its only member.  Anti-affinity: only hosts with fewer of the
    group's servers than its maximum.
    """
    group = ask.group
    if group is None or (known := world.groups.get(group.id)) is None:
        return None
    alone = group.own > 0 and sum(known.hosts.values()) <= group.own
    if group.policy == "affinity" and known.home is not None and not alone:
        mask = np.ones(world.size, dtype=np.bool_)
        if known.home in world.slots:
            mask[world.slots[known.home]] = False
        return Refusals(mask, lambda slot: "not where the group's servers are", "the server group is elsewhere")
    if group.policy == "anti-affinity":
        mask = np.zeros(world.size, dtype=np.bool_)
        full = {world.slots[h]: n for h, n in known.hosts.items() if n >= group.max_per_host and h in world.slots}
        mask[list(full)] = True
        return Refusals(
            mask,
            lambda slot: f"has {full[slot]} of the group's servers, at most {group.max_per_host} may be",
            "a server of the group is there",
        )
    return None
