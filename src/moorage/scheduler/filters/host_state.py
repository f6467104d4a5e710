"""Hosts that are not there, switched off by an administrator, or silent."""

from moorage.model.world import Ask, Refusals, World


def host_enabled(ask: Ask, world: World) -> Refusals | None:
    """An administrator may take a host out of service."""
    return Refusals(~world.enabled, lambda slot: "disabled by an administrator", "disabled")


def host_alive(ask: Ask, world: World) -> Refusals | None:
    """A host that is not heard of gets nothing new."""
    return Refusals(~world.alive, lambda slot: "not heard from", "not heard from")
