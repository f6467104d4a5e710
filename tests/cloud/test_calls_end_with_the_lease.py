"""The calls of a saga end 2 s before its conductor's lease, even if no service answers and the lease cannot be renewed (RULES §3)."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.cloud.conftest import Running, Start

from moorage.clients.asgi_transport import EmbeddedTransport
from moorage.clients.deadline import LEASE_MARGIN_S
from moorage.main.config import Compute
from moorage.model.errors import Unavailable
from moorage.model.task_context import lease_left

LEASE_S, BEAT_S = 5.5, 1.0
"""The conductor itself looks at its lease every second, so half a second after the call must have ended."""


async def test_a_call_ends_before_a_lease_that_is_not_renewed(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    async with start(compute=Compute(lease_s=LEASE_S, lease_beat_s=BEAT_S)) as running:
        await running.admin.active("warm")
        left, due = await given_up(running, monkeypatch)
        assert left <= LEASE_MARGIN_S + 0.1
        assert left > due - 0.3, "it ends when it is due, as soon as this process runs at all"
        found = await running.admin.settled((await listed(running))["waits"])
        assert found["status"] == "ACTIVE"


async def listed(running: Running) -> dict[str, str]:
    reply = await running.admin.compute("GET", "/servers")
    return {each["name"]: each["id"] for each in reply.json()["servers"]}


async def given_up(running: Running, monkeypatch: pytest.MonkeyPatch) -> tuple[float, float]:
    """How much of the lease was left when the POST of a port was given up, and when a timer of that moment rang; afterwards all works again."""
    conductor = running.cloud.region.conductor
    assert conductor is not None
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[float] = loop.create_future()
    ringing: list[asyncio.Task[float]] = []
    ask = EmbeddedTransport.ask

    async def hang(self: EmbeddedTransport, base: Any, method: str, path: str, *more: Any) -> Any:
        lease = lease_left.get()
        if method != "POST" or not path.endswith("/ports") or lease is None or ended.done():
            return await ask(self, base, method, path, *more)
        try:
            ringing.append(loop.create_task(until_due(lease)))
            await asyncio.Event().wait()
        finally:
            ended.set_result(lease())

    async def until_due(left_s: Callable[[], float]) -> float:
        while (left := left_s()) > LEASE_MARGIN_S:  # noqa: ASYNC110 - it is renewed once more, perhaps
            await asyncio.sleep(left - LEASE_MARGIN_S)
        return left

    async def no_renewal() -> None:
        raise Unavailable("the region's database does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(EmbeddedTransport, "ask", hang)
        await running.admin.boot("waits")
        patched.setattr(conductor.lease, "renew", no_renewal)
        return await asyncio.wait_for(ended, 180), await asyncio.wait_for(ringing[0], 180)
