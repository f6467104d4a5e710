"""Columns that grow: one array per fact, one slot per provider (the layout of CORE §9): roots here, what is below them in devices.py."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from moorage.model.world import Ints, Mask, Units
from moorage.placement.known import Stock

FIRST_ROOM = 64
INT32_MAX = 2_147_483_647
WORD_BITS = 64


class Amounts:
    """Amounts, portions and traits: all columns have the same room; `size` slots of it were ever used."""

    def __init__(self, grows_by: float = 1.0) -> None:
        self.size = 0
        self._room = FIRST_ROOM
        self._grows_by = grows_by
        """How much more room there is the next time, as a part of what there is."""
        self._empty: list[int] = []
        self.free: dict[str, Ints] = {}
        self.capacity: dict[str, Ints] = {}
        self.units: dict[str, Units] = {}
        self.trait_bits: dict[str, int] = {}
        self.trait_words: NDArray[np.uint64] = np.zeros((1, self._room), dtype=np.uint64)

    def take_slot(self) -> int:
        """An empty slot, from those given back or at the end."""
        if self._empty:
            return self._empty.pop()
        if self.size == self._room:
            self._grow(self._room + max(FIRST_ROOM, int(self._room * self._grows_by)))
        self.size += 1
        return self.size - 1

    def give_slot(self, slot: int) -> None:
        """Blank every column there."""
        for column in (*self.free.values(), *self.capacity.values()):
            column[slot] = 0
        self.trait_words[:, slot] = 0
        self._empty.append(slot)

    def _grow(self, room: int) -> None:
        self.free = {name: wider(column, room) for name, column in self.free.items()}
        self.capacity = {name: wider(column, room) for name, column in self.capacity.items()}
        for units in self.units.values():
            units.minimum, units.step, units.maximum = (
                wider(column, room, value) if column.strides[0] else _everywhere(value, room)
                for column, value in ((units.minimum, 1), (units.step, 1), (units.maximum, INT32_MAX))
            )
        self.trait_words = wider(self.trait_words, room)
        self._room = room

    def class_column(self, resource: str) -> Ints:
        """The free column of a class; all columns of the class are made on first use."""
        if resource not in self.free:
            self.free[resource] = np.zeros(self._room, dtype=np.int32)
            self.capacity[resource] = np.zeros(self._room, dtype=np.int32)
            one = _everywhere(1, self._room)
            self.units[resource] = Units(one, _everywhere(INT32_MAX, self._room), one, lowest_maximum=INT32_MAX)
        return self.free[resource]

    def set_units(self, resource: str, slot: int, minimum: int, maximum: int, step: int) -> None:
        """Columns of portions take room from the first host on that gives something unusual."""
        units = self.units[resource]
        if minimum != 1 or units.highest_minimum != 1:
            units.minimum = _own(units.minimum)
            units.minimum[slot] = minimum
            units.highest_minimum = max(units.highest_minimum, minimum)
        if maximum != INT32_MAX or units.lowest_maximum != INT32_MAX:
            units.maximum = _own(units.maximum)
            units.maximum[slot] = maximum
            units.lowest_maximum = min(units.lowest_maximum, maximum)
        if step != 1 or units.highest_step != 1:
            units.step = _own(units.step)
            units.step[slot] = step
            units.highest_step = max(units.highest_step, step)

    def set_traits(self, slot: int, traits: frozenset[str]) -> None:
        for word in self.trait_words:
            word[slot] = 0
        for trait in traits:
            bit = self.trait_bits.setdefault(trait, len(self.trait_bits))
            while bit // WORD_BITS >= len(self.trait_words):
                more = np.zeros((1, self._room), dtype=np.uint64)
                self.trait_words = np.concatenate([self.trait_words, more])
            self.trait_words[bit // WORD_BITS, slot] |= np.uint64(1 << (bit % WORD_BITS))


class Columns(Amounts):
    """Hosts: the same, with what a decision asks of a host besides."""

    def __init__(self) -> None:
        super().__init__()
        self.masks: dict[str, Mask] = {}
        self.level: NDArray[np.int8] = np.zeros(self._room, dtype=np.int8)
        self.zone: NDArray[np.int16] = np.zeros(self._room, dtype=np.int16)
        self.cell: NDArray[np.int16] = np.zeros(self._room, dtype=np.int16)
        self.failures: NDArray[np.int16] = np.zeros(self._room, dtype=np.int16)
        for name in ("present", "enabled", "alive", "physnets_known"):
            self.masks[name] = np.zeros(self._room, dtype=np.bool_)

    @override
    def give_slot(self, slot: int) -> None:
        super().give_slot(slot)
        for mask in self.masks.values():
            mask[slot] = False
        self.failures[slot] = 0

    @override
    def _grow(self, room: int) -> None:
        super()._grow(room)
        self.masks = {name: wider(mask, room) for name, mask in self.masks.items()}
        self.level, self.failures = wider(self.level, room), wider(self.failures, room)
        self.zone, self.cell = wider(self.zone, room), wider(self.cell, room)

    def mask(self, name: str) -> Mask:
        """A mask by name, made on first use."""
        if name not in self.masks:
            self.masks[name] = np.zeros(self._room, dtype=np.bool_)
        return self.masks[name]


def wider(old: NDArray[Any], room: int, fill: int = 0) -> NDArray[Any]:
    """The same column with more room."""
    new = np.full((*old.shape[:-1], room), fill, dtype=old.dtype)
    new[..., : old.shape[-1]] = old
    return new


def clipped(amount: int) -> int:
    """Within int32: more than that is plenty, less is nothing."""
    if -INT32_MAX <= amount <= INT32_MAX:
        return amount
    return INT32_MAX if amount > 0 else -INT32_MAX


def largest(stock: Stock) -> int:
    """The largest portion as columns know it: one that capacity forbids anyway is no limit."""
    return stock.max_unit if stock.max_unit < stock.cap and stock.max_unit < INT32_MAX else INT32_MAX


def _everywhere(value: int, room: int) -> Ints:
    """A column of one value, which takes no room and cannot be written."""
    return np.broadcast_to(np.int32(value), (room,))


def _own(column: Ints) -> Ints:
    return column if column.strides[0] else column.copy()
