"""The picture: all providers in memory, and their numbers in columns, roots and what is below them apart (RULES §6).

SQL decides; each process has its own picture, written by one task in it.  It is what was read (absolute values; a newer
`version` wins) less what this process is about to claim (`pending`).  It may be late, never wrong for long: a claim on a stale
picture is refused by SQL, and the refusal carries the true numbers.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moorage.model.ids import CellId, HostId, ProviderId
from moorage.model.provider_tree import SHARES
from moorage.model.resources import DISABLED_TRAIT, IPV4_ADDRESS
from moorage.model.verdict import Row
from moorage.model.world import Group, HostAggregate, Mask, Segment, SharingProvider, World
from moorage.placement.cache.columns import INT32_MAX, Columns, clipped
from moorage.placement.cache.device_columns import DeviceColumns
from moorage.placement.cache.provider import NO_SLOT, HostFacts, InventoryKind, Provider, facts_of
from moorage.placement.cache.provider_objects import Providers, Trees
from moorage.placement.cache.provider_rows import NOT_READ, NOWHERE, Rows
from moorage.store.region.placement.allocation_writes import GenerationChange
from moorage.store.region.placement.change_feed import Changes

WASTE_MIN = 10_000
LEVEL_MAX = 100
"""What a column of small numbers holds; no agent speaks a higher one."""
DEFAULT_ZONE = "nova"
ZONE_KEY = "availability_zone"


class ProviderCache:
    """Providers by id, trees, aggregates, and the columns of all providers."""

    def __init__(self) -> None:
        self._pending: dict[tuple[ProviderId, str], int] = {}
        self._host_aggregates: Sequence[tuple[str, Mapping[str, str], Sequence[str]]] = ()
        self._zone_of: dict[str, str] = {}
        """Host → the zone that its aggregates put it in."""
        self._dead: set[str] = set()
        self._clear()

    def _clear(self) -> None:
        self.rows = Rows()
        self.providers = Providers(self.rows, self._drop_objects)
        self.trees = Trees(self.rows, self.providers)
        self.root_places = array("i")
        """Whose slot among the hosts it is; NOWHERE: nobody's."""
        self.members: dict[str, set[ProviderId]] = {}
        self.hosts: dict[ProviderId, HostFacts] = {}
        self.forced_down: set[ProviderId] = set()
        """Those of them that an administrator said are down."""
        self.groups: dict[str, Group] = {}
        self.slots: dict[HostId, int] = {}
        self.slots_by_name: dict[str, int] = {}
        self.columns = Columns()
        self.devices = DeviceColumns(self._pending, self.rows)
        self.host_ids: list[HostId] = []
        self.names: list[str] = []
        self.nodes: list[str] = []
        self._zones: dict[str, int] = {DEFAULT_ZONE: 0}
        self._cells: dict[CellId, int] = {}
        self._anchors: NDArray[np.int32] | None = None
        self._segments: dict[ProviderId, Segment] = {}
        self._world: World | None = None
        self._wiring_stale = True
        self._sharing: dict[str, list[Provider]] | None = None
        self._shared: list[SharingProvider] = []
        self._aggregates: list[HostAggregate] = []

    # ------------------------------------------------------------------------------------------- what was read

    def successor(self) -> "ProviderCache":
        """An empty picture that knows what this process is about to claim and whom it has not heard from."""
        found = ProviderCache()
        found._pending, found._dead = self._pending, self._dead
        found._clear()
        return found

    def take_over(self, before: "ProviderCache") -> None:
        """Read whole, it takes the place of an earlier one: what the process learned meanwhile is drawn again."""
        self._wiring_stale = True
        self.columns.masks["alive"][: self.columns.size] = True
        for uuid in self.forced_down:
            if (slot := self.slots.get(HostId(uuid))) is not None:
                self.columns.masks["alive"][slot] = False
        for host in self._dead:
            self.set_alive(host, False)
        for uuid, resource in self._pending:
            if (place := self.rows.index.get(uuid)) is not None:
                self._show_free(place, resource)

    def disabled(self, cell: str) -> set[str]:
        """Names of the cell's hosts that are out of service."""
        out = np.flatnonzero(~self.columns.masks["enabled"][: self.columns.size])
        facts = (self.hosts.get(ProviderId(self.host_ids[slot])) for slot in out)
        return {each.host for each in facts if each is not None and each.cell == cell}

    @property
    def wasteful(self) -> bool:
        """So much of its room is for what is no more that everything should be read anew."""
        return self.rows.waste > WASTE_MIN + self.rows.count // 2

    def _drop_objects(self) -> None:
        """Objects made from rows: not kept any longer."""
        self.providers.clear()
        self.trees.clear()
        self._sharing = None

    def apply(self, changes: Changes) -> None:
        """Take in what was read; rows may come twice."""
        if changes.everything:
            self._clear()
        if changes.empty:
            return
        if changes.providers or changes.gone:
            self._sharing = None
        for uuid in changes.gone:
            if uuid not in {row.uuid for row in changes.providers}:
                self._remove(ProviderId(uuid))
        self._apply_providers(changes)
        for row in changes.inventories:
            self._apply_used(row.provider, row.resource, row.used, row.cap, row.version)
        for row in changes.group_hosts:
            group = self.groups.setdefault(row.server_group, Group())
            if row.n > 0:
                group.hosts[HostId(row.host)] = row.n
            else:
                group.hosts.pop(HostId(row.host), None)
        for row in changes.group_homes:
            group = self.groups.setdefault(row.server_group, Group())
            group.home = HostId(row.home) if row.members > 0 else None

    def _apply_providers(self, changes: Changes) -> None:
        rows = self.rows
        traits = _gathered(changes.traits, "trait")
        aggregates = _gathered(changes.aggregates, "aggregate")
        facts = {row.provider: row for row in changes.hosts}
        whole: dict[str, list[Any]] = {}
        for row in changes.whole:
            whole.setdefault(row.provider, []).append(row)
        for row in changes.providers:
            place = rows.place(row.uuid)
            if row.version < rows.version[place]:
                continue
            self._apply_provider(place, row)
            before, now = rows.sets.all[rows.traits[place]], frozenset(traits.get(row.uuid, ()))
            rows.traits[place] = rows.sets[now]
            self._wiring_stale |= (SHARES in before) != (SHARES in now)
            self._set_aggregates(place, frozenset(aggregates.get(row.uuid, ())))
            rows.restock(place, [_inventory(each) for each in sorted(whole.get(row.uuid, ()), key=_resource)])
            if row.uuid in facts:
                self._set_facts(rows.ids[place], facts_of(facts[row.uuid]))
            if (made := self.providers.made(row.uuid)) is not None:
                rows.fill(made)
            if rows.root[place] == place:
                self.devices.drop(place)
                self._draw_root(place)
            else:
                self.devices.draw(place, self.slots.get(HostId(row.root), NO_SLOT))

    def _apply_provider(self, place: int, row: Any) -> None:
        rows = self.rows
        root = rows.place(row.root)
        if rows.root[place] != root:
            self._leave_tree(place)
            rows.join_tree(place, root)
            self.trees.pop(row.root, None)
            self._anchors = None
            self._wiring_stale |= bool(rows.sets.all[rows.aggregates[place]])
        parent = NOWHERE if row.parent is None else rows.place(row.parent)
        self._wiring_stale |= bool(self._shared) and parent != rows.parent[place]
        rows.parent[place] = parent
        rows.count += rows.version[place] == NOT_READ
        rows.names[place] = row.name
        rows.generation[place], rows.version[place] = row.generation, row.version
        rows.updated_at[place] = row.updated_at

    def _leave_tree(self, place: int) -> None:
        """It is not where it was; as a root it has no slot any more."""
        rows = self.rows
        if (root := rows.root[place]) == NOWHERE:
            return
        rows.leave_tree(place)
        self.trees.pop(rows.ids[root], None)
        self._anchors = None
        if (host := HostId(rows.ids[place])) in self.slots:
            self._give_slot(host)

    def _set_aggregates(self, place: int, now: frozenset[str]) -> None:
        rows = self.rows
        before = rows.sets.all[rows.aggregates[place]]
        if now == before:
            return
        uuid = rows.ids[place]
        for aggregate in before - now:
            self.members[aggregate].discard(uuid)
        for aggregate in now - before:
            self.members.setdefault(aggregate, set()).add(uuid)
        rows.aggregates[place] = rows.sets[now]
        self._wiring_stale = True

    def _set_facts(self, host: ProviderId, now: HostFacts) -> None:
        if now != self.hosts.get(host):
            self.know(host, now)
            self._wiring_stale = True

    def know(self, host: ProviderId, facts: HostFacts) -> None:
        """What a host reported, and what is said of it."""
        self.hosts[host] = facts
        (self.forced_down.add if facts.forced_down else self.forced_down.discard)(host)

    def _apply_used(self, uuid: ProviderId, resource: str, used: int, cap: int, version: int) -> None:
        rows = self.rows
        place = rows.index.get(uuid)
        before = None if place is None else rows.use(place, resource, used, cap, version)
        if place is None or before is None:
            return
        if (made := self.providers.made(uuid)) is not None:
            rows.fill(made)
        if cap == before:
            self._show_free(place, resource)
        elif (stock := rows.stock(place, resource)) is not None:
            self._redraw(place, *stock)

    def _remove(self, uuid: ProviderId) -> None:
        place = self.rows.find(uuid)
        if place is None:
            return
        self._set_aggregates(place, frozenset())
        self._leave_tree(place)
        self.hosts.pop(uuid, None)
        self.forced_down.discard(uuid)
        self._segments.pop(uuid, None)
        self.devices.drop(place)
        self.rows.forget(place)
        self.providers.pop(uuid, None)

    # ------------------------------------------------------------------------------------------------- columns

    def _draw_root(self, place: int) -> None:
        rows, columns = self.rows, self.columns
        host = HostId(rows.ids[place])
        slot = self.slots.get(host)
        if slot is None:
            slot = self._take_slot(host, place)
        for resource, capacity in columns.capacity.items():
            if rows.stock(place, resource) is None:
                capacity[slot] = columns.free[resource][slot] = 0
        for kind, used in rows.stocks(place):
            self._redraw(place, kind, used)
        words = len(columns.trait_bitmap)
        traits = rows.sets.all[rows.traits[place]]
        columns.set_traits(slot, traits)
        if words != len(columns.trait_bitmap):
            self._world = None
        columns.masks["enabled"][slot] = DISABLED_TRAIT not in traits
        self._draw_host(place, slot)
        uuid = rows.ids[place]
        if uuid not in self.hosts and rows.stock(place, IPV4_ADDRESS) is not None:
            segment = self._segments.get(uuid)
            self._wiring_stale |= segment is None or segment.name != rows.names[place]

    def _take_slot(self, host: HostId, place: int) -> int:
        slot = self.slots[host] = self.columns.take_slot()
        if slot == len(self.host_ids):
            self.host_ids.append(host)
            self.names.append("")
            self.nodes.append("")
            self.root_places.append(place)
        self.host_ids[slot], self.root_places[slot] = host, place
        self.devices.put(host, slot)
        self.columns.masks["alive"][slot] = True
        self._wiring_stale = True
        self._anchors = None
        return slot

    def take_slots(self, places: NDArray[np.intp]) -> NDArray[np.intp]:
        """New ones for roots that were read all at once; their facts are drawn by `draw_hosts`."""
        first, rows = self.columns.take_slots(len(places)), self.rows
        hosts = [HostId(rows.ids[place]) for place in places.tolist()]
        names = [rows.names[place] for place in places.tolist()]
        self.host_ids += hosts
        self.names += names
        self.nodes += names
        self.root_places.frombytes(places.astype(np.int32).tobytes())
        slots = range(first, first + len(places))
        self.slots.update(zip(hosts, slots, strict=True))
        self.columns.masks["alive"][first : slots.stop] = True
        self._wiring_stale, self._anchors = True, None
        return np.arange(first, slots.stop)

    def draw_hosts(self) -> None:
        """The facts of all hosts."""
        for uuid in self.hosts:
            if (slot := self.slots.get(HostId(uuid))) is not None:
                self._draw_host(self.rows.index[uuid], slot)

    def _draw_host(self, place: int, slot: int) -> None:
        facts = self.hosts.get(self.rows.ids[place])
        columns = self.columns
        columns.masks["present"][slot] = facts is not None
        self.names[slot] = self.nodes[slot] = self.rows.names[place]
        if facts is None:
            return
        self.names[slot], self.nodes[slot] = facts.host, facts.node
        self.slots_by_name[facts.host] = slot
        columns.level[slot] = min(max(facts.level, 0), LEVEL_MAX)  # one that an earlier release took from anybody
        zone = self._zone_of.get(facts.host, facts.zone)
        columns.zone[slot] = self._zones.setdefault(zone, len(self._zones))
        columns.cell[slot] = self._cells.setdefault(facts.cell, len(self._cells))
        columns.masks["alive"][slot] = facts.host not in self._dead and not facts.forced_down
        columns.masks["physnets_known"][slot] = facts.physnets is not None
        columns.masks["cell_disabled"][slot] = facts.cell_disabled
        for name in facts.physnets or ():
            columns.mask("physnet:" + name)[slot] = True
        for name, mask in columns.masks.items():
            if name.startswith("physnet:") and name[8:] not in (facts.physnets or ()):
                mask[slot] = False

    def _redraw(self, place: int, kind: InventoryKind, used: int) -> None:
        """Write one number into its column, if the provider is a root, and into its segment, if it is one."""
        uuid, resource = self.rows.ids[place], kind.resource
        free = kind.cap - used - self._pending.get((uuid, resource), 0)
        slot = self.slots.get(HostId(uuid))
        if slot is not None:
            self.columns.draw(resource, slot, kind, free)
            if self._world is not None and resource not in self._world.free:
                self._world = None
        else:
            self.devices.redraw(place, kind, used)
        if resource == IPV4_ADDRESS and (segment := self._segments.get(uuid)) is not None:
            segment.free, segment.total = free, kind.cap

    def _show_free(self, place: int, resource: str) -> None:
        """What is free changed and nothing else; for who has no such inventory, nothing did."""
        rows = self.rows
        layout = rows.layouts.all[rows.layout[place]]
        at = layout.at.get(resource)
        if at is None:
            return
        uuid = rows.ids[place]
        free = layout.kinds[at].cap - rows.used[rows.first[place] + at] - self._pending.get((uuid, resource), 0)
        slot = self.slots.get(HostId(uuid))
        columns = self.columns if slot is not None else self.devices.columns
        if slot is None:
            slot = rows.slot[place]
        if slot != NO_SLOT:
            columns.free[resource][slot] = free if -INT32_MAX <= free <= INT32_MAX else clipped(free)
        if resource == IPV4_ADDRESS and (segment := self._segments.get(uuid)) is not None:
            segment.free = free

    def _give_slot(self, host: HostId) -> None:
        slot = self.slots.pop(host)
        if self.slots_by_name.get(self.names[slot]) == slot:
            del self.slots_by_name[self.names[slot]]
        self.columns.give_slot(slot)
        self.root_places[slot] = NOWHERE
        self.devices.put(host, NO_SLOT)
        self._anchors = None
        self._world = None
        self._wiring_stale = True

    # -------------------------------------------------------------------------------------------- this process

    @property
    def pending(self) -> Mapping[tuple[ProviderId, str], int]:
        """What claims that are under way in this process hold."""
        return self._pending

    def pend(self, rows: Iterable[tuple[ProviderId, str, int]], sign: int) -> None:
        """Count amounts as about to be claimed (+1), or no longer (-1)."""
        for uuid, resource, amount in rows:
            left = self._pending.get((uuid, resource), 0) + sign * amount
            if left:
                self._pending[uuid, resource] = left
            else:
                self._pending.pop((uuid, resource), None)
            if (place := self.rows.index.get(uuid)) is not None:
                self._show_free(place, resource)

    def settle(self, rows: Iterable[Row]) -> None:
        """Values that came back from a statement of our own."""
        for row in rows:
            self._apply_used(row.provider, row.resource, row.used, row.capacity, row.version)

    def settle_generations(self, moved: Iterable[GenerationChange]) -> None:
        """Generations that a transaction of our own moved. Only where nothing else of the provider has changed since it was read:
        else the next reading tells all of it."""
        rows = self.rows
        for each in moved:
            place = rows.find(each.provider)
            if place is not None and rows.version[place] == each.before:
                rows.generation[place], rows.version[place] = each.generation, each.version
                rows.updated_at[place] = each.updated_at

    def version_of(self, uuid: str) -> int | None:
        """The version of the provider's row that is known, if it is. May be asked from any thread."""
        place = self.rows.find(ProviderId(uuid))
        return None if place is None else self.rows.version[place]

    def set_alive(self, host: str, alive: bool) -> None:
        """What was heard of a host, by the name people know; kept for hosts not read yet."""
        (self._dead.discard if alive else self._dead.add)(host)
        if (slot := self.slots_by_name.get(host)) is not None:
            self.columns.masks["alive"][slot] = alive and ProviderId(self.host_ids[slot]) not in self.forced_down

    def set_level(self, host: str, level: int) -> None:
        if (slot := self.slots_by_name.get(host)) is not None:
            self.columns.level[slot] = min(max(level, 0), LEVEL_MAX)

    def count_failure(self, host: HostId, *, failed: bool) -> None:
        """A build failed there (one more), or succeeded (back to none)."""
        if (slot := self.slots.get(host)) is not None:
            self.columns.failures[slot] = min(self.columns.failures[slot] + 1, 1000) if failed else 0

    def set_host_aggregates(self, aggregates: Sequence[tuple[str, Mapping[str, str], Sequence[str]]]) -> None:
        """The aggregates of the compute API: (name, metadata, host names); a zone in the metadata wins over the host's own."""
        now = tuple(aggregates)
        if now != self._host_aggregates:
            self._host_aggregates = now
            self._zone_of = {host: data[ZONE_KEY] for _, data, hosts in now if ZONE_KEY in data for host in hosts}
            self._wiring_stale = True

    @property
    def host_aggregates(self) -> Sequence[tuple[str, Mapping[str, str], Sequence[str]]]:
        """As they were last told."""
        return self._host_aggregates

    # --------------------------------------------------------------------------------------------------- views

    def anchors(self) -> NDArray[np.int32]:
        """The slots of all roots; kept until there is another tree or one less. Not to be changed."""
        if self._anchors is None:
            self._anchors = np.flatnonzero(np.array(self.root_places, dtype=np.int32) != NOWHERE).astype(np.int32)
        return self._anchors

    def sharing(self, trait: str) -> dict[str, list[Provider]]:
        """Aggregate → its members with the trait by which they share with the others; kept until a provider changes."""
        if self._sharing is None:
            rows, found = self.rows, dict[str, list[Provider]]()
            share = {number for number, each in enumerate(rows.sets.all) if trait in each}
            for aggregate, members in self.members.items() if share else ():
                here = [member for member in members if rows.traits[rows.index[member]] in share]
                if here:
                    found[aggregate] = [self.providers[member] for member in here]
            self._sharing = found
        return self._sharing

    def world(self) -> World:
        """The World as it is now; views of the columns, not copies."""
        if self._wiring_stale:
            self._wire()
        if self._world is None or self.devices.grown:
            self._world = self._views()
        return self._world

    def _wire(self) -> None:
        """Who is wired to which segment, and who is in which aggregate of the compute API."""
        self._wiring_stale = False
        self._world = None
        size = self.columns.size
        segments: dict[ProviderId, Segment] = {}
        rows = self.rows
        for uuid in {u for members in self.members.values() for u in members if u not in self.hosts}:
            place = rows.index[uuid]
            if (stock := rows.stock(place, IPV4_ADDRESS)) is None:
                continue
            cap, used = stock[0].cap, stock[1]
            free = cap - used - self._pending.get((uuid, IPV4_ADDRESS), 0)
            aggregates = rows.sets.all[rows.aggregates[place]]
            wired = self._mask(m for aggregate in aggregates for m in self.members[aggregate])
            segments[uuid] = Segment(uuid, rows.names[place], free, cap, wired)
        self._segments = segments
        self._shared = self._share()
        self._aggregates = []
        zone = self.columns.zone
        for uuid, facts in self.hosts.items():
            if (slot := self.slots.get(HostId(uuid))) is not None:
                zone[slot] = self._zones.setdefault(facts.zone, len(self._zones))
        for name, metadata, hosts in self._host_aggregates:
            mask = np.zeros(size, dtype=np.bool_)
            mask[[self.slots_by_name[host] for host in hosts if host in self.slots_by_name]] = True
            self._aggregates.append(HostAggregate(name, dict(metadata), mask))
            if ZONE_KEY in metadata:
                zone[:size][mask] = self._zones.setdefault(metadata[ZONE_KEY], len(self._zones))

    def _share(self) -> list[SharingProvider]:
        """Who serves hosts of other trees, and which."""
        rows, found = self.rows, list[SharingProvider]()
        providers = {each.uuid: each for members in self.sharing(SHARES).values() for each in members}
        for uuid in sorted(providers):
            one, place = providers[uuid], rows.index[uuid]
            served = {rows.root[rows.index[m]] for aggregate in one.aggregates for m in self.members[aggregate]}
            hosts = self._mask(rows.ids[root] for root in served if root != rows.root[place])
            slot, nested = self.slots.get(HostId(uuid)), False
            if slot is None:
                slot, nested = rows.slot[place], True
            if slot != NO_SLOT and hosts.any():
                found.append(SharingProvider(uuid, one.name, one.root, self._above(place), nested, slot, hosts))
        return found

    def _above(self, place: int) -> tuple[ProviderId, ...]:
        parents, found = self.rows.parent, list[ProviderId]()
        while (place := parents[place]) != NOWHERE and self.rows.ids[place] not in found:
            found.append(self.rows.ids[place])
        return tuple(found)

    def _mask(self, uuids: Iterable[ProviderId]) -> Mask:
        mask = np.zeros(self.columns.size, dtype=np.bool_)
        mask[[slot for uuid in uuids if (slot := self.slots.get(HostId(uuid))) is not None and uuid in self.hosts]] = (
            True
        )
        return mask

    def _views(self) -> World:
        columns, size = self.columns, self.columns.size
        return World(
            host_ids=self.host_ids,
            names=self.names,
            nodes=self.nodes,
            present=columns.masks["present"][:size],
            enabled=columns.masks["enabled"][:size],
            alive=columns.masks["alive"][:size],
            level=columns.level[:size],
            zone=columns.zone[:size],
            zone_names=list(self._zones),
            cell=columns.cell[:size],
            cell_names=list(self._cells),
            cell_disabled=columns.masks["cell_disabled"][:size],
            free={name: column[:size] for name, column in columns.free.items()},
            capacity={name: column[:size] for name, column in columns.capacity.items()},
            units=columns.units,
            trait_bits=columns.trait_bits,
            trait_bitmap=columns.trait_bitmap[:, :size],
            slots=self.slots,
            slots_by_name=self.slots_by_name,
            segments=self._segments,
            physnets={n[8:]: m[:size] for n, m in columns.masks.items() if n.startswith("physnet:")},
            physnets_known=columns.masks["physnets_known"][:size],
            aggregates=self._aggregates,
            groups=self.groups,
            failures=columns.failures[:size],
            nested=self.devices.view(),
            sharing=self._shared,
        )


def _resource(row: Any) -> str:
    resource: str = row.resource
    return resource


def _inventory(row: Any) -> tuple[InventoryKind, int, int]:
    """Its kind, what is used, and the version of that."""
    portions = row.min_unit, row.max_unit, row.step
    return InventoryKind(row.resource, row.total, row.reserved, row.ratio, *portions, row.cap), row.used, row.version


def _gathered(rows: Sequence[Any], column: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    name_of = attrgetter(column)
    for row in rows:
        found.setdefault(row.provider, []).append(name_of(row))
    return found
