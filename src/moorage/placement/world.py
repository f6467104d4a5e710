"""The picture: all providers in memory, and their numbers in columns, roots and what is below them apart (RULES §6).

SQL decides; each process has its own picture, written by one task in it.  It is what was read (absolute values; a newer
`version` wins) less what this process is about to claim (`pending`).  It may be late, never wrong for long: a claim on a stale
picture is refused by SQL, and the refusal carries the true numbers.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from moorage.model.ids import CellId, HostId, ProviderId
from moorage.model.resources import DISABLED_TRAIT, IPV4_ADDRESS
from moorage.model.verdict import Row
from moorage.model.world import Group, HostAggregate, Mask, Segment, World
from moorage.placement.columns import Columns, clipped, largest
from moorage.placement.devices import Devices
from moorage.placement.known import NO_SLOT, HostFacts, Provider, Shape, Stock
from moorage.store.region.placement.changes import Changes

DEFAULT_ZONE = "nova"
ZONE_KEY = "availability_zone"


class Picture:
    """Providers by id, trees, aggregates, and the columns of all providers."""

    def __init__(self) -> None:
        self._pending: dict[tuple[ProviderId, str], int] = {}
        self._host_aggregates: Sequence[tuple[str, Mapping[str, str], Sequence[str]]] = ()
        self._dead: set[str] = set()
        self._clear()

    def _clear(self) -> None:
        self.providers: dict[ProviderId, Provider] = {}
        self.trees: dict[ProviderId, dict[ProviderId, Provider]] = {}
        self.members: dict[str, set[ProviderId]] = {}
        self.hosts: dict[ProviderId, HostFacts] = {}
        self.groups: dict[str, Group] = {}
        self.slots: dict[HostId, int] = {}
        self.slots_by_name: dict[str, int] = {}
        self.columns = Columns()
        self.devices = Devices(self._pending, self.trees)
        self.host_ids: list[HostId] = []
        self.names: list[str] = []
        self.nodes: list[str] = []
        self._zones: dict[str, int] = {DEFAULT_ZONE: 0}
        self._cells: dict[CellId, int] = {}
        self._interned: dict[frozenset[str], frozenset[str]] = {}
        self._shapes: dict[Shape, Shape] = {}
        self._anchors: list[ProviderId] | None = None
        self._segments: dict[ProviderId, Segment] = {}
        self._world: World | None = None
        self._wiring_stale = True
        self._sharing: dict[str, list[Provider]] | None = None
        self._aggregates: list[HostAggregate] = []

    # ------------------------------------------------------------------------------------------- what was read

    def successor(self) -> "Picture":
        """An empty picture that knows what this process is about to claim and whom it has not heard from."""
        found = Picture()
        found._pending, found._dead = self._pending, self._dead
        found._clear()
        return found

    def take_over(self, before: "Picture") -> None:
        """Read whole, it takes the place of an earlier one: what the process learned meanwhile is drawn again."""
        self._host_aggregates = before._host_aggregates
        self._wiring_stale = True
        self.columns.masks["alive"][: self.columns.size] = True
        for host in self._dead:
            self.set_alive(host, False)
        for uuid, resource in self._pending:
            provider = self.providers.get(uuid)
            if provider is not None and resource in provider.stocks:
                self._redraw(provider, resource)

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
        traits = _gathered(changes.traits, "trait")
        aggregates = _gathered(changes.aggregates, "aggregate")
        facts = {row.provider: row for row in changes.hosts}
        whole: dict[str, list[Any]] = {}
        for row in changes.whole:
            whole.setdefault(row.provider, []).append(row)
        for row in changes.providers:
            provider = self.providers.get(row.uuid)
            if provider is None:
                provider = self.providers[row.uuid] = Provider(row.uuid)
            elif row.version < provider.version:
                continue
            self._apply_provider(provider, row)
            provider.shown = None
            provider.traits = self._intern(traits.get(row.uuid, ()))
            self._set_aggregates(provider, self._intern(aggregates.get(row.uuid, ())))
            self._set_stocks(provider, whole.get(row.uuid, ()))
            if row.uuid in facts:
                self._set_facts(provider.uuid, HostFacts(facts[row.uuid]))
            if provider.root == provider.uuid:
                self.devices.drop(provider)
                self._draw_root(provider)
            else:
                self.devices.draw(provider, self.slots.get(HostId(provider.root), NO_SLOT))

    def _apply_provider(self, provider: Provider, row: Any) -> None:
        if (old := self.trees.get(provider.root)) is not None and provider.root != row.root:
            old.pop(provider.uuid, None)
            if (host := HostId(provider.uuid)) in self.slots:
                self._give_slot(host)
        provider.name, provider.parent, provider.root = row.name, row.parent, row.root
        if (tree := self.trees.get(provider.root)) is not None and (
            member := next(iter(tree.values()), None)
        ) is not None:
            provider.root = member.root  # one text for all of a tree
        elif provider.root == provider.uuid:
            provider.root = provider.uuid
        if provider.parent is not None and (above := self.providers.get(provider.parent)) is not None:
            provider.parent = above.uuid
        provider.generation, provider.version = row.generation, row.version
        provider.updated_at = row.updated_at
        if provider.root not in self.trees:
            self.trees[provider.root] = {}
            self._anchors = None
        self.trees[provider.root][provider.uuid] = provider

    def _intern(self, names: Iterable[str]) -> frozenset[str]:
        """Equal sets are one object: most hosts are alike."""
        found = frozenset(names)
        return self._interned.setdefault(found, found)

    def _set_aggregates(self, provider: Provider, now: frozenset[str]) -> None:
        if now == provider.aggregates:
            return
        for aggregate in provider.aggregates - now:
            self.members[aggregate].discard(provider.uuid)
        for aggregate in now - provider.aggregates:
            self.members.setdefault(aggregate, set()).add(provider.uuid)
        provider.aggregates = now
        self._wiring_stale = True

    def _set_facts(self, host: ProviderId, now: HostFacts) -> None:
        if now != self.hosts.get(host):
            self.hosts[host] = now
            self._wiring_stale = True

    def _set_stocks(self, provider: Provider, rows: Sequence[Any]) -> None:
        stocks: dict[str, Stock] = {}
        for row in rows:
            resource = sys.intern(row.resource)
            stock, old = Stock(row, self._shapes), provider.stocks.get(resource)
            if old is not None and old.version > stock.version:
                stock.used, stock.version = old.used, old.version
            stocks[resource] = stock
        provider.stocks = stocks

    def _apply_used(self, uuid: ProviderId, resource: str, used: int, cap: int, version: int) -> None:
        provider = self.providers.get(uuid)
        stock = None if provider is None else provider.stocks.get(resource)
        if provider is None or stock is None or version < stock.version:
            return
        stock.used, stock.cap, stock.version = used, cap, version
        provider.shown = None
        self._redraw(provider, resource)

    def _remove(self, uuid: ProviderId) -> None:
        provider = self.providers.pop(uuid, None)
        if provider is None:
            return
        self._set_aggregates(provider, frozenset())
        if (tree := self.trees.get(provider.root)) is not None:
            tree.pop(uuid, None)
            if not tree:
                del self.trees[provider.root]
                self._anchors = None
        self.hosts.pop(uuid, None)
        self._segments.pop(uuid, None)
        self.devices.drop(provider)
        if (host := HostId(uuid)) in self.slots:
            self._give_slot(host)

    # ------------------------------------------------------------------------------------------------- columns

    def _draw_root(self, provider: Provider) -> None:
        host = HostId(provider.uuid)
        slot = self.slots.get(host)
        columns = self.columns
        if slot is None:
            slot = self.slots[host] = columns.take_slot()
            if slot == len(self.host_ids):
                self.host_ids.append(host)
                self.names.append(provider.name)
                self.nodes.append(provider.name)
            self.host_ids[slot] = host
            self.devices.place(host, slot)
            columns.masks["alive"][slot] = True
            self._wiring_stale = True
        for resource, capacity in columns.capacity.items():
            if resource not in provider.stocks:
                capacity[slot] = columns.free[resource][slot] = 0
        for resource in provider.stocks:
            self._redraw(provider, resource)
        words = len(columns.trait_words)
        columns.set_traits(slot, provider.traits)
        if words != len(columns.trait_words):
            self._world = None
        columns.masks["enabled"][slot] = DISABLED_TRAIT not in provider.traits
        self._draw_host(provider, slot)
        if IPV4_ADDRESS in provider.stocks and provider.uuid not in self.hosts:
            segment = self._segments.get(provider.uuid)
            self._wiring_stale |= segment is None or segment.name != provider.name

    def _draw_host(self, provider: Provider, slot: int) -> None:
        facts = self.hosts.get(provider.uuid)
        columns = self.columns
        columns.masks["present"][slot] = facts is not None
        self.names[slot] = self.nodes[slot] = provider.name
        if facts is None:
            return
        self.names[slot], self.nodes[slot] = facts.host, facts.node
        self.slots_by_name[facts.host] = slot
        columns.level[slot] = facts.level
        columns.zone[slot] = self._zones.setdefault(facts.zone, len(self._zones))
        columns.cell[slot] = self._cells.setdefault(facts.cell, len(self._cells))
        columns.masks["alive"][slot] = facts.host not in self._dead
        columns.masks["physnets_known"][slot] = facts.physnets is not None
        for name in facts.physnets or ():
            columns.mask("physnet:" + name)[slot] = True
        for name, mask in columns.masks.items():
            if name.startswith("physnet:") and name[8:] not in (facts.physnets or ()):
                mask[slot] = False

    def _redraw(self, provider: Provider, resource: str) -> None:
        """Write one number into its column, if the provider is a root, and into its segment, if it is one."""
        stock = provider.stocks[resource]
        free = stock.cap - stock.used - self._pending.get((provider.uuid, resource), 0)
        slot = self.slots.get(HostId(provider.uuid))
        if slot is not None:
            column = self.columns.class_column(resource)
            column[slot] = clipped(free)
            self.columns.capacity[resource][slot] = clipped(stock.cap)
            self.columns.set_units(resource, slot, stock.min_unit, largest(stock), stock.step)
            if self._world is not None and resource not in self._world.free:
                self._world = None
        else:
            self.devices.redraw(provider, resource, stock)
        if resource == IPV4_ADDRESS and (segment := self._segments.get(provider.uuid)) is not None:
            segment.free, segment.total = free, stock.cap

    def _give_slot(self, host: HostId) -> None:
        slot = self.slots.pop(host)
        if self.slots_by_name.get(self.names[slot]) == slot:
            del self.slots_by_name[self.names[slot]]
        self.columns.give_slot(slot)
        self.devices.place(host, NO_SLOT)
        self._world = None
        self._wiring_stale = True

    # -------------------------------------------------------------------------------------------- this process

    def pend(self, rows: Iterable[tuple[ProviderId, str, int]], sign: int) -> None:
        """Count amounts as about to be claimed (+1), or no longer (-1)."""
        for uuid, resource, amount in rows:
            left = self._pending.get((uuid, resource), 0) + sign * amount
            if left:
                self._pending[uuid, resource] = left
            else:
                self._pending.pop((uuid, resource), None)
            provider = self.providers.get(uuid)
            if provider is not None and resource in provider.stocks:
                self._redraw(provider, resource)

    def settle(self, rows: Iterable[Row]) -> None:
        """Values that came back from a statement of our own."""
        for row in rows:
            self._apply_used(row.provider, row.resource, row.used, row.capacity, row.version)

    def set_alive(self, host: str, alive: bool) -> None:
        """What was heard of a host, by the name people know; kept for hosts not read yet."""
        (self._dead.discard if alive else self._dead.add)(host)
        if (slot := self.slots_by_name.get(host)) is not None:
            self.columns.masks["alive"][slot] = alive

    def set_level(self, host: str, level: int) -> None:
        if (slot := self.slots_by_name.get(host)) is not None:
            self.columns.level[slot] = level

    def count_failure(self, host: HostId, *, failed: bool) -> None:
        """A build failed there (one more), or succeeded (back to none)."""
        if (slot := self.slots.get(host)) is not None:
            self.columns.failures[slot] = min(self.columns.failures[slot] + 1, 1000) if failed else 0

    def set_host_aggregates(self, aggregates: Sequence[tuple[str, Mapping[str, str], Sequence[str]]]) -> None:
        """The aggregates of the compute API: (name, metadata, host names); a zone in the metadata wins over the host's own."""
        self._host_aggregates = tuple(aggregates)
        self._wiring_stale = True

    # --------------------------------------------------------------------------------------------------- views

    def anchors(self) -> list[ProviderId]:
        """The roots of all trees in some order; kept until there is another tree or one less. Not to be changed."""
        if self._anchors is None:
            self._anchors = list(self.trees)
        return self._anchors

    def sharing(self, trait: str) -> dict[str, list[Provider]]:
        """Aggregate → its members with the trait by which they share with the others; kept until a provider changes."""
        if self._sharing is None:
            self._sharing = {}
            for aggregate, members in self.members.items():
                here = [self.providers[member] for member in members if trait in self.providers[member].traits]
                if here:
                    self._sharing[aggregate] = here
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
        for uuid in {u for members in self.members.values() for u in members}:
            provider = self.providers[uuid]
            if uuid in self.hosts or (stock := provider.stocks.get(IPV4_ADDRESS)) is None:
                continue
            free = stock.cap - stock.used - self._pending.get((uuid, IPV4_ADDRESS), 0)
            wired = self._mask(m for aggregate in provider.aggregates for m in self.members[aggregate])
            segments[uuid] = Segment(uuid, provider.name, free, stock.cap, wired)
        self._segments = segments
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
            free={name: column[:size] for name, column in columns.free.items()},
            capacity={name: column[:size] for name, column in columns.capacity.items()},
            units=columns.units,
            trait_bits=columns.trait_bits,
            trait_words=columns.trait_words[:, :size],
            slots=self.slots,
            slots_by_name=self.slots_by_name,
            segments=self._segments,
            physnets={n[8:]: m[:size] for n, m in columns.masks.items() if n.startswith("physnet:")},
            physnets_known=columns.masks["physnets_known"][:size],
            aggregates=self._aggregates,
            groups=self.groups,
            failures=columns.failures[:size],
            nested=self.devices.view(),
        )


def _gathered(rows: Sequence[Any], column: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    name_of = attrgetter(column)
    for row in rows:
        found.setdefault(row.provider, []).append(name_of(row))
    return found
