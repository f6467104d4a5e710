"""Rejects hosts that an administrator has disabled, and silent hosts."""

from moorage.model.world import Ask, Refusals, World


def host_enabled(ask: Ask, world: World) -> Refusals | None:
    """Reject hosts that an administrator has disabled."""
    return Refusals(~world.enabled, lambda slot: "disabled by an administrator", "disabled")


def host_alive(ask: Ask, world: World) -> Refusals | None:
    """Reject silent hosts: they get no new servers."""
    return Refusals(~world.alive, lambda slot: "not heard from", "not heard from")
