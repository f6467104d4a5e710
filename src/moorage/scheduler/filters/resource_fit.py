"""Rejects hosts that lack an amount of a resource class, or whose inventories do not allow such an amount."""

import numpy as np

from moorage.model.world import Ask, Refusals, Scores, Slots, World
from moorage.scheduler.columns import missing, short

WORDS = {"VCPU": "vCPUs", "MEMORY_MB": "memory", "DISK_GB": "disk"}


def _why(world: World, resource: str, amount: int, slot: int) -> str:
    free = world.free.get(resource)
    if free is None or world.capacity[resource][slot] <= 0:
        return f"offers no {resource}"
    units = world.units[resource]
    if free[slot] < amount:
        return f"{amount} {resource} asked, {max(0, int(free[slot]))} of {int(world.capacity[resource][slot])} free"
    if amount > units.maximum[slot]:
        return f"{amount} {resource} asked, at most {int(units.maximum[slot])} may be given at once"
    if amount < units.minimum[slot]:
        return f"{amount} {resource} asked, at least {int(units.minimum[slot])} must be"
    return f"{amount} {resource} asked, given only in steps of {int(units.step[slot])}"


def fits(ask: Ask, world: World) -> Refusals | None:
    """Reject hosts that lack an amount which is asked of the host itself."""
    if not ask.resources:
        return None
    shorts = {resource: short(world, resource, amount) for resource, amount in ask.resources.items()}
    mask = np.zeros(world.size, dtype=np.bool_)
    for part in shorts.values():
        mask |= part

    def why(slot: int) -> str:
        return "; ".join(_why(world, name, ask.resources[name], slot) for name, part in shorts.items() if part[slot])

    def lack(slots: Slots) -> Scores:
        total = np.zeros(len(slots), dtype=np.float32)
        for resource, part in shorts.items():
            total += np.where(part[slots], missing(world, resource, ask.resources[resource], slots), 0)
        return total

    words = [WORDS.get(name, name) for name, part in shorts.items() if (part & world.present).any()]
    return Refusals(mask, why, f"not enough {' or '.join(words)}" if words else "not enough resources", lack)
