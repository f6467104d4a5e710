"""Providers below hosts in columns: bridges, physical functions, agents and other children of hosts (docs/engine.md).

A cloud has several of them per host, and only a request with request groups needs them. So they are separate from the
hosts' columns, and a plain decision never reads them. There are many, so nothing is stored twice: names and parents are
read from the providers' rows, the children of a host from its tree, and portions have a column only where one is
unusual.
"""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar, overload

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from moorage.model.ids import HostId, ProviderId
from moorage.model.world import Nested, Slots
from moorage.placement.cache.columns import FIRST_ROOM, Amounts, wider
from moorage.placement.cache.provider import NO_SLOT, InventoryKind
from moorage.placement.cache.provider_rows import NOWHERE, Rows

GROWS_BY = 0.25
"""Grow by a quarter: after doubling, half of the memory could stay unused."""

T = TypeVar("T")


class DeviceColumns:
    """One slot per provider that is not a root; the provider's row has the slot."""

    def __init__(self, pending: Mapping[tuple[ProviderId, str], int], rows: Rows) -> None:
        self._pending, self._rows = pending, rows
        self._places = array("i")
        """Slot → the provider's place; NOWHERE: the slot is free."""
        self.columns = Amounts(GROWS_BY)
        self.host: Slots = np.full(FIRST_ROOM, NO_SLOT, dtype=np.intp)
        self.grown = False
        """Columns were added or replaced since the last view."""

    # ------------------------------------------------------------------------------------------------- writing

    def draw(self, place: int, host: int) -> None:
        """Write the whole provider, as it was read; `host` is its root's slot, or NO_SLOT."""
        rows, columns = self._rows, self.columns
        if rows.slot[place] == NO_SLOT:
            self._take_slot(place)
        slot = rows.slot[place]
        self.host[slot] = host
        for resource, capacity in columns.capacity.items():
            if rows.stock(place, resource) is None:
                capacity[slot] = columns.free[resource][slot] = 0
        for kind, used in rows.stocks(place):
            self.redraw(place, kind, used)
        words = len(columns.trait_bitmap)
        columns.set_traits(slot, rows.sets.all[rows.traits[place]])
        self.grown |= words != len(columns.trait_bitmap)

    def redraw(self, place: int, kind: InventoryKind, used: int) -> None:
        """Write one number, minus what is about to be claimed."""
        slot = self._rows.slot[place]
        if slot == NO_SLOT:
            return
        resource = kind.resource
        self.grown |= resource not in self.columns.free
        pending = self._pending.get((self._rows.ids[place], resource), 0)
        self.columns.draw(resource, slot, kind, kind.cap - used - pending)

    def put(self, root: HostId, host: int) -> None:
        """The root got a slot, or freed it."""
        place = self._rows.index.get(ProviderId(root))
        if place is None:
            return
        for member in self._rows.members(place):
            if (slot := self._rows.slot[member]) != NO_SLOT:
                self.host[slot] = host

    def drop(self, place: int) -> None:
        """The provider was removed, or has no parent any more."""
        slot = self._rows.slot[place]
        if slot == NO_SLOT:
            return
        self._rows.slot[place] = NO_SLOT
        self._places[slot] = NOWHERE
        self.host[slot] = NO_SLOT
        self.columns.give_slot(slot)

    def _take_slot(self, place: int) -> None:
        slot = self._rows.slot[place] = self.columns.take_slot()
        self.grown = True
        if slot < len(self._places):
            self._places[slot] = place
            return
        self._places.append(place)
        self._make_room()

    def _make_room(self) -> None:
        if (room := self.columns.trait_bitmap.shape[1]) > len(self.host):
            self.host = wider(self.host, room, NO_SLOT)

    # ---------------------------------------------------------------------------------------------- many at once

    def take_slots(self, places: NDArray[np.intp]) -> NDArray[np.intp]:
        """New slots for all of these; their hosts are set later."""
        first = self.columns.take_slots(len(places))
        self.grown = True
        self._places.frombytes(places.astype(np.int32).tobytes())
        self._make_room()
        slots = np.arange(first, first + len(places))
        np.frombuffer(self._rows.slot, dtype=np.int32)[places] = slots
        return slots

    def put_all(self, roots: Sequence[int]) -> None:
        """Set the roots with slots, in the order of their slots."""
        if not self._places:
            return
        slot_of = np.full(len(self._rows.ids), NO_SLOT, dtype=np.intp)
        slot_of[np.array(roots, dtype=np.intp)] = np.arange(len(roots))
        mine = np.array(self._places, dtype=np.intp)
        self.host[: len(mine)] = slot_of[np.frombuffer(self._rows.root, dtype=np.int32)[mine]]

    # --------------------------------------------------------------------------------------------------- views

    def view(self) -> Nested:
        """The current columns; views, not copies."""
        self.grown = False
        rows, columns, size = self._rows, self.columns, self.columns.size
        return Nested(
            ids=_SlotFacts(self._places, rows.ids.__getitem__, ProviderId("")),
            names=_SlotFacts(self._places, rows.names.__getitem__, ""),
            parents=_SlotFacts(self._places, rows.parent_id, None),
            host=self.host[:size],
            free={name: column[:size] for name, column in columns.free.items()},
            capacity={name: column[:size] for name, column in columns.capacity.items()},
            units=columns.units,
            trait_bits=columns.trait_bits,
            trait_bitmap=columns.trait_bitmap[:, :size],
            below=_Below(rows),
            pending=self._pending,
        )


class _SlotFacts(Sequence[T]):
    """One fact of every slot's provider."""

    __slots__ = ("_nobody", "_of", "_places")

    def __init__(self, places: Sequence[int], of: Callable[[int], T], nobody: T) -> None:
        self._places, self._of, self._nobody = places, of, nobody

    @overload
    def __getitem__(self, slot: int) -> T: ...
    @overload
    def __getitem__(self, slot: slice) -> Sequence[T]: ...
    @override
    def __getitem__(self, slot: int | slice) -> T | Sequence[T]:
        if isinstance(slot, slice):
            return [self[each] for each in range(*slot.indices(len(self)))]
        place = self._places[slot]
        return self._nobody if place == NOWHERE else self._of(place)

    @override
    def __len__(self) -> int:
        return len(self._places)


class _Below(Mapping[HostId, Sequence[int]]):
    """Host → the slots of the providers below it, read from its tree."""

    __slots__ = ("_rows",)

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    @override
    def __getitem__(self, host: HostId) -> Sequence[int]:
        place = self._rows.index[ProviderId(host)]
        slots = self._rows.slot
        return [slots[each] for each in self._rows.members(place) if slots[each] != NO_SLOT]

    @override
    def __iter__(self) -> Iterator[HostId]:
        ids = self._rows.ids
        return (HostId(ids[place]) for place, head in enumerate(self._rows.head) if head != NOWHERE)

    @override
    def __len__(self) -> int:
        return self._rows.trees_count
