"""Finds from the columns which trees may serve a request: the others could not, and these are searched.

A search takes trees one by one, which is fastest while most of them fit. When the first ones do not, all are checked at
once: a tree stays if each amount fits somewhere in it, and each group with a suffix fits one provider with its traits.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from moorage.model.provider_tree import GroupDemand
from moorage.model.world import Mask
from moorage.placement.cache.cache import ProviderCache
from moorage.placement.cache.columns import INT32_MAX, WORD_BITS, Amounts
from moorage.placement.cache.provider_rows import NOWHERE
from moorage.placement.service.candidate_rules import CandidateRules


def promising(picture: ProviderCache, groups: Sequence[GroupDemand], rules: CandidateRules) -> Mask:
    """A mask over the roots' slots. Pending claims of this process are not subtracted, so those trees stay."""
    roots, below = picture.columns, picture.devices.columns
    host = picture.devices.host[: below.size]
    mask = np.ones(roots.size, dtype=np.bool_)
    demands = [part for group in groups for part in _parts(group)]
    demands += [({}, [frozenset([trait])]) for trait in rules.root_required]
    for number, (amounts, traits) in enumerate(demands):
        suitable = _able(roots, amounts, traits)
        if below.size and number < len(demands) - len(rules.root_required):
            able = host[_able(below, amounts, traits)]
            suitable[able[able != NOWHERE]] = True
        mask &= suitable
    for uuid, _ in picture.pending:
        if (place := picture.rows.find(uuid)) is not None:
            slot = picture.slots.get(picture.rows.ids[picture.rows.root[place]])  # type: ignore[call-overload]
            if slot is not None:
                mask[slot] = True
    return mask


def _parts(group: GroupDemand) -> list[tuple[dict[str, int], list[frozenset[str]]]]:
    """What one provider must have by itself: all of a group with a suffix, each amount of the group without."""
    if group.suffix:
        return [(group.resources, group.required)]
    return [({resource: amount}, []) for resource, amount in group.resources.items()] + [
        ({}, [each]) for each in group.required
    ]


def _able(columns: Amounts, amounts: dict[str, int], traits: Sequence[frozenset[str]]) -> Mask:
    """The providers with all these amounts, and with one trait of each set."""
    size = columns.size
    mask = np.ones(size, dtype=np.bool_)
    for resource, amount in amounts.items():
        free = columns.free.get(resource)
        if free is None:
            return np.zeros(size, dtype=np.bool_)
        mask &= free[:size] >= min(amount, INT32_MAX)
    for each in traits:
        bits = [bit for trait in each if (bit := columns.trait_bits.get(trait)) is not None]
        has: NDArray[np.bool_] = np.zeros(size, dtype=np.bool_)
        for bit in bits:
            has |= columns.trait_bitmap[bit // WORD_BITS, :size] & np.uint64(1 << bit % WORD_BITS) != 0
        mask &= has
    return mask
