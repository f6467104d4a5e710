"""A network service as slow as they are: so long a call, and so many ports a second on each subnet (docs/performance.md).

The embedded one does the work; this is put around it and takes its time.  Capacity is per network, each of which has one subnet
here: ports are made one after the other, however they are asked for.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

import msgspec

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

CALL_S = 0.170
PORTS_PER_S = 6.0


class SlowNetwork:
    """`SlowNetwork(app)` is an application too."""

    def __init__(self, app: Any, call_s: float = CALL_S, ports_per_s: float = PORTS_PER_S) -> None:
        self._app = app
        self._call_s = call_s
        self._port_s = 1.0 / ports_per_s
        self._free_at: dict[str, float] = {}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = await _read_body(receive)
        ready_at = self._ready_at(scope, body)
        given = [{"type": "http.request", "body": body, "more_body": False}]
        held: list[Message] = []

        async def again() -> Message:
            return given.pop() if given else await receive()

        async def hold(message: Message) -> None:
            held.append(message)

        await self._app(scope, again, hold)
        await asyncio.sleep(max(0.0, ready_at - asyncio.get_running_loop().time()))
        for message in held:
            await send(message)

    def _ready_at(self, scope: Message, body: bytes) -> float:
        now = asyncio.get_running_loop().time()
        ready_at = now + self._call_s
        for network, ports in _requested_ports(scope, body).items():
            self._free_at[network] = max(now, self._free_at.get(network, 0.0)) + ports * self._port_s
            ready_at = max(ready_at, self._free_at[network])
        return ready_at


async def _read_body(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return bytes(body)


def _requested_ports(scope: Message, body: bytes) -> Counter[str]:
    """Ports that this request makes, by network."""
    if scope["method"] != "POST" or not scope["path"].endswith("/ports"):
        return Counter()
    asked: dict[str, Any] = msgspec.json.decode(body)
    return Counter(str(port["network_id"]) for port in asked.get("ports", [asked.get("port", {})]))
