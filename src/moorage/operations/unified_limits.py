"""The limits that projects have at the identity service, kept for a short time so that a request seldom waits for them.

While the identity service does not answer, limits that were known hold on for a while: what a project may have changes seldom, and its
usage is our own record. After that, requests that need a limit are refused, for nobody knows it.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

from moorage.model.errors import Invalid, Problem, Refusal, Unavailable
from moorage.model.unified_limits import SERVERS, UnifiedLimits

KEPT_S = 30.0
"""A change at the identity service holds here after this time at the latest."""
STALE_MAX_S = 300.0
"""Limits this old hold at most, while the identity service does not answer."""
RETRY_S = 5.0
PROJECTS_MAX = 10_000

log = logging.getLogger(__name__)


class LimitsSource(Protocol):
    """`clients.compute_limits.ComputeLimitsClient`."""

    async def check_model(self) -> None: ...
    async def registered(self) -> dict[str, int]: ...
    async def of_project(self, project: str) -> dict[str, int]: ...


class MissingLimits(msgspec.Struct, frozen=True):
    """What holds for resources that have no registered limit (Nova's two settings)."""

    strategy: Literal["require", "ignore"] = "require"
    listed: tuple[str, ...] = (SERVERS,)


class _Known(msgspec.Struct):
    limits: dict[str, int]
    read_at: float
    ask_again_at: float


class UnifiedLimitsCache:
    """The limits of the projects that were asked for lately; callers that ask at the same time share one call."""

    def __init__(
        self,
        source: LimitsSource,
        missing: MissingLimits,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source, self._missing, self._monotonic = source, missing, monotonic
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._reads: dict[str, asyncio.Task[_Known]] = {}
        self._flat = False

    async def check(self) -> None:
        """Raises Invalid when the identity service's limits cannot be followed, and Unavailable when it does not answer."""
        await self._registered()

    async def of(self, project: str) -> UnifiedLimits:
        """Return the limits that hold for the project; without a project the registered ones.

        Raises Unavailable when they are not known, or were read too long ago.
        """
        if project:
            registered, own = await asyncio.gather(self._limits(""), self._limits(project))
        else:
            registered, own = await self._limits(""), dict[str, int]()
        return UnifiedLimits(project, registered, own, self._missing.strategy, self._missing.listed)

    async def warnings(self) -> tuple[str, ...]:
        """Return what an operator should know, as sentences."""
        try:
            found = await self.of("")
        except Problem as problem:
            return (problem.public,)
        if SERVERS in found.registered or found.limit(SERVERS) < 0:
            return ()
        return (f"the identity service has no registered limit `{SERVERS}` of compute, so no server can be booted",)

    async def _limits(self, project: str) -> dict[str, int]:
        known, now = self._known.get(project), self._monotonic()
        if known is not None and now < known.ask_again_at:
            self._known.move_to_end(project)
            return known.limits
        try:
            known = await self._shared_read(project)
        except (Refusal, Unavailable) as problem:
            if known is None or now - known.read_at >= STALE_MAX_S:
                raise Unavailable(
                    f"The limits of the project at the identity service are not known: {problem.public}",
                    private=problem.private,
                ) from problem
            known.ask_again_at = min(now + RETRY_S, known.read_at + STALE_MAX_S)
            log.warning("limits that were read %d s ago still hold: %s", now - known.read_at, problem)
        return known.limits

    async def _shared_read(self, project: str) -> _Known:
        task = self._reads.get(project)
        if task is None:
            task = asyncio.create_task(self._ask(project))
            self._reads[project] = task
            task.add_done_callback(lambda _: self._reads.pop(project, None))
        return await asyncio.shield(task)  # a caller that is cancelled must not fail the others

    async def _ask(self, project: str) -> _Known:
        now = self._monotonic()
        limits = await (self._source.of_project(project) if project else self._registered())
        known = self._known[project] = _Known(limits, now, now + KEPT_S)
        self._known.move_to_end(project)
        while len(self._known) > PROJECTS_MAX:
            self._known.popitem(last=False)
        return known

    async def _registered(self) -> dict[str, int]:
        if not self._flat:
            await self._source.check_model()
            self._flat = True
        return await self._source.registered()


async def check_at_start(cache: UnifiedLimitsCache) -> None:
    """Raises Invalid when this process must not start with this identity service; one that does not answer yet is asked later."""
    try:
        await cache.check()
    except Invalid:
        raise
    except Problem as problem:
        log.warning("the limits of the identity service cannot be read yet: %s", problem)
