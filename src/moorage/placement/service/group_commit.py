"""Group commit: requests that change allocations share transactions; those that wait during one go together into the
next (P10).

    writes = GroupCommit(engine, region)
    await writes.put({consumer: wanted})            # durable; or raises the error of this request, and of no other

The first request goes at once, with those of the same turn of the loop; the database's speed decides how many go
together, not a clock. Each is checked by itself (`allocation_changes.put_all`). If a transaction fails as a whole
because of one of its requests, each of them is run again alone.
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
"""SQLite has one writer; on PostgreSQL one transaction is checked while the other is synced."""
WAITING_MAX = 20_000


@dataclass(eq=False, slots=True)
class _PendingWrite:
    """One waiting request."""

    request: Request
    done: "asyncio.Future[None]"


class GroupCommit:
    """One per process and API, together with its engine."""

    def __init__(self, engine: Engine, region: Database) -> None:
        self._engine = engine
        self._region = region
        self._waiting: deque[_PendingWrite] = deque()
        self._under_way: set[asyncio.Task[None]] = set()
        self._busy: set[str] = set()
        """Consumers of the transactions under way."""
        self._under_way_max = UNDER_WAY_MAX[region.dialect]
        self._called = False

    async def put(self, request: Request) -> None:
        """Return when the request is durable. Raises Conflict or Invalid, Unavailable when too many requests wait, and
        what the database raises.

        A caller that is cancelled while a transaction is under way may have been served all the same.
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
        """The requests that go together, in order of arrival. A request for a consumer that is under way waits."""
        batch: list[_PendingWrite] = []
        while self._waiting and len(batch) < BATCH_MAX and self._busy.isdisjoint(self._waiting[0].request):
            order = self._waiting.popleft()
            if not order.done.done():  # otherwise its caller was cancelled before anything was done
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
        except Unavailable as problem:  # no request was served, or the outcome is unknown
            _refuse(batch, problem)
        except Exception as failure:  # noqa: BLE001  one request may have caused it
            if len(batch) == 1:
                _refuse(batch, failure)
                return
            for order in batch:
                await self._serve([order])
        except BaseException as stopped:
            _refuse(batch, stopped)
            raise
        else:
            self._engine.settle_writes(outcome.result)
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
