"""Wakes tasks of this process that wait for an external event of a server; the event itself is in the inbox (RULES
§20).
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from moorage.model.ids import ServerId


class EventWaiters:
    """`with arrivals.of(server) as arrived: poll; await arrived.wait()`: no event that comes after the poll is missed."""

    def __init__(self) -> None:
        self._waiting: dict[ServerId, list[asyncio.Event]] = {}

    @contextmanager
    def of(self, server: ServerId) -> Iterator[asyncio.Event]:
        """An event that is set whenever something has arrived for the server; a waiter clears it before it polls."""
        arrived = asyncio.Event()
        self._waiting.setdefault(server, []).append(arrived)
        try:
            yield arrived
        finally:
            others = self._waiting[server]
            others.remove(arrived)
            if not others:
                del self._waiting[server]

    def wake(self, server: ServerId) -> None:
        """A hint said that an external event was stored; a lost hint delays its waiter until the next poll."""
        for each in self._waiting.get(server, ()):
            each.set()
