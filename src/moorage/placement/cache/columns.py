"""Columns that grow: one array per fact, one slot per provider (docs/engine.md): roots here, others in
device_columns.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from moorage.model.world import Ints, Mask, Units
from moorage.placement.cache.provider import InventoryKind

FIRST_ROOM = 64
INT32_MAX = 2_147_483_647
WORD_BITS = 64


@dataclass(frozen=True)
class Alike:
    """The numbers of kinds of inventories, in columns."""

    cap: NDArray[np.int64]
    least: NDArray[np.int64]
    most: NDArray[np.int64]
    step: NDArray[np.int64]

    @classmethod
    def of(cls, kinds: Sequence[InventoryKind]) -> "Alike":
        numbers = [(kind.cap, kind.min_unit, largest(kind), kind.step) for kind in kinds]
        return cls(*np.array(numbers, dtype=np.int64).T)

    def __getitem__(self, which: NDArray[np.intp]) -> "Alike":
        """The numbers of several inventories, by the indexes of their kinds."""
        return Alike(self.cap[which], self.least[which], self.most[which], self.step[which])


class Amounts:
    """Amounts, portions and traits: all columns have the same length; the first `size` slots of it were ever used."""

    def __init__(self, grows_by: float = 1.0) -> None:
        self.size = 0
        self._room = FIRST_ROOM
        self._grows_by = grows_by
        """How much longer the columns become when they are full, as a part of their length."""
        self._empty: list[int] = []
        self.free: dict[str, Ints] = {}
        self.capacity: dict[str, Ints] = {}
        self.units: dict[str, Units] = {}
        self.trait_bits: dict[str, int] = {}
        self.trait_bitmap: NDArray[np.uint64] = np.zeros((1, self._room), dtype=np.uint64)

    def take_slot(self) -> int:
        """An empty slot: a freed one, or one at the end."""
        return self._empty.pop() if self._empty else self.take_slots(1)

    def take_slots(self, number: int) -> int:
        """Several new slots in a row; return the first."""
        first = self.size
        self.size += number
        if self.size > self._room:
            self._grow(max(self.size, self._room + max(FIRST_ROOM, int(self._room * self._grows_by))))
        return first

    def give_slot(self, slot: int) -> None:
        """Free the slot, and clear every column there."""
        for column in (*self.free.values(), *self.capacity.values()):
            column[slot] = 0
        self.trait_bitmap[:, slot] = 0
        self._empty.append(slot)

    def _grow(self, room: int) -> None:
        self.free = {name: wider(column, room) for name, column in self.free.items()}
        self.capacity = {name: wider(column, room) for name, column in self.capacity.items()}
        for units in self.units.values():
            units.minimum, units.step, units.maximum = (
                wider(column, room, value) if column.strides[0] else _everywhere(value, room)
                for column, value in ((units.minimum, 1), (units.step, 1), (units.maximum, INT32_MAX))
            )
        self.trait_bitmap = wider(self.trait_bitmap, room)
        self._room = room

    def class_column(self, resource: str) -> Ints:
        """The column of free amounts of a class; all columns of the class are created on first use."""
        if resource not in self.free:
            self.free[resource] = np.zeros(self._room, dtype=np.int32)
            self.capacity[resource] = np.zeros(self._room, dtype=np.int32)
            one = _everywhere(1, self._room)
            self.units[resource] = Units(one, _everywhere(INT32_MAX, self._room), one, lowest_maximum=INT32_MAX)
        return self.free[resource]

    def draw(self, resource: str, slot: int, kind: InventoryKind, free: int) -> None:
        """Write one inventory with its free amount."""
        self.class_column(resource)[slot] = clipped(free)
        self.capacity[resource][slot] = clipped(kind.cap)
        self.set_units(resource, slot, kind.min_unit, largest(kind), kind.step)

    def draw_many(self, resource: str, slots: NDArray[np.intp], alike: "Alike", used: NDArray[np.int64]) -> None:
        """Write inventories of one class into new slots."""
        self.class_column(resource)[slots] = np.clip(alike.cap - used, -INT32_MAX, INT32_MAX)
        self.capacity[resource][slots] = np.clip(alike.cap, -INT32_MAX, INT32_MAX)
        units = self.units[resource]
        if (highest := int(alike.least.max())) != 1 or units.highest_minimum != 1:
            units.minimum = _own(units.minimum)
            units.minimum[slots] = alike.least
            units.highest_minimum = max(units.highest_minimum, highest)
        if (lowest := int(alike.most.min())) != INT32_MAX or units.lowest_maximum != INT32_MAX:
            units.maximum = _own(units.maximum)
            units.maximum[slots] = alike.most
            units.lowest_maximum = min(units.lowest_maximum, lowest)
        if (highest := int(alike.step.max())) != 1 or units.highest_step != 1:
            units.step = _own(units.step)
            units.step[slots] = alike.step
            units.highest_step = max(units.highest_step, highest)

    def set_units(self, resource: str, slot: int, minimum: int, maximum: int, step: int) -> None:
        """Set the portions; their columns need memory only once a host has unusual ones."""
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

    def set_traits(self, slot: int | NDArray[np.intp], traits: frozenset[str]) -> None:
        """Set the traits of one slot, or the same traits of several."""
        words = [0] * len(self.trait_bitmap)
        for trait in traits:
            bit = self.trait_bits.setdefault(trait, len(self.trait_bits))
            if bit // WORD_BITS >= len(words):
                words.append(0)
                more = np.zeros((1, self._room), dtype=np.uint64)
                self.trait_bitmap = np.concatenate([self.trait_bitmap, more])
            words[bit // WORD_BITS] |= 1 << (bit % WORD_BITS)
        for column, word in zip(self.trait_bitmap, words, strict=True):
            column[slot] = word


class Columns(Amounts):
    """The columns of hosts: additionally what a scheduling decision needs of a host."""

    def __init__(self) -> None:
        super().__init__()
        self.masks: dict[str, Mask] = {}
        self.level: NDArray[np.int8] = np.zeros(self._room, dtype=np.int8)
        self.zone: NDArray[np.int16] = np.zeros(self._room, dtype=np.int16)
        self.cell: NDArray[np.int16] = np.zeros(self._room, dtype=np.int16)
        self.kind: NDArray[np.int16] = np.zeros(self._room, dtype=np.int16)
        self.failures: NDArray[np.int16] = np.zeros(self._room, dtype=np.int16)
        for name in ("present", "enabled", "alive", "physnets_known", "cell_disabled"):
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
        self.kind = wider(self.kind, room)

    def mask(self, name: str) -> Mask:
        """A mask by name, created on first use."""
        if name not in self.masks:
            self.masks[name] = np.zeros(self._room, dtype=np.bool_)
        return self.masks[name]


def wider(old: NDArray[Any], room: int, fill: int = 0) -> NDArray[Any]:
    """The same column, longer."""
    new = np.full((*old.shape[:-1], room), fill, dtype=old.dtype)
    new[..., : old.shape[-1]] = old
    return new


def clipped(amount: int) -> int:
    """Limit to int32: larger amounts count as plenty, negative ones as none."""
    if -INT32_MAX <= amount <= INT32_MAX:
        return amount
    return INT32_MAX if amount > 0 else -INT32_MAX


def largest(kind: InventoryKind) -> int:
    """The largest portion for the columns; a limit above the capacity counts as no limit."""
    return kind.max_unit if kind.max_unit < kind.cap and kind.max_unit < INT32_MAX else INT32_MAX


def _everywhere(value: int, room: int) -> Ints:
    """A column with the same value everywhere, which needs no memory and cannot be written."""
    return np.broadcast_to(np.int32(value), (room,))


def _own(column: Ints) -> Ints:
    return column if column.strides[0] else column.copy()
