"""Prefer hosts with more room: memory, vCPUs, disk, as Nova's weighers of these names do."""

import numpy as np

from moorage.model.world import Ask, Scores, Slots, World


def _free(world: World, resource: str, slots: Slots) -> Scores | None:
    column = world.free.get(resource)
    return None if column is None else column[slots].astype(np.float32)


def ram(ask: Ask, world: World, slots: Slots) -> Scores | None:
    return _free(world, "MEMORY_MB", slots)


def cpu(ask: Ask, world: World, slots: Slots) -> Scores | None:
    return _free(world, "VCPU", slots)


def disk(ask: Ask, world: World, slots: Slots) -> Scores | None:
    return _free(world, "DISK_GB", slots)
