"""How long a call may last: as long as its caller says, and never into the end of the lease it is made under (RULES §3).

Whoever executes a saga holds a lease; when it is over, another conductor may go on with it.  So a call starts only while more than
`LEASE_MARGIN_S` of the lease are left, and is given up when no more than that is left.  The lease is renewed while a call is
under way; then the call may go on, up to its own time: at each moment, what is under way ends before the lease does.
"""

import asyncio
from types import TracebackType

from moorage.model.task_context import lease_left

LEASE_MARGIN_S = 2.0
LOOK_AGAIN_S = 0.25
"""So long before a call would be given up, it is looked whether the lease was renewed."""


class LeaseEnds(Exception):
    """Too little of the lease is left to begin anything; nothing was begun."""


class Deadline:
    """`async with Deadline(own_s):` raises TimeoutError when the block takes longer, LeaseEnds when it may not begin."""

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
        loop, was = asyncio.get_running_loop(), self._limit.when()
        at = min(self._ends, loop.time() + self._lease() - LEASE_MARGIN_S)
        if was is not None and at > was and not self._limit.expired():
            self._limit.reschedule(at)
            self._check_later()


__all__ = ["LEASE_MARGIN_S", "Deadline", "LeaseEnds"]
