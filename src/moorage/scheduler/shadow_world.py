"""A recorded World with what a shadow placed elsewhere: free amounts are those recorded, and the difference."""

from collections import defaultdict
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from moorage.model.ids import HostId, ProviderId
from moorage.model.resources import IPV4_ADDRESS
from moorage.model.world import Ask, Group, Ints, World

INT32_MAX = 2_147_483_647
Key: TypeAlias = tuple[ProviderId, str]
Column: TypeAlias = NDArray[np.int64]


class Difference:
    """By provider and class: how much more is free than was recorded, in every process's World."""

    def __init__(self) -> None:
        self.amounts: dict[Key, int] = {}
        self._worlds: list[ShadowWorld] = []

    def add(self, amounts: dict[Key, int], sign: int) -> None:
        """So much more (+1) or less (-1) is free."""
        for key, amount in amounts.items():
            change = sign * amount
            if left := self.amounts.get(key, 0) + change:
                self.amounts[key] = left
            else:
                self.amounts.pop(key, None)
            for world in self._worlds:
                world.change(key, change)

    def world(self) -> "ShadowWorld":
        """For the decisions of one process."""
        self._worlds.append(ShadowWorld(self.amounts))
        return self._worlds[-1]

    def forget(self, world: "ShadowWorld") -> None:
        """That process makes no more decisions."""
        self._worlds = [each for each in self._worlds if each is not world]


class ShadowWorld:
    """Columns of its own for what differs; the others are the recorded ones."""

    def __init__(self, amounts: dict[Key, int]) -> None:
        self._amounts = amounts
        self._base: World | None = None
        self._world: World | None = None
        self._hosts: dict[str, Column] = {}
        self._devices: dict[str, Column] = {}
        self._device_slots: dict[ProviderId, int] = {}

    def change(self, key: Key, change: int) -> None:
        """One amount more."""
        if self._base is None:
            return
        provider, resource = key
        slot = self._base.slots.get(HostId(provider))
        if slot is not None:
            columns, size = self._hosts, self._base.size
        elif (slot := self._device_slots.get(provider)) is not None:
            columns, size = self._devices, self._base.nested.size
        else:
            return
        if resource not in columns:
            columns[resource] = np.zeros(size, dtype=np.int64)
        columns[resource][slot] += change

    def on(self, base: World, ask: Ask, groups: dict[str, Group]) -> World:
        """The World of a decision: what the ask looks at is up to date in it."""
        if base is not self._base:
            self._begin(base)
        assert self._world is not None
        world = self._world
        for columns, recorded, own in (
            (self._hosts, base.free, world.free),
            (self._devices, base.nested.free, world.nested.free),
        ):
            assert isinstance(own, dict)
            for name, more in columns.items():
                if name in recorded:
                    own[name] = _sum(recorded[name], more)
        for segment in {each for nic in ask.nics for each in nic.segments}:
            if segment in base.segments:
                world.segments[segment].free = self.free_addresses(base, segment)
        known = world.groups
        assert isinstance(known, dict)
        known.clear()
        known.update(groups)
        return world

    def free_addresses(self, base: World, segment: ProviderId) -> int:
        """Of a segment."""
        return base.segments[segment].free + self._amounts.get((segment, IPV4_ADDRESS), 0)

    def free(self, base: World, resource: str) -> Ints:
        """A class on all hosts."""
        if base is not self._base:
            self._begin(base)
        more = self._hosts.get(resource)
        return base.free[resource] if more is None else _sum(base.free[resource], more)

    def _begin(self, base: World) -> None:
        """Other hosts, other slots: the differences are put in their places again."""
        self._base, self._hosts, self._devices = base, {}, {}
        nested = base.nested
        self._device_slots = {id: slot for slot, id in enumerate(nested.ids) if id and nested.host[slot] >= 0}
        self._world = replace(
            base,
            free=dict(base.free),
            segments={id: replace(each) for id, each in base.segments.items()},
            groups={},
            nested=replace(nested, free=dict(nested.free)),
        )
        for key, amount in self._amounts.items():
            self.change(key, amount)


def _sum(recorded: Ints, more: Column) -> Ints:
    total_left: Ints = np.clip(recorded + more, -INT32_MAX, INT32_MAX).astype(np.int32)
    return total_left


def summed(parts: list[tuple[ProviderId, str, int]]) -> dict[Key, int]:
    """By provider and class."""
    totals: defaultdict[Key, int] = defaultdict(int)
    for provider, resource, amount in parts:
        totals[provider, resource] += amount
    return dict(totals)
