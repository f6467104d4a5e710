"""A proxy that produces every kind of failure between a client of ours and an embedded or a real service.

    async with FlakyProxy(neutron_url) as proxy:
        trouble = proxy.upset(Trouble("reset_after", method="POST", path="/v2.0/ports", times=2))
        …                                  # the client is pointed at `proxy.url`
        assert trouble.fired == 2

Sockets on both sides, so a reset is a real reset and half a body is really sent. What reached the service is not undone
when the client goes away: as with a real one, the work may be done although no answer arrives.
"""

import asyncio
import random
import re
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from socket import SO_LINGER, SOL_SOCKET
from types import TracebackType
from typing import Literal, Self, TypeAlias

import httpx

Kind: TypeAlias = Literal[
    "status",  # answered by the proxy; the service never hears of it
    "status_after",  # the work is done, and the answer says that it failed
    "reset_before",  # the connection breaks before the request reached the service
    "reset_after",  # and after it: the reply is lost
    "half_body",  # half of the answer, then the connection breaks
    "garbled",  # the answer is whole, and cannot be read
    "late",  # the work is done at once, the reply comes `delay_s` later
    "lands_late",  # the connection breaks at once, and the request reaches the service `delay_s` later
    "slow",  # the service itself takes `delay_s` longer
]
KINDS: tuple[Kind, ...] = (
    "status", "status_after", "reset_before", "reset_after", "half_body", "garbled", "late", "lands_late", "slow",
)  # fmt: skip
REQUEST_MAX_BYTES = 16 * 1024 * 1024
UPSTREAM_S = 120.0
RESET = struct.pack("ii", 1, 0)
NOT_PASSED_ON = frozenset({"transfer-encoding", "content-length", "connection", "content-encoding"})


@dataclass
class ProxyFault:
    """What goes wrong, with which requests, and how often."""

    kind: Kind
    method: str = ""
    """Empty: any."""
    path: str = ""
    """A regular expression, searched in path and query."""
    times: int = 1
    delay_s: float = 0.0
    status: int = 503
    headers: dict[str, str] = field(default_factory=dict[str, str])
    fired: int = 0

    def meets(self, method: str, path: str) -> bool:
        return self.fired < self.times and self.method in {"", method} and re.search(self.path or ".", path) is not None


@dataclass(frozen=True)
class ProxyRequest:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class ProxyAnswer:
    status: int
    headers: dict[str, str]
    body: bytes


class FlakyProxy:
    """Listens on a free port of this machine; `url` stands for `upstream`."""

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream.rstrip("/")
        self.url = ""
        self.asked: Counter[str] = Counter()
        """`POST ports`: how often the service was asked, by what reached it."""
        self.under_way = 0
        self.most_under_way = 0
        self._troubles: list[ProxyFault] = []
        self._brew: Callable[[], ProxyFault | None] | None = None
        self._client = httpx.AsyncClient(timeout=UPSTREAM_S, trust_env=False)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._handled = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.aclose()

    def add_fault(self, trouble: ProxyFault) -> ProxyFault:
        """From now on this goes wrong, until it has so often."""
        self._troubles.append(trouble)
        return trouble

    def fail_randomly(self, seed: int, chance: float, delay_s: float, path: str = "/ports") -> Counter[str]:
        """From now on any request may meet any trouble; the answer counts which did."""
        dice, met = random.Random(seed), Counter[str]()

        def choose_fault() -> ProxyFault | None:
            if dice.random() >= chance:
                return None
            kind = dice.choice(KINDS)
            met[kind] += 1
            return ProxyFault(kind, delay_s=delay_s, status=dice.choice((429, 500, 502, 503, 504)), path=path)

        self._brew = choose_fault
        return met

    def clear_faults(self) -> None:
        """Nothing goes wrong any more."""
        self._troubles.clear()
        self._brew = None

    @property
    def quiet(self) -> bool:
        """Nothing is under way, and nothing will land late."""
        return not self._handled

    # --------------------------------------------------------------------------------------------------- one request

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request a connection; the client going away does not stop what the service was asked."""
        task = asyncio.create_task(self._exchange(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await _read(reader)
            if request is not None:
                self._handled += 1
                try:
                    await self._handle(request, writer)
                finally:
                    self._handled -= 1
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client is gone
        finally:
            writer.close()

    async def _handle(self, request: ProxyRequest, writer: asyncio.StreamWriter) -> None:
        trouble = next((each for each in self._troubles if each.meets(request.method, request.path)), None)
        if trouble is None and self._brew is not None:
            trouble = self._brew()
        if trouble is None or not trouble.meets(request.method, request.path):
            await _write(writer, await self.ask(request))
            return
        trouble.fired += 1
        match trouble.kind:
            case "status":
                await _write(writer, ProxyAnswer(trouble.status, trouble.headers, b'{"message": "out of order"}'))
            case "reset_before":
                _reset(writer)
            case "lands_late":
                _reset(writer)
                await asyncio.sleep(trouble.delay_s)
                await self.ask(request)
            case "slow":
                await asyncio.sleep(trouble.delay_s)
                await _write(writer, await self.ask(request))
            case _:
                await self._send_fault(trouble, await self.ask(request), writer)

    async def _send_fault(self, trouble: ProxyFault, answer: ProxyAnswer, writer: asyncio.StreamWriter) -> None:
        """The work is done; only the reply suffers."""
        match trouble.kind:
            case "status_after":
                await _write(writer, ProxyAnswer(trouble.status, trouble.headers, b'{"message": "gave up waiting"}'))
            case "half_body":
                writer.write(_head(answer, max(len(answer.body), 2)) + answer.body[: len(answer.body) // 2])
                await writer.drain()
                writer.close()
            case "garbled":
                await _write(writer, ProxyAnswer(answer.status, answer.headers, b'{"port": {"id": "'))
            case "late":
                await asyncio.sleep(trouble.delay_s)
                await _write(writer, answer)
            case _:
                _reset(writer)

    async def ask(self, request: ProxyRequest) -> ProxyAnswer:
        """What the service answers."""
        words = [word for word in request.path.partition("?")[0].split("/") if word]
        resource = (
            words[3] if len(words) > 3 else words[1] if len(words) > 1 else "".join(words)
        )  # /v2.0/ports/{id}/bindings
        self.asked[f"{request.method} {resource}"] += 1
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            reply = await self._client.request(
                request.method, self.upstream + request.path, headers=request.headers, content=request.body
            )
        finally:
            self.under_way -= 1
        headers = {name: value for name, value in reply.headers.items() if name.lower() not in NOT_PASSED_ON}
        return ProxyAnswer(reply.status_code, headers, reply.content)


async def _read(reader: asyncio.StreamReader) -> ProxyRequest | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    length = min(int(headers.get("content-length", "0")), REQUEST_MAX_BYTES)
    body = await reader.readexactly(length) if length else b""
    kept = {name: value for name, value in headers.items() if name not in {*NOT_PASSED_ON, "host", "accept-encoding"}}
    return ProxyRequest(method, path, kept, body)


def _head(answer: ProxyAnswer, length: int) -> bytes:
    lines = [f"HTTP/1.1 {answer.status} Said", f"content-length: {length}", "connection: close"]
    lines += [f"{name}: {value}" for name, value in answer.headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def _write(writer: asyncio.StreamWriter, answer: ProxyAnswer) -> None:
    length = 0 if answer.status == 204 else len(answer.body)
    writer.write(_head(answer, length) + answer.body[:length])
    await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    """A connection that breaks, not one that ends."""
    writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, RESET)
    writer.transport.abort()
