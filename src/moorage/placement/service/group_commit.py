"""Requests that change allocations share transactions: who waits while one is under way goes together with the next (P10).

    writes = GroupCommit(engine, region)
    await writes.put({consumer: wanted})            # durable; or raises what was wrong with this request, and with no other

The first one goes at once, with those that came in the same turn of the loop; the database's own pace sets how many go together, no
clock does.  Each is judged by itself (`allocations.put_all`).  Should a transaction fail as a whole for a reason of one of its
requests, each of them is run again alone.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from functools import partial

from moorage.model.errors import Unavailable
from moorage.placement.engine import Engine
from moorage.placement.service import allocation_changes
from moorage.placement.service.allocation_changes import Request
from moorage.sql import Database, label

BATCH_MAX = 128
UNDER_WAY_MAX = {"sqlite": 1, "postgresql": 2}
"""SQLite has one writer; on PostgreSQL one is judged while the other is synced."""
WAITING_MAX = 20_000


@dataclass(eq=False, slots=True)
class _PendingWrite:
    """One request that waits."""

    request: Request
    done: "asyncio.Future[None]"


class GroupCommit:
    """One per process and API, beside its engine."""

    def __init__(self, engine: Engine, region: Database) -> None:
        self._engine = engine
        self._region = region
        self._waiting: deque[_PendingWrite] = deque()
        self._under_way: set[asyncio.Task[None]] = set()
        self._busy: set[str] = set()
        """Consumers of what is under way."""
        self._under_way_max = UNDER_WAY_MAX[region.dialect]
        self._called = False

    async def put(self, request: Request) -> None:
        """Returns when it is durable. Raises Conflict or Invalid, and what the database raises.

        Who is cancelled while a transaction is under way may have been served all the same.
        """
        if len(self._waiting) >= WAITING_MAX:
            raise Unavailable("too many requests are waiting; try again later")
        loop = asyncio.get_running_loop()
        order = _PendingWrite(request, loop.create_future())
        self._waiting.append(order)
        if not self._called and len(self._under_way) < self._under_way_max:
            self._called = True
            loop.call_soon(self._go_on)
        await order.done

    def _go_on(self) -> None:
        self._called = False
        while len(self._under_way) < self._under_way_max and (batch := self._gather()):
            task = asyncio.create_task(self._serve(batch), name="allocations")
            self._under_way.add(task)
            task.add_done_callback(partial(self._served, batch))

    def _gather(self) -> list[_PendingWrite]:
        """Those that go together, in the order in which they came. Who asks for a consumer that is under way waits for it."""
        batch: list[_PendingWrite] = []
        while self._waiting and len(batch) < BATCH_MAX and self._busy.isdisjoint(self._waiting[0].request):
            order = self._waiting.popleft()
            if not order.done.done():  # else its caller was cancelled before anything was done for it
                batch.append(order)
                self._busy.update(order.request)
        return batch

    def _served(self, batch: list[_PendingWrite], task: "asyncio.Task[None]") -> None:
        self._under_way.discard(task)
        for order in batch:
            self._busy.difference_update(order.request)
        self._go_on()

    async def _serve(self, batch: list[_PendingWrite]) -> None:
        try:
            with label("allocations"):
                work = partial(allocation_changes.put_all, requests=[order.request for order in batch])
                outcome = await self._region.write(work)
        except Unavailable as problem:  # nobody was served, or nobody knows
            _refuse(batch, problem)
        except Exception as failure:  # noqa: BLE001  it may be of one request's making
            if len(batch) == 1:
                _refuse(batch, failure)
                return
            for order in batch:
                await self._serve([order])
        except BaseException as stopped:
            _refuse(batch, stopped)
            raise
        else:
            self._engine.settle_writes(outcome.told)
            for order, answer in zip(batch, outcome.answers, strict=True):
                if order.done.done():
                    continue
                if answer is None:
                    order.done.set_result(None)
                else:
                    order.done.set_exception(answer)


def _refuse(batch: list[_PendingWrite], failure: BaseException) -> None:
    for order in batch:
        if not order.done.done():
            order.done.set_exception(failure)
