"""The order of judgement: filters, and weighers with their weights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from moorage.model.world import Ask, Filter, Slots, World
from moorage.scheduler.filters.aggregates import flavor_aggregates, tenant_isolation
from moorage.scheduler.filters.devices import device_kinds, device_room, devices_in_all
from moorage.scheduler.filters.host_hints import forced_host, hinted_hosts, host_it_leaves, tried_before
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
    }
)
"""What only a server that is new on a host is asked."""

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
    """What is asked of every host, in this order, and what makes one better than another."""

    filters: Sequence[Filter] = FILTERS
    weighers: Sequence[Weighing] = field(default=WEIGHERS)
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

    def weigh(self, ask: Ask, world: World, slots: Slots) -> Weighed:
        """How good each of these hosts is, and by what."""
        return weigh(self.weighers, ask, world, slots)

    def weighing(self, multipliers: Mapping[str, float]) -> "Profile":
        """The same with other multipliers, by the weighers' names; a weigher that is not named keeps its own."""
        return replace(
            self,
            weighers=[each._replace(multiplier=multipliers.get(each.name, each.multiplier)) for each in self.weighers],
        )
