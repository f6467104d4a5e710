"""The order of judgement: filters, and weighers with their weights."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from moorage.model.world import Ask, Filter, Scores, Slots, Weigher, World
from moorage.scheduler.filters.aggregates import flavor_aggregates, tenant_isolation
from moorage.scheduler.filters.devices import device_kinds, device_room, devices_in_all
from moorage.scheduler.filters.fits import fits
from moorage.scheduler.filters.has_traits import has_traits
from moorage.scheduler.filters.host_state import host_alive, host_enabled
from moorage.scheduler.filters.named import forced_host, hinted_hosts, tried_before
from moorage.scheduler.filters.network import network_reach, segment_addresses
from moorage.scheduler.filters.places import agent_level, availability_zone, cell_allowed, cell_answers
from moorage.scheduler.filters.server_group import server_group
from moorage.scheduler.weighers.affinity import same_cell, soft_group
from moorage.scheduler.weighers.history import build_failures
from moorage.scheduler.weighers.resources import cpu, disk, ram

FILTERS: tuple[Filter, ...] = (
    forced_host,
    tried_before,
    host_enabled,
    host_alive,
    agent_level,
    cell_allowed,
    cell_answers,
    availability_zone,
    hinted_hosts,
    tenant_isolation,
    flavor_aggregates,
    has_traits,
    network_reach,
    server_group,
    fits,
    device_kinds,
    device_room,
    devices_in_all,
    segment_addresses,
)

ARRIVING: frozenset[Filter] = frozenset(
    {
        host_enabled,
        host_alive,
        agent_level,
        cell_allowed,
        cell_answers,
        availability_zone,
        tenant_isolation,
        flavor_aggregates,
    }
)
"""What only a server that is new on a host is asked."""

WEIGHERS: tuple[tuple[Weigher, float], ...] = (
    (ram, 1.0),
    (cpu, 1.0),
    (disk, 1.0),
    (soft_group, 1.0),
    (build_failures, 1_000.0),
    (same_cell, 1_000.0),
)


@dataclass(frozen=True)
class Profile:
    """What is asked of every host, in this order, and what makes one better than another."""

    filters: Sequence[Filter] = FILTERS
    weighers: Sequence[tuple[Weigher, float]] = field(default=WEIGHERS)
    best: int = 32
    """How many hosts a verdict names."""
    placed: int = 4
    """The same, where groups ask for single devices: each of these hosts is searched for a place for all of them."""
    misses: int = 50
    """How many refused hosts are kept with their numbers."""
    scored_max: int = 4096
    """Of more willing hosts than this, a random run of so many is scored: the best of 4,096 is as good, and rivals spread out."""

    def judges(self, ask: Ask) -> Sequence[Filter]:
        """The filters that this ask must pass."""
        return [judge for judge in self.filters if judge not in ARRIVING] if ask.staying else self.filters

    def score(self, ask: Ask, world: World, slots: Slots) -> Scores:
        """The weighted sum, each weigher scaled to 0…1 over the hosts at hand; zeros when nothing weighs."""
        total = np.zeros(len(slots), dtype=np.float32)
        for weigher, weight in self.weighers:
            if not weight or (scores := weigher(ask, world, slots)) is None:
                continue
            low, high = scores.min(), scores.max()
            if high > low:
                total += np.float32(weight) * ((scores - low) / (high - low))
        return total
