"""How many servers fit on trees of devices where the choice of one group matters to the next: searched as the scheduler searches.

From every state of a tree all ways are followed that the scheduler may choose, so that the least and the most are known whatever the dice
say.  Trees that differ only in what is too little to matter are one state, and a state is followed once, on however many hosts it is met.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from moorage.model.world import Ask, World
from moorage.scheduler.tree_search import ROOT, Node, Providers, Search, draw

Counts = NDArray[np.int64]

STATES_MAX = 20_000
"""States of trees that are followed for one question; after them a tree is counted in one way only."""
WAYS_MAX = 500
"""Ways on from one state."""
DEEPEST = 400
"""Servers on one host that are searched for."""


class Trees:
    """One question's trees, and what is known of their states."""

    def __init__(self, ask: Ask, world: World) -> None:
        self._ask, self._world = ask, world
        self._steps = _steps(ask)
        self._known: dict[object, tuple[int, int]] = {}
        self._lines: dict[object, int] = {}

    def counts(self, by_amounts: Counts) -> tuple[Counts, Counts]:
        """The least and the most for each host, never more than its amounts suffice for."""
        least, most = np.zeros_like(by_amounts), np.zeros_like(by_amounts)
        for slot in np.flatnonzero(by_amounts > 0).tolist():
            ceiling = int(by_amounts[slot])
            nodes = self._plain(draw(self._ask, self._world, slot), min(ceiling, DEEPEST))
            low, high = self._span(nodes, DEEPEST) or (self._line(nodes, ceiling), ceiling)
            least[slot], most[slot] = min(low, ceiling), min(high, ceiling)
        return least, most

    def _plain(self, nodes: list[Node], ceiling: int) -> list[Node]:
        """Without what is less than any group can use, and no more of it than so many servers could use."""
        for node in nodes:
            for name, (step, each) in self._steps.items():
                if name in node.free:
                    most = (ceiling + 1) * each if ceiling < DEEPEST else node.free[name]
                    node.free[name] = min(node.free[name], most) // step * step
        return nodes

    def _span(self, nodes: list[Node], left: int) -> tuple[int, int] | None:
        """None: there are too many states."""
        key = _key(nodes, named=bool(self._ask.same_device))
        if (known := self._known.get(key)) is not None:
            return known
        if len(self._known) >= STATES_MAX or left <= 0:
            return None
        nexts = self._nexts(nodes)
        if nexts is None:
            return None
        spans: list[tuple[int, int]] = []
        for after in nexts:
            if (span := self._span(after, left - 1)) is None:
                return None
            spans.append((span[0] + 1, span[1] + 1))
        found = (min(low for low, _ in spans), max(high for _, high in spans)) if spans else (0, 0)
        self._known[key] = found
        return found

    def _nexts(self, nodes: list[Node]) -> list[list[Node]] | None:
        """The states after one more server, each once; None: they were not all found."""
        if any(nodes[ROOT].free.get(name, 0) < 0 for name in self._ask.resources):
            return []
        search, found = Search(self._ask, _copied(nodes)), dict[object, list[Node]]()
        for number, way in enumerate(search.ways()):
            if number >= WAYS_MAX:
                return None
            after = self._after(nodes, way)
            found.setdefault(_key(after, named=bool(self._ask.same_device)), after)
        return None if search.exhausted else list(found.values())

    def _after(self, nodes: list[Node], way: Providers) -> list[Node]:
        after = _copied(nodes)
        by_id = {node.id: node for node in after}
        for group in self._ask.groups:
            free = by_id[way[group.id]].free
            for name, amount in group.resources.items():
                free[name] -= amount
        for name, amount in self._ask.resources.items():
            if name in after[ROOT].free:
                after[ROOT].free[name] -= amount
        return after

    def _line(self, nodes: list[Node], ceiling: int) -> int:
        """How far the scheduler's first way leads, again and again."""
        key = (_key(nodes, named=bool(self._ask.same_device)), ceiling)
        if (known := self._lines.get(key)) is not None:
            return known
        count, here = 0, nodes
        while count < ceiling and all(here[ROOT].free.get(name, 0) >= 0 for name in self._ask.resources):
            way = next(Search(self._ask, _copied(here)).ways(), None)
            if way is None:
                break
            here, count = self._after(here, way), count + 1
        self._lines[key] = count
        return count


def _steps(ask: Ask) -> dict[str, tuple[int, int]]:
    """Class → what all that is asked of it is a multiple of, and what one server asks of it."""
    amounts: dict[str, list[int]] = {}
    for group in ask.groups:
        for name, amount in group.resources.items():
            amounts.setdefault(name, []).append(amount)
    for name, amount in ask.resources.items():
        if name in amounts:
            amounts[name].append(amount)
    return {name: (max(1, math.gcd(*each)), sum(each)) for name, each in amounts.items()}


def _copied(nodes: Sequence[Node]) -> list[Node]:
    return [replace(node, free=dict(node.free)) for node in nodes]


def _key(nodes: Sequence[Node], *, named: bool) -> object:
    """Equal where the search goes the same way, whichever of several alike leaves is which."""
    leaves, others = list[tuple[object, ...]](), list[tuple[object, ...]]()
    for at, node in enumerate(nodes):
        state = (
            node.parent, node.portions, tuple(node.free.items()), tuple(sorted(node.traits)),
            node.device if named else "",
        )  # fmt: skip
        if node.leaf and at != ROOT:
            leaves.append(state)
        else:
            others.append((at, *state))
    return tuple(others), tuple(sorted(leaves, key=repr))
