"""The cache: all providers in memory, and their numbers in columns, roots apart from what is below them (RULES §6).

SQL decides; each process has its own cache, written by one task. It is what was read (absolute values; a newer
`version` wins) minus what this process is about to claim (`pending`). It may be late, but never wrong for long: SQL
refuses a claim that was made from stale numbers, and the refusal carries the true ones.
"""

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moorage.model.ids import HostId, ProviderId
from moorage.model.provider_tree import SHARES
from moorage.model.resources import DISABLED_TRAIT, IPV4_ADDRESS
from moorage.model.verdict import InventoryState
from moorage.model.world import Group, World
from moorage.placement.cache.columns import INT32_MAX, Columns, clipped
from moorage.placement.cache.device_columns import DeviceColumns
from moorage.placement.cache.host_slots import HostSlots
from moorage.placement.cache.provider import (
    NO_SLOT,
    HostFacts,
    InventoryKind,
    Provider,
    facts_of,
    gathered,
    inventory_of,
)
from moorage.placement.cache.provider_objects import Providers, Trees
from moorage.placement.cache.provider_rows import NOT_READ, NOWHERE, Rows
from moorage.placement.cache.wiring import ZONE_KEY, Wiring, world_of
from moorage.store.region.placement.allocation_writes import GenerationChange
from moorage.store.region.placement.change_feed import ProviderChanges

WASTE_MIN = 10_000


class ProviderCache:
    """Providers by id, trees, aggregates, and the columns of all providers."""

    def __init__(self) -> None:
        self._pending: dict[tuple[ProviderId, str], int] = {}
        self._host_aggregates: Sequence[tuple[str, Mapping[str, str], Sequence[str]]] = ()
        self._zone_of: dict[str, str] = {}
        """Host → the zone of its aggregates."""
        self._dead: set[str] = set()
        self.columns_version = self.names_version = 0
        """Count what changed beside free amounts: numbers of hosts and devices; what they are, and what ties them (`decisions/recorder.py`)."""
        self._clear()

    def _clear(self) -> None:
        self.rows = Rows()
        self.providers = Providers(self.rows, self._drop_objects)
        self.trees = Trees(self.rows, self.providers)
        self.members: dict[str, set[ProviderId]] = {}
        self.hosts: dict[ProviderId, HostFacts] = {}
        self.forced_down: set[ProviderId] = set()
        self.groups: dict[str, Group] = {}
        self.columns = Columns()
        self.devices = DeviceColumns(self._pending, self.rows)
        self.host_slots = HostSlots(self.rows, self.columns, self.devices)
        self.slots, self.slots_by_name = self.host_slots.slots, self.host_slots.slots_by_name
        self.host_ids, self.root_places = self.host_slots.host_ids, self.host_slots.root_places
        self.wiring = Wiring(self.host_slots, self.providers, self.members, self.hosts, self._pending)
        self._world: World | None = None

    # ------------------------------------------------------------------------------------------- what was read

    def successor(self) -> "ProviderCache":
        """An empty picture that knows what this process is about to claim and whom it has not heard from."""
        successor = type(self)()
        successor._pending, successor._dead = self._pending, self._dead
        successor._clear()
        return successor

    def take_over(self, before: "ProviderCache") -> None:
        """Fully loaded, it replaces an earlier one: what the process learned meanwhile is applied again."""
        self.wiring.stale = True
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
        """Names of the cell's disabled hosts."""
        out = np.flatnonzero(~self.columns.masks["enabled"][: self.columns.size])
        facts = (self.hosts.get(ProviderId(self.host_ids[slot])) for slot in out)
        return {each.host for each in facts if each is not None and each.cell == cell}

    @property
    def wasteful(self) -> bool:
        """Whether so much of its memory is used for removed providers that everything should be loaded again."""
        return self.rows.waste > WASTE_MIN + self.rows.count // 2

    def _drop_objects(self) -> None:
        """Drop the objects that were made from rows."""
        self.providers.clear()
        self.trees.clear()
        self.wiring.drop_sharing()

    def apply(self, changes: ProviderChanges) -> None:
        """Apply what was read; rows may come twice."""
        if changes.everything:
            self._clear()
        if changes.empty:
            return
        if changes.everything or changes.providers or changes.gone:
            self.names_version += 1
            self.wiring.drop_sharing()
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

    def _apply_providers(self, changes: ProviderChanges) -> None:
        rows = self.rows
        traits = gathered(changes.traits, "trait")
        aggregates = gathered(changes.aggregates, "aggregate")
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
            self.wiring.stale |= (SHARES in before) != (SHARES in now)
            self._set_aggregates(place, frozenset(aggregates.get(row.uuid, ())))
            rows.restock(
                place, [inventory_of(each) for each in sorted(whole.get(row.uuid, ()), key=attrgetter("resource"))]
            )
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
            self.host_slots.drop_anchors()
            self.wiring.stale |= bool(rows.sets.all[rows.aggregates[place]])
        parent = NOWHERE if row.parent is None else rows.place(row.parent)
        self.wiring.stale |= bool(self.wiring.shared) and parent != rows.parent[place]
        rows.parent[place] = parent
        rows.count += rows.version[place] == NOT_READ
        rows.names[place] = row.name
        rows.generation[place], rows.version[place] = row.generation, row.version
        rows.updated_at[place] = row.updated_at

    def _leave_tree(self, place: int) -> None:
        """It leaves its place in the tree; if it was a root, its slot is freed."""
        rows = self.rows
        if (root := rows.root[place]) == NOWHERE:
            return
        rows.leave_tree(place)
        self.trees.pop(rows.ids[root], None)
        self.host_slots.drop_anchors()
        if (host := HostId(rows.ids[place])) in self.slots:
            self.host_slots.give(host)
            self._world, self.wiring.stale = None, True

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
        self.wiring.stale = True

    def _set_facts(self, host: ProviderId, now: HostFacts) -> None:
        if now != self.hosts.get(host):
            self.know(host, now)
            self.wiring.stale = True

    def know(self, host: ProviderId, facts: HostFacts) -> None:
        """Set what a host reported, and what administrators set for it."""
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
            self.columns_version += 1
            self._redraw(place, *stock)

    def _remove(self, uuid: ProviderId) -> None:
        place = self.rows.find(uuid)
        if place is None:
            return
        self._set_aggregates(place, frozenset())
        self._leave_tree(place)
        self.hosts.pop(uuid, None)
        self.forced_down.discard(uuid)
        self.wiring.segments.pop(uuid, None)
        self.devices.drop(place)
        self.rows.forget(place)
        self.providers.pop(uuid, None)

    # ------------------------------------------------------------------------------------------------- columns

    def _draw_root(self, place: int) -> None:
        rows, columns = self.rows, self.columns
        host = HostId(rows.ids[place])
        slot = self.slots.get(host)
        if slot is None:
            slot = self.host_slots.take(host, place)
            self.wiring.stale = True
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
            segment = self.wiring.segments.get(uuid)
            self.wiring.stale |= segment is None or segment.name != rows.names[place]

    def take_slots(self, places: NDArray[np.intp]) -> NDArray[np.intp]:
        """New slots for roots that were read all at once; `draw_hosts` writes their facts."""
        self.wiring.stale = True
        return self.host_slots.take_all(places)

    def draw_hosts(self) -> None:
        """Write the facts of all hosts."""
        for uuid in self.hosts:
            if (slot := self.slots.get(HostId(uuid))) is not None:
                self._draw_host(self.rows.index[uuid], slot)

    def _draw_host(self, place: int, slot: int) -> None:
        facts = self.hosts.get(self.rows.ids[place])
        if facts is None:
            self.host_slots.draw_unknown(place, slot)
        else:
            self.host_slots.draw(slot, facts, self._zone_of.get(facts.host, facts.zone), facts.host in self._dead)

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
        if resource == IPV4_ADDRESS and (segment := self.wiring.segments.get(uuid)) is not None:
            segment.free, segment.total = free, kind.cap

    def _show_free(self, place: int, resource: str) -> None:
        """Only the free amount changed; a provider without such an inventory is not affected."""
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
        if resource == IPV4_ADDRESS and (segment := self.wiring.segments.get(uuid)) is not None:
            segment.free = free

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

    def settle(self, rows: Iterable[InventoryState]) -> None:
        """Apply values that a statement of this process returned."""
        for row in rows:
            self._apply_used(row.provider, row.resource, row.used, row.capacity, row.version)

    def settle_generations(self, moved: Iterable[GenerationChange]) -> None:
        """Apply generations that a transaction of this process raised; only when nothing else of the provider has
        changed since it was read: otherwise the next read brings everything.
        """
        rows = self.rows
        for each in moved:
            place = rows.find(each.provider)
            if place is not None and rows.version[place] == each.before:
                rows.generation[place], rows.version[place] = each.generation, each.version
                rows.updated_at[place] = each.updated_at

    def version_of(self, uuid: str) -> int | None:
        """The known version of the provider's row, or None. May be called from any thread."""
        place = self.rows.find(ProviderId(uuid))
        return None if place is None else self.rows.version[place]

    def set_alive(self, host: str, alive: bool) -> None:
        """Set whether a host is alive, by its name; remembered for hosts that are not loaded yet."""
        (self._dead.discard if alive else self._dead.add)(host)
        self.columns_version += self.host_slots.set_alive(host, alive, self.forced_down)

    def set_level(self, host: str, level: int) -> None:
        self.columns_version += self.host_slots.set_level(host, level)

    def count_failure(self, host: HostId, *, failed: bool) -> None:
        """A build failed there (one more), or succeeded (back to none)."""
        self.columns_version += self.host_slots.count_failure(host, failed=failed)

    def set_host_aggregates(self, aggregates: Sequence[tuple[str, Mapping[str, str], Sequence[str]]]) -> None:
        """Aggregates of the compute API: (name, metadata, hosts); a zone in the metadata replaces the host's own."""
        now = tuple(aggregates)
        if now != self._host_aggregates:
            self._host_aggregates = now
            self._zone_of = {host: data[ZONE_KEY] for _, data, hosts in now if ZONE_KEY in data for host in hosts}
            self.wiring.stale = True

    @property
    def host_aggregates(self) -> Sequence[tuple[str, Mapping[str, str], Sequence[str]]]:
        """The aggregates that were set last."""
        return self._host_aggregates

    # --------------------------------------------------------------------------------------------------- views

    def anchors(self) -> NDArray[np.int32]:
        """The slots of all roots; cached until a tree is added or removed. Do not change it."""
        return self.host_slots.anchors()

    def sharing(self, trait: str) -> dict[str, list[Provider]]:
        """Aggregate → its members with the sharing trait; cached until a provider changes."""
        return self.wiring.sharing(trait)

    def world(self) -> World:
        """The World as it is now: views of the columns, not copies."""
        if self.wiring.stale:
            self.wiring.wire(self._host_aggregates)
            self._world = None
        if self._world is None or self.devices.grown:
            self._world = world_of(self.host_slots, self.wiring, self.devices, self.groups)
        return self._world
