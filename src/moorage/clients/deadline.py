"""Limits the duration of a call: the caller sets a limit, and the call always ends before the lease under which it is made (RULES §3).

A conductor that executes a saga holds a lease; when the lease has ended, another conductor may continue the saga.  So a call starts only
while more than `LEASE_MARGIN_S` of the lease are left, and is given up when no more than that is left.  If the lease is renewed during
the call, the call may continue up to its own limit.
"""

import asyncio
from types import TracebackType

from moorage.model.task_context import lease_left

LEASE_MARGIN_S = 2.0
LOOK_AGAIN_S = 0.25
"""How long before the end of a call the lease is checked for a renewal."""


class LeaseEnds(Exception):
    """Raised when too little of the lease is left to begin a call; nothing was begun."""


class Deadline:
    """Limits a block: `async with Deadline(own_s):`. Raises TimeoutError when the block takes too long, and LeaseEnds when it may not begin."""

    __slots__ = ("_ends", "_lease", "_limit", "_look")

    def __init__(self, own_s: float) -> None:
        now = asyncio.get_running_loop().time()
        self._ends = now + own_s
        self._lease = lease_left.get()
        at = self._ends if self._lease is None else min(self._ends, now + self._lease() - LEASE_MARGIN_S)
        if at <= now < self._ends:
            raise LeaseEnds
        self._limit = asyncio.timeout_at(at)
        self._look: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> None:
        await self._limit.__aenter__()
        self._check_later()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._look is not None:
            self._look.cancel()
        await self._limit.__aexit__(kind, error, trace)

    def _check_later(self) -> None:
        at = self._limit.when()
        if at is not None and at < self._ends:
            self._look = asyncio.get_running_loop().call_at(at - LOOK_AGAIN_S, self._push)

    def _push(self) -> None:
        assert self._lease is not None
        loop, before = asyncio.get_running_loop(), self._limit.when()
        at = min(self._ends, loop.time() + self._lease() - LEASE_MARGIN_S)
        if before is not None and at > before and not self._limit.expired():
            self._limit.reschedule(at)
            self._check_later()


__all__ = ["LEASE_MARGIN_S", "Deadline", "LeaseEnds"]
