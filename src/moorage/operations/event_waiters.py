"""Wakes who waits for an external event of a server, in this process; the event itself lies in the inbox (RULES §20)."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from moorage.model.ids import ServerId


class EventWaiters:
    """`with arrivals.of(server) as arrived: look; await arrived.wait()`: nothing that comes after the look is missed."""

    def __init__(self) -> None:
        self._waiting: dict[ServerId, list[asyncio.Event]] = {}

    @contextmanager
    def of(self, server: ServerId) -> Iterator[asyncio.Event]:
        """Set whenever something has arrived for the server; whoever waits clears it before looking."""
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
        """A hint said that something was stored; a lost one costs its waiter the pause until its next look."""
        for each in self._waiting.get(server, ()):
            each.set()
