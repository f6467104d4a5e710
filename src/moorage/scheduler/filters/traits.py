"""Rejects hosts by the traits that flavor and image require or forbid."""

import numpy as np

from moorage.model.world import Ask, Refusals, World
from moorage.scheduler.columns import has_trait


def has_traits(ask: Ask, world: World) -> Refusals | None:
    """Reject hosts that lack a required trait or have a forbidden one."""
    if not ask.required and not ask.forbidden:
        return None
    missing = {trait: ~has_trait(world, trait) for trait in ask.required}
    unwanted = {trait: has_trait(world, trait) for trait in ask.forbidden}
    mask = np.zeros(world.size, dtype=np.bool_)
    for part in (*missing.values(), *unwanted.values()):
        mask |= part

    def why(slot: int) -> str:
        lacks = [trait for trait, part in missing.items() if part[slot]]
        has = [trait for trait, part in unwanted.items() if part[slot]]
        return "; ".join(
            ([f"lacks trait {', '.join(lacks)}"] if lacks else []) + ([f"has trait {', '.join(has)}"] if has else [])
        )

    names = [f"without {trait}" for trait, part in missing.items() if (part & world.present).any()]
    names += [f"with {trait}" for trait, part in unwanted.items() if (part & world.present).any()]
    return Refusals(mask, why, f"traits do not match: {', '.join(names)}" if names else "traits do not match")
