"""HTTP between simulated processes: a request crosses from its caller's process to the server's, and its answer back.

Either way may be cut; the server may be dead, frozen, failing, late, or say less than it knows.  A caller that dies or gives up
does not undo what the server does.
"""

import asyncio
import random
from collections.abc import AsyncIterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import httpx
import msgspec
from typing_extensions import override

from moorage.clients.asgi_transport import Base, EmbeddedTransport
from moorage_testing.simulation.loop import PROCESS, SimulatedProcess, VirtualLoop
from moorage_testing.simulation.trace import Trace

WAY_S = (0.0003, 0.003)
UNREACHED_S = 5.0
LATE_S = (3.0, 40.0)
SLOW_S = (0.05, 0.8)

Trouble: TypeAlias = Literal[
    "", "refused", "fails_before", "fails_after", "late", "lost_answer", "slow", "lost_role", "short"
]
"""What is wrong with a service: it cannot be connected to; says 503 and does nothing; does it and says 500; answers late; does it
and the answer is lost; takes its time; believes that we may see nothing; leaves things out of its lists."""
LISTS = ("ports", "subnets", "networks", "segments", "agents", "volumes", "attachments", "snapshots", "images")
Answer: TypeAlias = tuple[int, Mapping[str, str], bytes]


@dataclass(eq=False)
class _Call:
    base: Base
    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    content: bytes
    most_bytes: int
    done: "asyncio.Future[Answer]"


class ServiceEndpoint:
    """Where one service is reached, whichever process stands behind it."""

    def __init__(self, loop: VirtualLoop, name: str, dice: random.Random, trace: Trace) -> None:
        self.name = name
        self.process: SimulatedProcess | None = None
        self.trouble: Trouble = ""
        self.chance = 1.0
        """How often the trouble comes."""
        self.cut: set[str] = set()
        """Processes that cannot reach it, by name."""
        self._app: EmbeddedTransport | None = None
        self._calls: set[_Call] = set()
        self._loop = loop
        self.dice = dice
        self._trace = trace

    def open(self, process: SimulatedProcess, app: Any) -> None:
        """That process serves now."""
        self.process, self._app = process, EmbeddedTransport(app)

    def shut(self) -> None:
        """The server is gone: its callers get a broken connection."""
        self.process, self._app = None, None
        calls, self._calls = list(self._calls), set()
        for call in sorted(calls, key=lambda each: hash(each.done)):
            self._broke(call, httpx.ReadError("the connection broke"))

    def heal(self) -> None:
        self.trouble, self.chance = "", 1.0
        self.cut.clear()

    async def ask(
        self,
        base: Base,
        method: str,
        path: str,
        query: str,
        headers: Mapping[str, str],
        content: bytes,
        most_bytes: int,
    ) -> Answer:
        """Raises what httpx raises: ConnectError, ConnectTimeout, ReadError."""
        caller = PROCESS.get()
        done: asyncio.Future[Answer] = self._loop.create_future()
        call = _Call(base, method, path, query, headers, content, most_bytes, done)
        self._trace.seen("http", f"{self.name} {method} {path}")
        if caller is not None and caller.name in self.cut:
            self._loop.call_later(UNREACHED_S, self._broke, call, httpx.ConnectTimeout("no answer"))
        elif self._app is None or self._struck("refused"):
            self._loop.call_later(self._way_s(), self._broke, call, httpx.ConnectError("refused"))
        else:
            self._loop.call_later(self._way_s(), self._arrive, call)
        return await done

    def _struck(self, trouble: Trouble) -> bool:
        return self.trouble == trouble and (self.chance >= 1.0 or self.dice.random() < self.chance)

    def _way_s(self) -> float:
        return self.dice.uniform(*WAY_S)

    def _arrive(self, call: _Call) -> None:
        if self.process is None:
            self._broke(call, httpx.ConnectError("refused"))
            return
        self._calls.add(call)
        self._loop.begin(self.process, self._serve(call))

    async def _serve(self, call: _Call) -> None:
        app = self._app
        if app is None:
            return
        if self._struck("fails_before"):
            self._answer(call, (503, {}, b'{"message": "busy"}'))
            return
        if self._struck("late"):
            await asyncio.sleep(self.dice.uniform(*LATE_S))
        if self._struck("slow"):
            await asyncio.sleep(self.dice.uniform(*SLOW_S))
        status, headers, body = await app.ask(
            call.base, call.method, call.path, call.query, call.headers, call.content, call.most_bytes
        )
        if self._struck("fails_after"):
            self._answer(call, (500, {}, b'{"message": "broken"}'))
        elif self._struck("lost_answer"):
            self._calls.discard(call)
            self._broke(call, httpx.ReadError("the connection broke"))
        else:
            self._answer(call, (status, headers, self._less(call, status, body)))

    def _less(self, call: _Call, status: int, body: bytes) -> bytes:
        """A list with things left out, where that is the trouble."""
        if self.trouble not in {"lost_role", "short"} or call.method != "GET" or status != 200:
            return body
        said: dict[str, Any] = msgspec.json.decode(body) if body else {}
        for name in LISTS:
            whole = said.get(name)
            if isinstance(whole, list) and whole and (self.trouble == "lost_role" or self.dice.random() < 0.5):
                kept = [] if self.trouble == "lost_role" else [each for each in whole if self.dice.random() < 0.5]
                return msgspec.json.encode({**said, name: kept})
        return body

    def _answer(self, call: _Call, answer: Answer) -> None:
        self._calls.discard(call)
        self._loop.call_later(self._way_s(), self._settle, call, answer)

    @staticmethod
    def _settle(call: _Call, answer: Answer) -> None:
        if not call.done.done():
            call.done.set_result(answer)

    @staticmethod
    def _broke(call: _Call, failure: Exception) -> None:
        if not call.done.done():
            call.done.set_exception(failure)


class RemoteTransport(EmbeddedTransport):
    """A client's transport to a listener; requests that are no single plain call use it too."""

    def __init__(self, door: ServiceEndpoint) -> None:
        super().__init__(app=_nothing)
        self._door = door

    @override
    async def ask(
        self,
        base: Base,
        method: str,
        path: str,
        query: str,
        headers: Mapping[str, str],
        content: bytes,
        most_bytes: int,
    ) -> Answer:
        return await self._door.ask(base, method, path, query, headers, content, most_bytes)

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        base = Base(f"{url.scheme}://{url.netloc.decode()}", {})
        content = (
            b"".join([chunk async for chunk in request.stream]) if isinstance(request.stream, AsyncIterable) else b""
        )
        path = url.raw_path.decode("ascii").partition("?")[0]
        status, headers, body = await self._door.ask(
            base, request.method, path, url.query.decode("ascii"), dict(request.headers), content, 64 * 1024 * 1024
        )
        return httpx.Response(status, headers=dict(headers), content=body, request=request)


async def _nothing(*_: Any) -> None:
    raise AssertionError("a door is asked through `ask`")
