"""Finds amounts and traits in columns, in the same way for hosts and for the providers below them."""

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from moorage.model.world import Ints, Mask, Scores, Slots, Units

WORD_BITS = 64


class Numbers(Protocol):
    """A World, or the providers nested in it."""

    @property
    def size(self) -> int: ...
    @property
    def free(self) -> Mapping[str, Ints]: ...
    @property
    def capacity(self) -> Mapping[str, Ints]: ...
    @property
    def units(self) -> Mapping[str, Units]: ...
    @property
    def trait_bits(self) -> Mapping[str, int]: ...
    @property
    def trait_bitmap(self) -> NDArray[np.uint64]: ...


def short(numbers: Numbers, resource: str, amount: int) -> Mask:
    """Return where the amount cannot be allocated: too little is free, or the inventory's minimum, maximum or step forbids it."""
    free = numbers.free.get(resource)
    if free is None:
        return np.ones(numbers.size, dtype=np.bool_)
    mask: Mask = free < amount
    units, size = numbers.units[resource], numbers.size
    if amount > units.lowest_maximum:
        mask |= units.maximum[:size] < amount
    if amount < units.highest_minimum:
        mask |= units.minimum[:size] > amount
    if units.highest_step > 1:
        mask |= amount % units.step[:size] != 0
    return mask


LEAST_MISSING = 0.01


def missing(numbers: Numbers, resource: str, amount: int, slots: Slots) -> Scores:
    """Return the missing part of the amount at these places: a fraction, or 1 if the class or the portion is not offered."""
    free, capacity = numbers.free.get(resource), numbers.capacity.get(resource)
    if free is None or capacity is None or amount <= 0:
        return np.ones(len(slots), dtype=np.float32)
    part = ((amount - free[slots].astype(np.float32)) / np.float32(amount)).clip(LEAST_MISSING, 1)
    scores: Scores = np.where((capacity[slots] > 0) & (free[slots] < amount), part, 1).astype(np.float32)
    return scores


def has_trait(numbers: Numbers, trait: str) -> Mask:
    """Return which places have the trait."""
    bit = numbers.trait_bits.get(trait)
    if bit is None:
        return np.zeros(numbers.size, dtype=np.bool_)
    mask: Mask = (numbers.trait_bitmap[bit // WORD_BITS] & np.uint64(1 << (bit % WORD_BITS))) != 0
    return mask
