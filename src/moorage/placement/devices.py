"""Providers below hosts in columns: bridges, physical functions, agents and whatever else is a host's child (CORE §9).

A cloud has several of them per host, and only a request with groups looks at them; so they are apart from the hosts' columns,
and a plain decision never touches them.  They are many, so nothing is kept twice: names and parents are the providers' own,
what is below a host is read from its tree, and portions have a column only where one is unusual.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar, overload

import numpy as np
from typing_extensions import override

from moorage.model.ids import HostId, ProviderId
from moorage.model.world import Nested, Slots
from moorage.placement.columns import FIRST_ROOM, Amounts, clipped, largest, wider
from moorage.placement.known import NO_SLOT, Provider, Stock

GROWS_BY = 0.25
"""A quarter more room at a time: half of what is doubled would stay empty."""

T = TypeVar("T")
Trees = Mapping[ProviderId, Mapping[ProviderId, Provider]]


class Devices:
    """One slot per provider that is not a root; the provider knows it."""

    def __init__(self, pending: Mapping[tuple[ProviderId, str], int], trees: Trees) -> None:
        self._pending, self._trees = pending, trees
        self._providers: list[Provider | None] = []
        self._columns = Amounts(GROWS_BY)
        self._host: Slots = np.full(FIRST_ROOM, NO_SLOT, dtype=np.intp)
        self.grown = False
        """Columns were added or replaced since the last view."""

    # ------------------------------------------------------------------------------------------------- drawing

    def draw(self, provider: Provider, host: int) -> None:
        """The whole provider, as it was read; `host` is its root's slot, or NO_SLOT."""
        if provider.slot == NO_SLOT:
            self._take_slot(provider)
        slot, columns = provider.slot, self._columns
        self._host[slot] = host
        for resource, capacity in columns.capacity.items():
            if resource not in provider.stocks:
                capacity[slot] = columns.free[resource][slot] = 0
        for resource, stock in provider.stocks.items():
            self.redraw(provider, resource, stock)
        words = len(columns.trait_words)
        columns.set_traits(slot, provider.traits)
        self.grown |= words != len(columns.trait_words)

    def redraw(self, provider: Provider, resource: str, stock: Stock) -> None:
        """One number, less what is about to be claimed."""
        slot, columns = provider.slot, self._columns
        if slot == NO_SLOT:
            return
        self.grown |= resource not in columns.free
        pending = self._pending.get((provider.uuid, resource), 0)
        columns.class_column(resource)[slot] = clipped(stock.cap - stock.used - pending)
        columns.capacity[resource][slot] = clipped(stock.cap)
        columns.set_units(resource, slot, stock.min_unit, largest(stock), stock.step)

    def place(self, root: HostId, host: int) -> None:
        """The root got a slot, or gave it back."""
        for provider in self._trees.get(ProviderId(root), {}).values():
            if provider.slot != NO_SLOT:
                self._host[provider.slot] = host

    def drop(self, provider: Provider) -> None:
        """The provider is gone, or is below nothing any more."""
        slot, provider.slot = provider.slot, NO_SLOT
        if slot == NO_SLOT:
            return
        self._providers[slot] = None
        self._host[slot] = NO_SLOT
        self._columns.give_slot(slot)

    def _take_slot(self, provider: Provider) -> None:
        slot = provider.slot = self._columns.take_slot()
        self.grown = True
        if slot < len(self._providers):
            self._providers[slot] = provider
            return
        self._providers.append(provider)
        if (room := self._columns.trait_words.shape[1]) > len(self._host):
            self._host = wider(self._host, room, NO_SLOT)

    # --------------------------------------------------------------------------------------------------- views

    def view(self) -> Nested:
        """The columns as they are; views, not copies."""
        self.grown = False
        columns, size = self._columns, self._columns.size
        return Nested(
            ids=_Told(self._providers, _uuid, ProviderId("")),
            names=_Told(self._providers, _name, ""),
            parents=_Told(self._providers, _parent, None),
            host=self._host[:size],
            free={name: column[:size] for name, column in columns.free.items()},
            capacity={name: column[:size] for name, column in columns.capacity.items()},
            units=columns.units,
            trait_bits=columns.trait_bits,
            trait_words=columns.trait_words[:, :size],
            below=_Below(self._trees),
            pending=self._pending,
        )


def _uuid(provider: Provider) -> ProviderId:
    return provider.uuid


def _name(provider: Provider) -> str:
    return provider.name


def _parent(provider: Provider) -> ProviderId | None:
    return provider.parent


class _Told(Sequence[T]):
    """One fact of every slot's provider."""

    __slots__ = ("_nobody", "_of", "_providers")

    def __init__(self, providers: Sequence[Provider | None], of: Callable[[Provider], T], nobody: T) -> None:
        self._providers, self._of, self._nobody = providers, of, nobody

    @overload
    def __getitem__(self, slot: int) -> T: ...
    @overload
    def __getitem__(self, slot: slice) -> Sequence[T]: ...
    @override
    def __getitem__(self, slot: int | slice) -> T | Sequence[T]:
        if isinstance(slot, slice):
            return [self[each] for each in range(*slot.indices(len(self)))]
        provider = self._providers[slot]
        return self._nobody if provider is None else self._of(provider)

    @override
    def __len__(self) -> int:
        return len(self._providers)


class _Below(Mapping[HostId, Sequence[int]]):
    """Host → the slots of what is below it, read from its tree."""

    __slots__ = ("_trees",)

    def __init__(self, trees: Trees) -> None:
        self._trees = trees

    @override
    def __getitem__(self, host: HostId) -> Sequence[int]:
        members = self._trees[ProviderId(host)].values()
        return [provider.slot for provider in members if provider.slot != NO_SLOT]

    @override
    def __iter__(self) -> Iterator[HostId]:
        return (HostId(root) for root in self._trees)

    @override
    def __len__(self) -> int:
        return len(self._trees)
