"""Parts of the cloud: availability zone, cell, and the level of the host's agent."""

import numpy as np

from moorage.model.world import Ask, Refusals, World


def availability_zone(ask: Ask, world: World) -> Refusals | None:
    """The request's zone, if it names one."""
    wanted = ask.availability_zone
    if wanted is None:
        return None
    names = list(world.zone_names)
    index = names.index(wanted) if wanted in names else -1
    return Refusals(
        world.zone != index,
        lambda slot: f"in zone {names[world.zone[slot]]}, {wanted} was asked for",
        f"not in availability zone {wanted}",
    )


def cell_allowed(ask: Ask, world: World) -> Refusals | None:
    """Some moves may not leave their cell."""
    if ask.cells is None:
        return None
    allowed = [index for index, cell in enumerate(world.cell_names) if cell in ask.cells]
    return Refusals(
        ~np.isin(world.cell, allowed), lambda slot: f"in cell {world.cell_names[world.cell[slot]]}", "in another cell"
    )


def agent_level(ask: Ask, world: World) -> Refusals | None:
    """A request begun with a newer behaviour needs agents that know it (RULES §13)."""
    if ask.min_level <= 0:
        return None
    return Refusals(
        world.level < ask.min_level,
        lambda slot: f"the agent is at level {int(world.level[slot])}, {ask.min_level} is needed",
        "the host's agent is too old for this request",
    )
