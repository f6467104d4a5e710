"""Answers capacity and failover questions: on a copy of the world, in threads, few at once."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec
import numpy as np

from moorage.model.errors import TooManyRequests
from moorage.model.principal import Principal
from moorage.model.resident import Resident
from moorage.model.server import Server
from moorage.model.world import World
from moorage.model.world_snapshot import WorldSnapshot, photo_of
from moorage.operations.capacity.questions import CapacityQuestion, FailoverQuestion, ask_for
from moorage.operations.capacity.residents import residents_of
from moorage.operations.context import SagaContext
from moorage.scheduler.capacity import CapacityAnswer, Fill, answer, count
from moorage.scheduler.failover import FailoverAnswer, Residents, fail
from moorage.scheduler.profile import Profile
from moorage.scheduler.world_changes import changed, copied, hosts_of, segment_of, with_twins

AT_ONCE = 2
"""How many questions one process answers at the same time; more are refused with 429."""
FILL_SERVERS_MAX = 2_000
"""How many servers are placed for an answer, when the order of placing matters."""
FILL_SLICE = 20
"""After how many placed servers the event loop may run other tasks."""
AGAIN_AFTER_S = 5.0

T = TypeVar("T")
_LOCK = threading.Lock()


class CapacityService:
    context: SagaContext
    _questions: int = 0
    _threads: int = 0
    """Threads that work on questions; the callers of some may have gone."""

    @contextmanager
    def _place(self) -> Iterator[None]:
        if max(self._questions, self._threads) >= AT_ONCE:
            raise TooManyRequests(
                f"{AT_ONCE} questions about capacity are being answered; try again.", retry_after_s=AGAIN_AFTER_S
            )
        self._questions += 1
        try:
            yield
        finally:
            self._questions -= 1

    async def _in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        """When a caller goes away, its thread runs on, and counts until it ends."""
        return await asyncio.to_thread(self._counted, work, *arguments)

    def _counted(self, work: Callable[..., T], *arguments: Any) -> T:
        with _LOCK:
            self._threads += 1
        try:
            return work(*arguments)
        finally:
            with _LOCK:
                self._threads -= 1

    async def capacity(self, principal: Principal, question: CapacityQuestion) -> CapacityAnswer:
        """How many servers fit. Raises NotFound, Invalid, Unavailable, and TooManyRequests when too many questions are
        being answered.
        """
        with self._place():
            ask = await ask_for(self.context, question, principal.project or "")
            await self.context.placement.catch_up()
            now = copied(self.context.placement.world())
            world = await self._in_thread(changed, now, question.without, question.added)
            wanted, profile = with_twins(ask, world), self._profile
            counted = await self._in_thread(count, wanted, world, profile)
            if counted.sure:
                return await self._in_thread(answer, counted)
            fill = Fill(wanted, world, self.context.placement.rank_on)
            while len(fill.placed) < FILL_SERVERS_MAX and await self._in_thread(fill.step, FILL_SLICE):
                pass
            return await self._in_thread(answer, counted, fill)

    async def failover(self, question: FailoverQuestion) -> tuple[FailoverAnswer, ...]:
        """Which servers find another place, and which do not. Raises Invalid, Conflict, Unavailable, and
        TooManyRequests.
        """
        with self._place():
            await self.context.placement.catch_up()
            world = copied(self.context.placement.world())
            world = await self._in_thread(changed, world, question.without, question.added)
            hosts, segments = _concerned(world, question)

            def concerned(server: Server) -> bool:
                return server.host in hosts or any(nic.segment in segments for nic in server.nics)

            residents = await residents_of(self.context, concerned)
            known = Residents(each for each in residents if each.host in world.slots)
            return tuple(
                [
                    await self._in_thread(fail, world, question.kind, name, known, self._profile)
                    for name in question.names
                ]
            )

    async def capacity_snapshot(self) -> WorldSnapshot:
        """The world with its servers. Raises Conflict, Unavailable, and TooManyRequests."""
        with self._place():
            await self.context.placement.catch_up()
            world = copied(self.context.placement.world())
            residents = await residents_of(self.context, lambda server: True)
            return await self._in_thread(_snapshot, world, residents)

    @property
    def _profile(self) -> Profile:
        return Profile().weighing(self.context.settings.weights)


def _snapshot(world: World, residents: Sequence[Resident]) -> WorldSnapshot:
    return msgspec.structs.replace(photo_of(world), residents=tuple(residents))


def _concerned(world: World, question: FailoverQuestion) -> tuple[frozenset[str], frozenset[str]]:
    """Names of hosts and ids of segments whose servers are concerned. Raises Invalid."""
    if question.kind == "segment":
        return frozenset(), frozenset(str(segment_of(world, name)) for name in question.names)
    masks = [hosts_of(world, question.kind, name) for name in question.names]
    slots = np.flatnonzero(np.logical_or.reduce(masks)).tolist()
    return frozenset(world.names[slot] for slot in slots), frozenset()
