"""Columns that grow: one array per fact, one slot per provider (the layout of CORE §9): hosts in one set, what is below them in another."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from moorage.model.world import Ints, Mask, Units

FIRST_ROOM = 64
INT32_MAX = 2_147_483_647
WORD_BITS = 64


class Columns:
    """All columns have the same room; `size` slots of it were ever used."""

    def __init__(self) -> None:
        self.size = 0
        self._room = FIRST_ROOM
        self._empty: list[int] = []
        self.masks: dict[str, Mask] = {}
        self.free: dict[str, Ints] = {}
        self.capacity: dict[str, Ints] = {}
        self.units: dict[str, Units] = {}
        self.trait_bits: dict[str, int] = {}
        self.trait_words: NDArray[np.uint64] = np.zeros((1, self._room), dtype=np.uint64)
        self.level: NDArray[np.int8] = np.zeros(self._room, dtype=np.int8)
        self.zone: NDArray[np.int16] = np.zeros(self._room, dtype=np.int16)
        self.cell: NDArray[np.int16] = np.zeros(self._room, dtype=np.int16)
        self.failures: NDArray[np.int16] = np.zeros(self._room, dtype=np.int16)
        for name in ("present", "enabled", "alive", "physnets_known"):
            self.masks[name] = np.zeros(self._room, dtype=np.bool_)

    def take_slot(self) -> int:
        """An empty slot, from those given back or at the end."""
        if self._empty:
            return self._empty.pop()
        if self.size == self._room:
            self._grow(self._room * 2)
        self.size += 1
        return self.size - 1

    def give_slot(self, slot: int) -> None:
        """Blank every column there."""
        for mask in self.masks.values():
            mask[slot] = False
        for column in (*self.free.values(), *self.capacity.values()):
            column[slot] = 0
        self.trait_words[:, slot] = 0
        self.failures[slot] = 0
        self._empty.append(slot)

    def _grow(self, room: int) -> None:
        def wider(old: NDArray[Any], fill: int = 0) -> NDArray[Any]:
            new = np.full((*old.shape[:-1], room), fill, dtype=old.dtype)
            new[..., : old.shape[-1]] = old
            return new

        self.masks = {name: wider(mask) for name, mask in self.masks.items()}
        self.free = {name: wider(column) for name, column in self.free.items()}
        self.capacity = {name: wider(column) for name, column in self.capacity.items()}
        for units in self.units.values():
            units.minimum, units.step = wider(units.minimum, 1), wider(units.step, 1)
            units.maximum = wider(units.maximum, INT32_MAX)
        self.trait_words = wider(self.trait_words)
        self.level, self.failures = wider(self.level), wider(self.failures)
        self.zone, self.cell = wider(self.zone), wider(self.cell)
        self._room = room

    def mask(self, name: str) -> Mask:
        """A mask by name, made on first use."""
        if name not in self.masks:
            self.masks[name] = np.zeros(self._room, dtype=np.bool_)
        return self.masks[name]

    def class_column(self, resource: str) -> Ints:
        """The free column of a class; all columns of the class are made on first use."""
        if resource not in self.free:
            self.free[resource] = np.zeros(self._room, dtype=np.int32)
            self.capacity[resource] = np.zeros(self._room, dtype=np.int32)
            self.units[resource] = Units(
                np.ones(self._room, dtype=np.int32),
                np.full(self._room, INT32_MAX, dtype=np.int32),
                np.ones(self._room, dtype=np.int32),
                lowest_maximum=INT32_MAX,
            )
        return self.free[resource]

    def set_units(self, resource: str, slot: int, minimum: int, maximum: int, step: int) -> None:
        units = self.units[resource]
        units.minimum[slot], units.maximum[slot], units.step[slot] = minimum, maximum, step
        units.highest_minimum = max(units.highest_minimum, minimum)
        units.lowest_maximum = min(units.lowest_maximum, maximum)
        units.highest_step = max(units.highest_step, step)

    def set_traits(self, slot: int, traits: frozenset[str]) -> None:
        self.trait_words[:, slot] = 0
        for trait in traits:
            bit = self.trait_bits.setdefault(trait, len(self.trait_bits))
            while bit // WORD_BITS >= len(self.trait_words):
                more = np.zeros((1, self._room), dtype=np.uint64)
                self.trait_words = np.concatenate([self.trait_words, more])
            self.trait_words[bit // WORD_BITS, slot] |= np.uint64(1 << (bit % WORD_BITS))


def clipped(amount: int) -> int:
    """Within int32: more than that is plenty, less is nothing."""
    return max(-INT32_MAX, min(INT32_MAX, amount))
