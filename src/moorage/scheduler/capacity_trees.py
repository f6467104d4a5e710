"""Counts how many servers fit on trees of devices in which one group's choice matters to the next, with the scheduler's own search.

From every state of a tree, all choices are followed that the scheduler may make, so the least and the most number are known for any
random choice.  Trees that differ only in amounts too small to use are one state, and each state is followed once for all hosts.
"""

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from moorage.model.provider_tree import device_of
from moorage.model.world import Ask, World
from moorage.scheduler.host_tree import HostTree, NodeStock, Providers, read_tree, search, ways

Counts = NDArray[np.int64]

STATES_MAX = 20_000
"""States of trees that are followed for one question; after them a tree is counted in one way only."""
WAYS_MAX = 500
"""Limit of choices that are followed from one state."""
DEEPEST = 400
"""Limit of servers on one host that are searched."""


class CapacityTrees:
    """The trees of one question, and what is known of their states."""

    def __init__(self, ask: Ask, world: World) -> None:
        self._ask, self._world = ask, world
        self._steps = _steps(ask)
        self._known: dict[object, tuple[int, int]] = {}
        self._lines: dict[object, int] = {}

    def counts(self, by_amounts: Counts) -> tuple[Counts, Counts]:
        """Return the least and the most number of servers for each host, limited by its amounts.

        For a host that uses sharing providers the least is 0: what its servers take there, other hosts lack.
        """
        least, most = np.zeros_like(by_amounts), np.zeros_like(by_amounts)
        for slot in np.flatnonzero(by_amounts > 0).tolist():
            ceiling = int(by_amounts[slot])
            tree = read_tree(self._ask, self._world, slot)
            if tree.outside:
                most[slot] = ceiling
                continue
            self._simplify(tree, min(ceiling, DEEPEST))
            low, high = self._span(tree, DEEPEST) or (self._line(tree, ceiling), ceiling)
            least[slot], most[slot] = min(low, ceiling), min(high, ceiling)
        return least, most

    def _simplify(self, tree: HostTree, ceiling: int) -> None:
        """Drop amounts that are too small for any group, or more than `ceiling` servers could use."""
        for node in tree.members:
            for name, (step, each) in self._steps.items():
                if (stock := node.stocks.get(name)) is not None:
                    free = stock.cap - stock.used
                    most = (ceiling + 1) * each if ceiling < DEEPEST else free
                    node.stocks[name] = stock._replace(used=0, cap=min(free, most) // step * step)

    def _span(self, tree: HostTree, left: int) -> tuple[int, int] | None:
        """The least and the most from this state on; None: there are too many states."""
        key = _key(tree, named=bool(self._ask.same_device))
        if (known := self._known.get(key)) is not None:
            return known
        if len(self._known) >= STATES_MAX or left <= 0:
            return None
        nexts = self._nexts(tree)
        if nexts is None:
            return None
        spans: list[tuple[int, int]] = []
        for after in nexts:
            if (span := self._span(after, left - 1)) is None:
                return None
            spans.append((span[0] + 1, span[1] + 1))
        bounds = (min(low for low, _ in spans), max(high for _, high in spans)) if spans else (0, 0)
        self._known[key] = bounds
        return bounds

    def _nexts(self, tree: HostTree) -> list[HostTree] | None:
        """The different states after one more server; None: not all were found."""
        if not self._host_has_room(tree):
            return []
        searched, trees = search(self._ask, tree), dict[object, HostTree]()
        for number, way in enumerate(ways(searched)):
            if number >= WAYS_MAX:
                return None
            after = self._after(tree, way)
            trees.setdefault(_key(after, named=bool(self._ask.same_device)), after)
        return None if searched.exhausted else list(trees.values())

    def _host_has_room(self, tree: HostTree) -> bool:
        """Whether the host itself has room for one more server."""
        stocks = tree.members[0].stocks
        return all(stocks[name].used <= stocks[name].cap for name in self._ask.resources if name in stocks)

    def _after(self, tree: HostTree, way: Providers) -> HostTree:
        members = [replace(node, stocks=dict(node.stocks)) for node in tree.members]
        by_id = {node.uuid: node.stocks for node in members}
        for group in self._ask.groups:
            for name, amount in group.resources.items():
                _take(by_id[way[group.id]], name, amount)
        for name, amount in self._ask.resources.items():
            if name in members[0].stocks:
                _take(members[0].stocks, name, amount)
        return HostTree(members, (), tree.parents)

    def _line(self, tree: HostTree, ceiling: int) -> int:
        """How many servers fit if the scheduler's first choice is taken every time."""
        key = (_key(tree, named=bool(self._ask.same_device)), ceiling)
        if (known := self._lines.get(key)) is not None:
            return known
        count, current = 0, tree
        while count < ceiling and self._host_has_room(current):
            way = next(ways(search(self._ask, current)), None)
            if way is None:
                break
            current, count = self._after(current, way), count + 1
        self._lines[key] = count
        return count


def _take(stocks: dict[str, NodeStock], name: str, amount: int) -> None:
    """Take an amount. Only the free amount is kept, so states that are reached in different ways are equal."""
    stock = stocks[name]
    stocks[name] = stock._replace(used=0, cap=stock.cap - stock.used - amount)


def _steps(ask: Ask) -> dict[str, tuple[int, int]]:
    """Resource class → the greatest common divisor of all amounts that are asked of it, and the sum that one server asks."""
    amounts: dict[str, list[int]] = {}
    for group in ask.groups:
        for name, amount in group.resources.items():
            amounts.setdefault(name, []).append(amount)
    for name, amount in ask.resources.items():
        if name in amounts:
            amounts[name].append(amount)
    return {name: (max(1, math.gcd(*each)), sum(each)) for name, each in amounts.items()}


def _key(tree: HostTree, *, named: bool) -> object:
    """A key that is equal for trees on which the search has the same result; the order of equal leaves does not matter."""
    place = {node.uuid: at for at, node in enumerate(tree.members)}
    inner = {node.parent for node in tree.members}
    leaves, others = list[tuple[object, ...]](), list[tuple[object, ...]]()
    for at, node in enumerate(tree.members):
        parent = None if node.parent is None else place.get(node.parent)
        device = device_of(node)[1] if named else ""
        state = (parent, tuple(node.stocks.items()), tuple(sorted(node.traits)), device)
        if at and node.uuid not in inner:
            leaves.append(state)
        else:
            others.append((at, *state))
    return tuple(others), tuple(sorted(leaves, key=repr))
