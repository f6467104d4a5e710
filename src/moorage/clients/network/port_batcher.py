"""New ports of many servers, made by few calls: one queue per network, from which every operation's ports are posted in bulk.

**Why.**  A network service makes a handful of ports a second on one subnet, however many are asked for at once; what it cannot
make yet waits in its own queue, where each call has a deadline.  Sixty boots that ask each for themselves end in time-outs, and
what a time-out leaves behind must be looked for.

**How.**  At most `AT_ONCE` calls per network are under way; what comes meanwhile waits here, where nothing is lost by waiting,
and goes with the next call.  So a lone boot waits for nobody, the servers of one request share one call, and a slow service
sets its own pace.  A call carries as many ports as were made in `CALL_TARGET_S`, going by the last call.

A bulk is all or nothing.  One that is refused is asked again server by server, so that each hears its own reason.  One whose
outcome is unknown is unknown to all of them, and each looks for its own.

Whoever is gone before the answer (its server is deleted) must not hear of ports later: `over` waits for what is under way.
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
"""Calls per network: while one is answered, the next is on its way."""
PORTS_MAX = 64
"""In one call."""
PORTS_AT_FIRST = 24
"""While nobody knows how fast the service is."""
CALL_TARGET_S = 2.0
"""Longer calls would save few, and whoever is made first in them would wait for the last."""
SINGLES_AT_ONCE = 8
NETWORKS_MAX = 4096


@dataclass(eq=False)
class _Ask:
    """The ports of one server on one network, all or none of them."""

    server: str
    project: str
    bodies: Sequence[Json]
    alone: bool
    told: str
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
    """What is asked of one network."""

    waiting: deque[_Ask] = field(default_factory=deque[_Ask])
    under_way: int = 0
    called: bool = False
    """The queue will be looked at in a moment."""
    ports_max: int = PORTS_AT_FIRST

    def next_bulk(self) -> list[_Ask]:
        """From the front: those of the first one's project (whose quota it is), as many as one call should carry."""
        first = self.waiting.popleft()
        bulk, ports = [first], len(first.bodies)
        if first.alone:
            return bulk
        later: list[_Ask] = []
        while self.waiting and ports < self.ports_max:
            ask = self.waiting.popleft()
            if ask.alone or ask.project != first.project or ports + len(ask.bodies) > self.ports_max:
                later.append(ask)
            else:
                bulk.append(ask)
                ports += len(ask.bodies)
        self.waiting.extendleft(reversed(later))
        return bulk

    def learn(self, ports: int, took_s: float) -> None:
        """How many the next call may carry."""
        fit = int(CALL_TARGET_S * ports / max(took_s, 1e-6))
        self.ports_max = min(max(fit, 1), PORTS_MAX, self.ports_max * 2)


class PortBatcher:
    """`rows = await maker.make(server, project, network, bodies)`: the ports as the service made them, in order."""

    def __init__(self, api: NetworkApi) -> None:
        self._api = api
        self._lanes: dict[str, _Lane] = {}
        self._posting: dict[asyncio.Task[None], list[_Ask]] = {}

    async def make(
        self, server: str, project: str, network: str, bodies: Sequence[Json], *, alone: bool = False
    ) -> list[Json]:
        """One or more ports of one server. Raises what the POST raises; `alone`: never in one call with others'."""
        loop = asyncio.get_running_loop()
        lane = self._lanes.setdefault(network, _Lane())
        ask = _Ask(server, project, bodies, alone, global_request_id.get(), loop.create_future())
        lane.waiting.append(ask)
        if not lane.called and lane.under_way < AT_ONCE:
            lane.called = True
            loop.call_soon(self._send, network, lane)  # others who ask in this same moment go with it
        try:
            return await ask.answer
        finally:
            if not ask.answer.done() or ask.answer.cancelled():
                self._forget(lane, ask)

    async def over(self, server: str) -> None:
        """Nothing is asked for this server any more, and what was under way has ended."""
        for lane in self._lanes.values():
            for ask in [each for each in lane.waiting if each.server == server]:
                self._forget(lane, ask)
                ask.answer.cancel()
        posting = [task for task, asks in self._posting.items() if any(ask.server == server for ask in asks)]
        if posting:
            await asyncio.wait(posting)

    async def close(self) -> None:
        tasks = list(self._posting)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _forget(self, lane: _Lane, ask: _Ask) -> None:
        if ask in lane.waiting:
            lane.waiting.remove(ask)

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
        for ask in self._posting.pop(task):
            ask.settle(None, failure or UnknownOutcome("the ports were asked for, and nobody waited for the answer"))
        self._send(network, lane)

    async def _post(self, lane: _Lane, bulk: list[_Ask]) -> None:
        told = {ask.told for ask in bulk}
        global_request_id.set(told.pop() if len(told) == 1 else "")
        loop = asyncio.get_running_loop()
        began, ports = loop.time(), sum(len(ask.bodies) for ask in bulk)
        try:
            rows = await self._call([body for ask in bulk for body in ask.bodies])
        except Refusal as refused:
            await self._singly(bulk, refused)
        except Problem as problem:
            if isinstance(problem, UnknownOutcome):
                lane.ports_max = max(1, lane.ports_max // 2)
            for ask in bulk:
                ask.settle(None, copy.copy(problem))
        else:
            lane.learn(ports, loop.time() - began)
            _hand_out(bulk, rows)

    async def _singly(self, bulk: list[_Ask], refused: Refusal) -> None:
        if len(bulk) == 1:
            bulk[0].settle(None, refused)
            return
        slots = asyncio.Semaphore(SINGLES_AT_ONCE)

        async def one(ask: _Ask) -> None:
            async with slots:
                if ask.answer.done():
                    return
                global_request_id.set(ask.told)
                try:
                    ask.settle(await self._call(ask.bodies))
                except Problem as problem:
                    ask.settle(None, problem)

        await asyncio.gather(*(one(ask) for ask in bulk))

    async def _call(self, bodies: Sequence[Json]) -> list[Json]:
        if len(bodies) == 1:
            reply = await self._api.call("POST", path_of("ports"), body={"port": bodies[0]})
            return [reply.body["port"]]
        reply = await self._api.call("POST", path_of("ports"), body={"ports": list(bodies)})
        rows: list[Json] = reply.body["ports"]
        return rows


def _hand_out(bulk: Sequence[_Ask], rows: Sequence[Json]) -> None:
    """Each its own, known by network and MAC."""
    found = {(row["network_id"], row["mac_address"]): row for row in rows}
    for ask in bulk:
        mine = [found.get((body["network_id"], body["mac_address"])) for body in ask.bodies]
        if any(row is None for row in mine):
            ask.settle(
                None, UnknownOutcome("the network service's answer does not hold all the ports it was asked for")
            )
        else:
            ask.settle([row for row in mine if row is not None])
