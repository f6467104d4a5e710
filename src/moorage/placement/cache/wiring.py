"""Links between hosts and other providers: segments, sharing providers, aggregates of the Compute API; and the World
with all of it.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from moorage.model.ids import HostId, ProviderId
from moorage.model.provider_tree import SHARES
from moorage.model.resources import IPV4_ADDRESS
from moorage.model.world import Group, HostAggregate, Mask, Segment, SharingProvider, World
from moorage.placement.cache.device_columns import DeviceColumns
from moorage.placement.cache.host_slots import HostSlots
from moorage.placement.cache.provider import NO_SLOT, HostFacts, Provider
from moorage.placement.cache.provider_objects import Providers
from moorage.placement.cache.provider_rows import NOWHERE

ZONE_KEY = "availability_zone"


class Wiring:
    """Built again completely, when `stale` is set and the World is needed."""

    def __init__(
        self,
        slots: HostSlots,
        providers: Providers,
        members: dict[str, set[ProviderId]],
        hosts: dict[ProviderId, HostFacts],
        pending: Mapping[tuple[ProviderId, str], int],
    ) -> None:
        self._slots, self._providers, self._members, self._hosts = slots, providers, members, hosts
        self._pending = pending
        self.stale = True
        self.segments: dict[ProviderId, Segment] = {}
        self.shared: list[SharingProvider] = []
        self.aggregates: list[HostAggregate] = []
        self._sharing: dict[str, list[Provider]] | None = None

    def drop_sharing(self) -> None:
        """A provider has changed: sharing must be computed again."""
        self._sharing = None

    def sharing(self, trait: str) -> dict[str, list[Provider]]:
        """Aggregate → its members with the sharing trait; cached until a provider changes."""
        if self._sharing is None:
            rows, by_aggregate = self._slots.rows, dict[str, list[Provider]]()
            share = {number for number, each in enumerate(rows.sets.all) if trait in each}
            for aggregate, members in self._members.items() if share else ():
                sharers = [member for member in members if rows.traits[rows.index[member]] in share]
                if sharers:
                    by_aggregate[aggregate] = [self._providers[member] for member in sharers]
            self._sharing = by_aggregate
        return self._sharing

    def wire(self, host_aggregates: Sequence[tuple[str, Mapping[str, str], Sequence[str]]]) -> None:
        """Which hosts are wired to which segment, and which are in which aggregate of the compute API."""
        self.stale = False
        columns, slots = self._slots.columns, self._slots
        size = columns.size
        segments: dict[ProviderId, Segment] = {}
        rows = self._slots.rows
        for uuid in {u for members in self._members.values() for u in members if u not in self._hosts}:
            place = rows.index[uuid]
            if (stock := rows.stock(place, IPV4_ADDRESS)) is None:
                continue
            cap, used = stock[0].cap, stock[1]
            free = cap - used - self._pending.get((uuid, IPV4_ADDRESS), 0)
            aggregates = rows.sets.all[rows.aggregates[place]]
            wired = self._mask(m for aggregate in aggregates for m in self._members[aggregate])
            segments[uuid] = Segment(uuid, rows.names[place], free, cap, wired)
        self.segments = segments
        self.shared = self._share()
        self.aggregates = []
        zone = columns.zone
        for uuid, facts in self._hosts.items():
            if (slot := self._slots.slots.get(HostId(uuid))) is not None:
                zone[slot] = slots.zones.setdefault(facts.zone, len(slots.zones))
        for name, metadata, hosts in host_aggregates:
            mask = np.zeros(size, dtype=np.bool_)
            mask[[slots.slots_by_name[host] for host in hosts if host in slots.slots_by_name]] = True
            self.aggregates.append(HostAggregate(name, dict(metadata), mask))
            if ZONE_KEY in metadata:
                zone[:size][mask] = slots.zones.setdefault(metadata[ZONE_KEY], len(slots.zones))

    def _share(self) -> list[SharingProvider]:
        """The providers that share with other trees, and with which."""
        rows, sharing = self._slots.rows, list[SharingProvider]()
        providers = {each.uuid: each for members in self.sharing(SHARES).values() for each in members}
        for uuid in sorted(providers):
            one, place = providers[uuid], rows.index[uuid]
            served = {rows.root[rows.index[m]] for aggregate in one.aggregates for m in self._members[aggregate]}
            hosts = self._mask(rows.ids[root] for root in served if root != rows.root[place])
            slot, nested = self._slots.slots.get(HostId(uuid)), False
            if slot is None:
                slot, nested = rows.slot[place], True
            if slot != NO_SLOT and hosts.any():
                sharing.append(SharingProvider(uuid, one.name, one.root, self._above(place), nested, slot, hosts))
        return sharing

    def _above(self, place: int) -> tuple[ProviderId, ...]:
        parents, above = self._slots.rows.parent, list[ProviderId]()
        while (place := parents[place]) != NOWHERE and self._slots.rows.ids[place] not in above:
            above.append(self._slots.rows.ids[place])
        return tuple(above)

    def _mask(self, uuids: Iterable[ProviderId]) -> Mask:
        mask = np.zeros(self._slots.columns.size, dtype=np.bool_)
        mask[
            [
                slot
                for uuid in uuids
                if (slot := self._slots.slots.get(HostId(uuid))) is not None and uuid in self._hosts
            ]
        ] = True
        return mask


def world_of(slots: HostSlots, wiring: Wiring, devices: DeviceColumns, groups: dict[str, Group]) -> World:
    """The World as it is now; views of the columns, not copies."""
    columns, size = slots.columns, slots.columns.size
    return World(
        host_ids=slots.host_ids,
        names=slots.names,
        nodes=slots.nodes,
        present=columns.masks["present"][:size],
        enabled=columns.masks["enabled"][:size],
        alive=columns.masks["alive"][:size],
        level=columns.level[:size],
        zone=columns.zone[:size],
        zone_names=list(slots.zones),
        cell=columns.cell[:size],
        cell_names=list(slots.cells),
        cell_disabled=columns.masks["cell_disabled"][:size],
        free={name: column[:size] for name, column in columns.free.items()},
        capacity={name: column[:size] for name, column in columns.capacity.items()},
        units=columns.units,
        trait_bits=columns.trait_bits,
        trait_bitmap=columns.trait_bitmap[:, :size],
        slots=slots.slots,
        slots_by_name=slots.slots_by_name,
        segments=wiring.segments,
        physnets={n[8:]: m[:size] for n, m in columns.masks.items() if n.startswith("physnet:")},
        physnets_known=columns.masks["physnets_known"][:size],
        aggregates=wiring.aggregates,
        groups=groups,
        failures=columns.failures[:size],
        kind=columns.kind[:size],
        kinds=list(slots.kinds),
        nested=devices.view(),
        sharing=wiring.shared,
    )
