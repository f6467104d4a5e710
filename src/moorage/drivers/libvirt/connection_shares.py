"""Connections of guests, of which there are only so many at once: a flood by one guest, or on one bridge, costs others nothing.

Each guest has at most so many. When all places are taken, the bridge that holds most gives one up, its oldest, unless it is the one that asks.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Abortable(Protocol):
    """A transport of a connection."""

    def abort(self) -> None: ...


class ConnectionShares:
    """Who holds how many; nothing is awaited in between."""

    def __init__(self, most: int, most_of_one: int) -> None:
        self._most, self._most_of_one = most, most_of_one
        self._of_guests: Counter[tuple[str, str]] = Counter()
        self._of_bridges: dict[str, dict[Abortable, None]] = {}

    @property
    def held(self) -> int:
        return sum(map(len, self._of_bridges.values()))

    @contextmanager
    def share(self, bridge: str, guest: str, connection: Abortable) -> Iterator[bool]:
        """Hold a place; whether there is one. `guest`: told apart on its bridge."""
        key = bridge, guest
        if self._of_guests[key] >= self._most_of_one or not self._makes_room(bridge):
            yield False
            return
        mine = self._of_bridges.setdefault(bridge, {})
        mine[connection] = None
        self._of_guests[key] += 1
        try:
            yield True
        finally:
            mine.pop(connection, None)
            if not mine and self._of_bridges.get(bridge) is mine:
                del self._of_bridges[bridge]
            self._of_guests[key] -= 1
            if self._of_guests[key] <= 0:
                del self._of_guests[key]

    def _makes_room(self, bridge: str) -> bool:
        if self.held < self._most:
            return True
        largest = max(self._of_bridges.values(), key=len)
        if len(largest) <= len(self._of_bridges.get(bridge, ())) + 1:
            return False
        oldest = next(iter(largest))
        del largest[oldest]  # its place is free at once; what it counts for its guest ends with its handler
        oldest.abort()
        return True
