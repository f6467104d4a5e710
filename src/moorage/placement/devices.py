"""Providers below hosts in columns: bridges, physical functions, agents and whatever else is a host's child (CORE §9).

A cloud has several of them per host, and only a request with groups looks at them; so they are apart from the hosts' columns,
and a plain decision never touches them.
"""

from collections.abc import Mapping

import numpy as np

from moorage.model.ids import HostId, ProviderId
from moorage.model.world import Nested, Slots
from moorage.placement.columns import Columns, clipped, largest
from moorage.placement.known import Provider, Stock

NOWHERE = -1


class Devices:
    """One slot per provider that is not a root."""

    def __init__(self, pending: Mapping[tuple[ProviderId, str], int]) -> None:
        self._pending = pending
        self._columns = Columns()
        self._host: Slots = np.full(0, NOWHERE, dtype=np.intp)
        self._slots: dict[ProviderId, int] = {}
        self._ids: list[ProviderId] = []
        self._names: list[str] = []
        self._parents: list[ProviderId | None] = []
        self._roots: list[HostId] = []
        self._below: dict[HostId, list[int]] = {}
        self.grown = False
        """Columns were added or replaced since the last view."""

    def draw(self, provider: Provider, host: int) -> None:
        """The whole provider, as it was read; `host` is its root's slot, or NOWHERE."""
        root = HostId(provider.root)
        slot = self._slots.get(provider.uuid)
        columns = self._columns
        if slot is None:
            slot = self._take_slot(provider.uuid)
            self._enter(slot, root)
        else:
            for resource, capacity in columns.capacity.items():
                if resource not in provider.stocks:
                    capacity[slot] = columns.free[resource][slot] = 0
        if self._roots[slot] != root:
            self._leave(slot)
            self._enter(slot, root)
        self._names[slot], self._parents[slot] = provider.name, provider.parent
        self._host[slot] = host
        for resource, stock in provider.stocks.items():
            self.redraw(provider.uuid, resource, stock)
        bits = len(columns.trait_words)
        columns.set_traits(slot, provider.traits)
        self.grown |= bits != len(columns.trait_words)

    def redraw(self, provider: ProviderId, resource: str, stock: Stock) -> None:
        """One number, less what is about to be claimed."""
        slot = self._slots.get(provider)
        if slot is None:
            return
        columns = self._columns
        self.grown |= resource not in columns.free
        free = stock.cap - stock.used - self._pending.get((provider, resource), 0)
        columns.class_column(resource)[slot] = clipped(free)
        columns.capacity[resource][slot] = clipped(stock.cap)
        columns.set_units(resource, slot, stock.min_unit, largest(stock), stock.step)

    def place(self, root: HostId, host: int) -> None:
        """The root got a slot, or gave it back."""
        for slot in self._below.get(root, ()):
            self._host[slot] = host

    def drop(self, provider: ProviderId) -> None:
        """The provider is gone, or is below nothing any more."""
        slot = self._slots.pop(provider, None)
        if slot is not None:
            self._leave(slot)
            self._host[slot] = NOWHERE
            self._columns.give_slot(slot)

    def _take_slot(self, provider: ProviderId) -> int:
        slot = self._slots[provider] = self._columns.take_slot()
        self.grown = True
        if slot == len(self._ids):
            self._ids.append(provider)
            self._names.append("")
            self._parents.append(None)
            self._roots.append(HostId(""))
        self._ids[slot] = provider
        if (room := len(self._columns.level)) > len(self._host):
            wider = np.full(room, NOWHERE, dtype=np.intp)
            wider[: len(self._host)] = self._host
            self._host = wider
        return slot

    def _enter(self, slot: int, root: HostId) -> None:
        self._roots[slot] = root
        self._below.setdefault(root, []).append(slot)

    def _leave(self, slot: int) -> None:
        siblings = self._below[self._roots[slot]]
        siblings.remove(slot)
        if not siblings:
            del self._below[self._roots[slot]]

    def view(self) -> Nested:
        """The columns as they are; views, not copies."""
        self.grown = False
        columns, size = self._columns, self._columns.size
        return Nested(
            ids=self._ids,
            names=self._names,
            parents=self._parents,
            host=self._host[:size],
            free={name: column[:size] for name, column in columns.free.items()},
            capacity={name: column[:size] for name, column in columns.capacity.items()},
            units=columns.units,
            trait_bits=columns.trait_bits,
            trait_words=columns.trait_words[:, :size],
            below=self._below,
            pending=self._pending,
        )
