"""Makes new ports of many servers with few calls: one queue for each network, from which all operations' ports are posted in bulk.

**Why.**  A network service makes only a few ports a second on one subnet, regardless of how many requests it gets at once; the other
requests wait in the service's own queue, where each call has a deadline.  If sixty boots called it separately, many calls would time out,
and each would then have to search for ports that were made nevertheless.

**How.**  At most `AT_ONCE` calls for each network are under way; further requests wait in this queue and go with the next call.  So
a single boot does not wait, the servers of one request share one call, and a slow service sets the pace.  A call has as many ports
as can be made in `CALL_TARGET_S`, estimated from the last call.

A bulk is made completely or not at all.  One that is refused is repeated for each server alone, so that each gets its own reason.
If the outcome is unknown, it is unknown for all its servers, and each looks for its own ports.

An operation that ends before the answer (its server is deleted) must be sure that no ports appear later: `over` waits for the calls
under way.
"""

import asyncio
import copy
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from moorage.clients.http import Json
from moorage.clients.network.network_api import NetworkApi, path_of
from moorage.model.errors import Problem, Refusal, UnknownOutcome
from moorage.model.task_context import global_request_id

AT_ONCE = 2
"""Calls for each network: while one is being answered, the next is being sent."""
PORTS_MAX = 64
"""Limit of ports in one call."""
PORTS_AT_FIRST = 24
"""Limit of ports in the first call, before the service's speed is known."""
CALL_TARGET_S = 2.0
"""The duration that a call should have. Longer calls would save little, and the first ports in them would wait for the last."""
SINGLES_AT_ONCE = 8
NETWORKS_MAX = 4096


@dataclass(eq=False)
class _PortRequest:
    """The ports of one server on one network, all or none of them."""

    server: str
    project: str
    bodies: Sequence[Json]
    alone: bool
    request_id: str
    answer: "asyncio.Future[list[Json]]"

    def settle(self, rows: list[Json] | None, problem: BaseException | None = None) -> None:
        if self.answer.done():
            return
        if rows is not None:
            self.answer.set_result(rows)
        elif problem is not None:
            self.answer.set_exception(problem)


@dataclass(eq=False)
class _Lane:
    """The queue of one network."""

    waiting: deque[_PortRequest] = field(default_factory=deque[_PortRequest])
    under_way: int = 0
    called: bool = False
    """Whether the queue will be processed in a moment."""
    ports_max: int = PORTS_AT_FIRST

    def next_bulk(self) -> list[_PortRequest]:
        """Take the next requests from the front: those of the first one's project (which has one quota), as many as one call should have."""
        first = self.waiting.popleft()
        bulk, ports = [first], len(first.bodies)
        if first.alone:
            return bulk
        later: list[_PortRequest] = []
        while self.waiting and ports < self.ports_max:
            request = self.waiting.popleft()
            if request.alone or request.project != first.project or ports + len(request.bodies) > self.ports_max:
                later.append(request)
            else:
                bulk.append(request)
                ports += len(request.bodies)
        self.waiting.extendleft(reversed(later))
        return bulk

    def learn(self, ports: int, took_s: float) -> None:
        """Estimate how many ports the next call may have, from the last one."""
        fit = int(CALL_TARGET_S * ports / max(took_s, 1e-6))
        self.ports_max = min(max(fit, 1), PORTS_MAX, self.ports_max * 2)


class PortBatcher:
    """Makes ports: `rows = await batcher.make(server, project, network, bodies)` returns them as the service made them, in order."""

    def __init__(self, api: NetworkApi) -> None:
        self._api = api
        self._lanes: dict[str, _Lane] = {}
        self._posting: dict[asyncio.Task[None], list[_PortRequest]] = {}

    async def make(
        self, server: str, project: str, network: str, bodies: Sequence[Json], *, alone: bool = False
    ) -> list[Json]:
        """Make one or more ports of one server. `alone`: never in one call with other servers' ports. Raises what the POST raises."""
        loop = asyncio.get_running_loop()
        lane = self._lanes.setdefault(network, _Lane())
        request = _PortRequest(server, project, bodies, alone, global_request_id.get(), loop.create_future())
        lane.waiting.append(request)
        if not lane.called and lane.under_way < AT_ONCE:
            lane.called = True
            loop.call_soon(self._send, network, lane)  # requests of the same moment go in the same call
        try:
            return await request.answer
        finally:
            if not request.answer.done() or request.answer.cancelled():
                self._forget(lane, request)

    async def over(self, server: str) -> None:
        """Remove the server's requests from the queues, and wait until its calls under way have ended."""
        for lane in self._lanes.values():
            for request in [each for each in lane.waiting if each.server == server]:
                self._forget(lane, request)
                request.answer.cancel()
        posting = [
            task for task, requests in self._posting.items() if any(request.server == server for request in requests)
        ]
        if posting:
            await asyncio.wait(posting)

    async def close(self) -> None:
        tasks = list(self._posting)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _forget(self, lane: _Lane, request: _PortRequest) -> None:
        if request in lane.waiting:
            lane.waiting.remove(request)

    def _send(self, network: str, lane: _Lane) -> None:
        lane.called = False
        while lane.waiting and lane.under_way < AT_ONCE:
            bulk = lane.next_bulk()
            lane.under_way += 1
            task = asyncio.create_task(self._post(lane, bulk), name=f"ports-of-{network}")
            self._posting[task] = bulk
            task.add_done_callback(lambda task: self._sent(network, lane, task))
        if not lane.waiting and not lane.under_way and len(self._lanes) > NETWORKS_MAX:
            self._lanes.pop(network, None)

    def _sent(self, network: str, lane: _Lane, task: "asyncio.Task[None]") -> None:
        lane.under_way -= 1
        failure = None if task.cancelled() else task.exception()
        for request in self._posting.pop(task):
            request.settle(None, failure or UnknownOutcome("the ports were requested, and the caller no longer waits"))
        self._send(network, lane)

    async def _post(self, lane: _Lane, bulk: list[_PortRequest]) -> None:
        request_ids = {request.request_id for request in bulk}
        global_request_id.set(request_ids.pop() if len(request_ids) == 1 else "")
        loop = asyncio.get_running_loop()
        began, ports = loop.time(), sum(len(request.bodies) for request in bulk)
        try:
            rows = await self._call([body for request in bulk for body in request.bodies])
        except Refusal as refused:
            await self._singly(bulk, refused)
        except Problem as problem:
            if isinstance(problem, UnknownOutcome):
                lane.ports_max = max(1, lane.ports_max // 2)
            for request in bulk:
                request.settle(None, copy.copy(problem))
        else:
            lane.learn(ports, loop.time() - began)
            _hand_out(bulk, rows)

    async def _singly(self, bulk: list[_PortRequest], refused: Refusal) -> None:
        if len(bulk) == 1:
            bulk[0].settle(None, refused)
            return
        slots = asyncio.Semaphore(SINGLES_AT_ONCE)

        async def one(request: _PortRequest) -> None:
            async with slots:
                if request.answer.done():
                    return
                global_request_id.set(request.request_id)
                try:
                    request.settle(await self._call(request.bodies))
                except Problem as problem:
                    request.settle(None, problem)

        await asyncio.gather(*(one(request) for request in bulk))

    async def _call(self, bodies: Sequence[Json]) -> list[Json]:
        if len(bodies) == 1:
            reply = await self._api.call("POST", path_of("ports"), body={"port": bodies[0]})
            return [reply.body["port"]]
        reply = await self._api.call("POST", path_of("ports"), body={"ports": list(bodies)})
        rows: list[Json] = reply.body["ports"]
        return rows


def _hand_out(bulk: Sequence[_PortRequest], rows: Sequence[Json]) -> None:
    """Give each request its own ports, which are identified by network and MAC."""
    by_key = {(row["network_id"], row["mac_address"]): row for row in rows}
    for request in bulk:
        mine = [by_key.get((body["network_id"], body["mac_address"])) for body in request.bodies]
        if any(row is None for row in mine):
            request.settle(
                None, UnknownOutcome("the network service's answer does not hold all the ports it was asked for")
            )
        else:
            request.settle([row for row in mine if row is not None])
