"""Lets many callers that want the same work at once share a round of it."""

import asyncio
from collections.abc import Awaitable, Callable


class SharedRounds:
    """Rounds of one piece of work, never two at a time."""

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self._work = work
        self._running: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def join(self) -> None:
        """Wait for a round that begins after this call; later callers share it. Raises what the work raises."""
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._round())
            await asyncio.shield(self._running)
            return
        if self._next is None or self._next.done():
            self._next = asyncio.create_task(self._round_after(self._running))
        await asyncio.shield(self._next)

    async def close(self) -> None:
        """Cancel the rounds, and with them the callers that wait."""
        tasks = [task for task in (self._next, self._running) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)  # each caller of a failed round has got its error
        self._running = self._next = None

    async def _round(self) -> None:
        await self._work()

    async def _round_after(self, earlier: "asyncio.Task[None]") -> None:
        await asyncio.wait([earlier])
        self._running, self._next = self._next, None
        await self._work()
