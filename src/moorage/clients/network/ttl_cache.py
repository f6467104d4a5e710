"""A cache whose values are valid for a few seconds."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

A = TypeVar("A")
T = TypeVar("T")


class TtlCache(Generic[T]):
    """At most `entries_max` values, each for `ttl_s` seconds; one caller at a time fetches a missing one."""

    def __init__(self, ttl_s: float, entries_max: int) -> None:
        self._ttl_s, self._entries_max = ttl_s, entries_max
        self._rows: OrderedDict[tuple[str, ...], tuple[float, T]] = OrderedDict()
        self._fetching: dict[tuple[str, ...], asyncio.Event] = {}

    def get(self, *key: str) -> T | None:
        row = self._rows.get(key)
        return row[1] if row is not None and time.monotonic() < row[0] else None

    def put(self, value: T, *key: str) -> T:
        self._rows[key] = (time.monotonic() + self._ttl_s, value)
        self._rows.move_to_end(key)
        while len(self._rows) > self._entries_max:
            self._rows.popitem(last=False)
        return value

    async def once(self, fetch: Callable[[], Awaitable[A]], *key: str) -> A | T:
        """Return the cached value. If there is none, one caller fetches it and the others wait; they fetch themselves if it stored none."""
        if (cached := self.get(*key)) is not None:
            return cached
        if (fetching := self._fetching.get(key)) is not None:
            await fetching.wait()
            if (cached := self.get(*key)) is not None:
                return cached
        mine = self._fetching[key] = asyncio.Event()
        try:
            return await fetch()
        finally:
            mine.set()
            if self._fetching.get(key) is mine:
                del self._fetching[key]

    def clear(self) -> None:
        self._rows.clear()
