"""The profile: the filters in their order, and the weighers with their weights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from moorage.model.world import Ask, Filter, Slots, World
from moorage.scheduler.filters.aggregates import flavor_aggregates, tenant_isolation
from moorage.scheduler.filters.devices import device_kinds, device_room, devices_in_all
from moorage.scheduler.filters.host_hints import forced_host, hinted_hosts, host_it_leaves, tried_before
from moorage.scheduler.filters.host_kinds import compute_capabilities, image_properties, unmade_requests
from moorage.scheduler.filters.host_state import host_alive, host_enabled
from moorage.scheduler.filters.network import network_reach, segment_addresses
from moorage.scheduler.filters.resource_fit import fits
from moorage.scheduler.filters.server_group import server_group
from moorage.scheduler.filters.traits import has_traits
from moorage.scheduler.filters.zone_and_cell import (
    agent_level,
    availability_zone,
    cell_allowed,
    cell_answers,
    cell_enabled,
    cell_fits,
)
from moorage.scheduler.scoring import Weighed, Weighing, weigh
from moorage.scheduler.weighers.addresses import last_addresses
from moorage.scheduler.weighers.addresses import segment_addresses as most_addresses
from moorage.scheduler.weighers.affinity import cross_cell_move, soft_affinity, soft_anti_affinity
from moorage.scheduler.weighers.bandwidth import bandwidth
from moorage.scheduler.weighers.history import build_failure
from moorage.scheduler.weighers.resources import cpu, disk, ram

FILTERS: tuple[Filter, ...] = (
    forced_host,
    host_it_leaves,
    tried_before,
    host_enabled,
    host_alive,
    agent_level,
    cell_allowed,
    cell_enabled,
    cell_answers,
    cell_fits,
    availability_zone,
    hinted_hosts,
    tenant_isolation,
    flavor_aggregates,
    image_properties,
    compute_capabilities,
    unmade_requests,
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
        cell_enabled,
        cell_answers,
        cell_fits,
        availability_zone,
        tenant_isolation,
        flavor_aggregates,
        compute_capabilities,
    }
)
"""Filters that apply only if the server is new on the host."""

HOSTS_ONLY: frozenset[Filter] = frozenset(
    {
        forced_host,
        host_it_leaves,
        tried_before,
        host_enabled,
        host_alive,
        agent_level,
        cell_allowed,
        cell_enabled,
        cell_answers,
        cell_fits,
        availability_zone,
        hinted_hosts,
        tenant_isolation,
        flavor_aggregates,
        image_properties,
        compute_capabilities,
        unmade_requests,
        has_traits,
        network_reach,
        device_kinds,
    }
)
"""Filters of what hosts are, not of how much is free: only a changed host ends their refusal (`scheduler/lacks.py`)."""

WEIGHERS: tuple[Weighing, ...] = (
    Weighing(ram, 1.0),
    Weighing(cpu, 1.0),
    Weighing(disk, 1.0),
    Weighing(soft_affinity, 1.0),
    Weighing(soft_anti_affinity, 1.0),
    Weighing(most_addresses, 5.0),
    Weighing(last_addresses, 10.0),
    Weighing(bandwidth, 3.0),
    Weighing(build_failure, 1_000.0),
    Weighing(cross_cell_move, 10_000.0),
)


@dataclass(frozen=True)
class Profile:
    """The filters that every host must pass, in this order, and the weighers that order the hosts."""

    filters: Sequence[Filter] = FILTERS
    weighers: Sequence[Weighing] = field(default=WEIGHERS)
    best: int = 32
    """How many hosts a verdict names."""
    placed: int = 4
    """How many hosts a verdict names if groups ask for single devices: each of these hosts is searched."""
    misses: int = 50
    """How many rejected hosts are recorded with their numbers."""
    scored_max: int = 4096
    """If more hosts pass, only this many, from a random one on, are scored: the result is as good, and parallel requests spread out."""

    def judges(self, ask: Ask) -> Sequence[Filter]:
        """Return the filters that apply to this ask."""
        return [judge for judge in self.filters if judge not in ARRIVING] if ask.staying else self.filters

    def weigh(self, ask: Ask, world: World, slots: Slots) -> Weighed:
        """Score these hosts, with the part of each weigher."""
        return weigh(self.weighers, ask, world, slots)

    def weighing(self, multipliers: Mapping[str, float]) -> "Profile":
        """Return the profile with other multipliers, by the weighers' names; a weigher that is not named keeps its own."""
        return replace(
            self,
            weighers=[each._replace(multiplier=multipliers.get(each.name, each.multiplier)) for each in self.weighers],
        )
