"""Rejects hosts by availability zone, by cell, and by the level of their agents."""

import numpy as np

from moorage.model.world import Ask, Refusals, World

ANY_LEVEL = 127
NOBODY_BINDS = "the ports could not be bound there: the conductor has no credentials for the network service"


def availability_zone(ask: Ask, world: World) -> Refusals | None:
    """Reject hosts outside the request's availability zone, if it names one."""
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
    """Reject hosts of other cells for moves that may not leave their cell."""
    if ask.cells is None:
        return None
    allowed = [index for index, cell in enumerate(world.cell_names) if cell in ask.cells]
    return Refusals(
        ~np.isin(world.cell, allowed), lambda slot: f"in cell {world.cell_names[world.cell[slot]]}", "in another cell"
    )


def cell_enabled(ask: Ask, world: World) -> Refusals | None:
    """Reject hosts of disabled cells: no server comes in from elsewhere, but a server that may only go to certain cells can move within.

    Nova's scheduler does the same: it uses a disabled cell only for a move that may not leave that cell.
    """
    if not world.cell_disabled.any():
        return None
    own = [cell for cell in ask.cells or () if ask.prefer_cell in (None, cell)]
    at_home = [index for index, cell in enumerate(world.cell_names) if cell in own]
    return Refusals(
        world.cell_disabled & ~np.isin(world.cell, at_home),
        lambda slot: f"its cell {world.cell_names[world.cell[slot]]} is disabled by an administrator",
        "the host's cell is disabled",
    )


def cell_answers(ask: Ask, world: World) -> Refusals | None:
    """Reject hosts of cells whose database is out, because a server could not be recorded there."""
    if not ask.cells_out:
        return None
    out = [index for index, cell in enumerate(world.cell_names) if cell in ask.cells_out]
    return Refusals(
        np.isin(world.cell, out),
        lambda slot: f"the database of its cell {world.cell_names[world.cell[slot]]} does not answer",
        "the database of the host's cell does not answer",
    )


def cell_fits(ask: Ask, world: World) -> Refusals | None:
    """Reject hosts of cells that cannot take the volumes, addresses and disks that a moved server brings."""
    if not ask.cells_unfit:
        return None
    unfit = [index for index, cell in enumerate(world.cell_names) if cell in ask.cells_unfit]

    def why(slot: int) -> str:
        cell = world.cell_names[world.cell[slot]]
        return f"cell {cell}: {ask.cells_unfit[cell]}"

    known = dict.fromkeys(ask.cells_unfit[world.cell_names[index]].cause for index in unfit)
    return Refusals(np.isin(world.cell, unfit), why, "; ".join(known))


def agent_level(ask: Ask, world: World) -> Refusals | None:
    """Reject hosts whose agents are too old for the behaviour with which the request began (RULES §13)."""
    if ask.min_level <= 0 and ask.max_level >= ANY_LEVEL:
        return None
    old, new = world.level < ask.min_level, world.level > ask.max_level

    def why(slot: int) -> str:
        level = f"the agent is at level {int(world.level[slot])}"
        if old[slot]:
            return f"{level}, {ask.min_level} is needed"
        return f"{level} and takes bound ports only, and the conductor has no credentials for the network service"

    cause = "the host's agent is too old for this request"
    return Refusals(old | new, why, cause if not new.any() else NOBODY_BINDS)
