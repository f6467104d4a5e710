"""One run: what is sent, what is monitored meanwhile, and what is sent once more, alone."""

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice

import httpx

from moorage_testing.fuzz.cloud import SERVICES, FuzzedCloud, quiet
from moorage_testing.fuzz.messages import Messages
from moorage_testing.fuzz.random_values import FuzzDice
from moorage_testing.fuzz.requests import RequestStream
from moorage_testing.fuzz.seeded import Seeded
from moorage_testing.fuzz.transport import FuzzClient, FuzzRequest, Nothing

AT_ONCE = 12
REFRESH_EVERY = 4_000
HANG_S = 1.0
ANSWER_S = 30.0
NO_ANSWER_S = 0.1
"""How long a request that is none may wait for what the listener makes of it: most often for more bytes."""
WATCH_EVERY_S = 0.1
SUSPECTS_MAX = 400
BURST = 100
SETTLE_S = 20.0
BOOT_S = 180.0

Publish = Callable[[str, bytes], Awaitable[None]]


@dataclass
class RunFindings:
    """What a run saw."""

    requests: int = 0
    messages: int = 0
    statuses: Counter[str] = field(default_factory=Counter[str])
    failed: list[str] = field(default_factory=list[str])
    """Answers of 500 and more, but what says that something is not built or out."""
    hangs: list[str] = field(default_factory=list[str])
    breaks: list[str] = field(default_factory=list[str])
    growth_mib: dict[str, float] = field(default_factory=dict[str, float])
    suspects: list[FuzzRequest] = field(default_factory=list[FuzzRequest])
    slowest_s: float = 0.0
    stalls: int = 0
    longest_stall_s: float = 0.0
    boots: bool = True
    why_not: str = ""
    ended_early: bool = False

    def wrong(self, growth_most_mib: float) -> list[str]:
        """Every reason why this run is a failure."""
        return [
            *(f"failed: {each}" for each in self.failed),
            *(f"hung: {each}" for each in self.hangs),
            *(f"broke: {each}" for each in self.breaks),
            *(f"grew: {mib:.0f} MiB by {what}" for what, mib in self.growth_mib.items() if mib > growth_most_mib),
            *(() if self.boots else (f"the cloud boots no server any more: {self.why_not}",)),
        ]


class Fuzz:
    """`seeded`: the resources that exist; `publish`: how a message is sent."""

    def __init__(
        self, cloud: FuzzedCloud, seeded: Seeded, dice: FuzzDice, publish: Publish, hosts: list[tuple[str, str]]
    ) -> None:
        self.found = RunFindings()
        self._cloud, self._seeded, self._dice, self._publish, self._hosts = cloud, seeded, dice, publish, hosts
        api = cloud.config.api
        self._urls = {name: f"http://{at.host}:{at.port}" for name in SERVICES if (at := getattr(api, name)).port}
        self._under_way: set[FuzzRequest] = set()
        self._ends_at = float("inf")

    def end_after(self, seconds: float) -> None:
        self._ends_at = time.monotonic() + seconds

    # ------------------------------------------------------------------------------------------------- requests

    async def requests(self, many: int) -> None:
        stream = iter(RequestStream(self._dice, self._seeded.world, self._urls))
        async with self._watched():
            while many > 0 and not self._over():
                part = min(many, REFRESH_EVERY)
                await self._seeded.refresh()
                waiting = islice(stream, part)
                await asyncio.gather(*(self._work(waiting) for _ in range(AT_ONCE)))
                many -= part
        await self._ask_again()

    def _over(self) -> bool:
        self.found.ended_early = time.monotonic() > self._ends_at
        return self.found.ended_early

    async def _work(self, waiting: Iterator[FuzzRequest]) -> None:
        client = FuzzClient(self._urls)
        try:
            for request in waiting:
                await self._ask(client, request)
                if self._over():
                    return
        finally:
            await client.close()

    async def _ask(self, client: FuzzClient, request: FuzzRequest) -> None:
        found, began = self.found, time.monotonic()
        self._under_way.add(request)
        try:
            answer = await client.ask(request, ANSWER_S if request.whole else NO_ANSWER_S)
            status = answer.status
        except Nothing:
            status = -1
        finally:
            self._under_way.discard(request)
        found.requests += 1
        took_s = time.monotonic() - began
        if request.whole and (took_s > HANG_S or status == -1):
            self._suspect(request)
            found.slowest_s = max(found.slowest_s, took_s)
        found.statuses[f"{request.service} {status}"] += 1
        if status >= 500 and status not in {501, 503}:
            found.failed.append(f"{status} of {request.shown}")

    def _suspect(self, request: FuzzRequest) -> None:
        if len(self.found.suspects) < SUSPECTS_MAX and request not in self.found.suspects:
            self.found.suspects.append(request)

    async def _ask_again(self) -> None:
        """Each that was slow, or under way when the process was busy, alone: the machine may have been busy with others."""
        client = FuzzClient(self._urls)
        for request in self.found.suspects:
            if await self._hangs(client, request) and (failure := await self._hangs(client, request)):
                self.found.hangs.append(f"{failure} for {request.shown}")
        self.found.suspects.clear()
        await client.close()

    async def _hangs(self, client: FuzzClient, request: FuzzRequest) -> str:
        """How long it took, when that was too long; of what is no whole request, the CPU counts alone."""
        cpu_s, began, status = self._cloud.cpu_s(), time.monotonic(), -1
        with suppress(Nothing):
            status = (await client.ask(request, ANSWER_S if request.whole else HANG_S)).status
        took_s, cpu_s = time.monotonic() - began, self._cloud.cpu_s() - cpu_s
        hangs = cpu_s > HANG_S or (request.whole and took_s > HANG_S)
        return f"{took_s:.1f} s ({cpu_s:.1f} s of CPU, answered {status})" if hangs else ""

    @asynccontextmanager
    async def _watched(self) -> AsyncIterator[None]:
        """Ask for the time of day all the while: a loop that is busy answers nobody."""
        watch = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)

    async def _watch(self) -> None:
        client = FuzzClient(self._urls)
        asked = FuzzRequest("compute", b"GET /healthcheck HTTP/1.1\r\nHost: a\r\n\r\n", whole=True)
        while True:
            before, began = list(self._under_way), time.monotonic()
            with suppress(Nothing):
                await client.ask(asked, ANSWER_S)
            took_s = time.monotonic() - began
            if took_s > HANG_S:
                self.found.stalls += 1
                self.found.longest_stall_s = max(self.found.longest_stall_s, took_s)
                for request in before:
                    self._suspect(request)
            await asyncio.sleep(WATCH_EVERY_S)

    # ------------------------------------------------------------------------------------------------- messages

    async def messages(self, many: int) -> None:
        """In bursts, each as large as every listener takes, and the next when the process has had its time."""
        stream = iter(Messages(self._dice, self._seeded.world, self._hosts))
        recent: deque[tuple[str, bytes]] = deque(maxlen=2 * BURST)
        while many > 0 and not self._over():
            for subject, payload in islice(stream, min(many, BURST)):
                recent.append((subject, payload))
                await self._publish(subject, payload)
                self.found.messages += 1
            many -= BURST
            if await self._stalled():
                await self._send_one_by_one(list(recent))

    async def _stalled(self) -> bool:
        client = FuzzClient(self._urls)
        began = time.monotonic()
        with suppress(Nothing):
            await client.ask(
                FuzzRequest("compute", b"GET /healthcheck HTTP/1.1\r\nHost: a\r\n\r\n", whole=True), ANSWER_S
            )
        await client.close()
        took_s = time.monotonic() - began
        self.found.longest_stall_s = max(self.found.longest_stall_s, took_s)
        return took_s > HANG_S

    async def _send_one_by_one(self, recent: list[tuple[str, bytes]]) -> None:
        """One by one: which of these keeps the process busy?"""
        self.found.stalls += 1
        await quiet(self._cloud, SETTLE_S)
        for subject, payload in recent:
            cpu_s = self._cloud.cpu_s()
            await self._publish(subject, payload)
            if await self._stalled() and self._cloud.cpu_s() - cpu_s > HANG_S:
                self.found.hangs.append(f"a message on {subject}: {payload[:600]!r}")

    # ------------------------------------------------------------------------------------------------- in the end

    async def memory_mib(self) -> float:
        await quiet(self._cloud, SETTLE_S)
        return self._cloud.memory_mib()

    async def still_boots(self) -> None:
        """The cloud works as before: hosts whose names foreign messages used are accepted again."""
        deadline = time.monotonic() + BOOT_S
        while time.monotonic() < deadline:
            try:
                await self._seeded.admin.log_in()
                server = await self._seeded.admin.active("after", networks="none")
                await self._seeded.admin.delete(server["id"])
                return
            except (AssertionError, httpx.HTTPError, StopIteration) as failure:
                self.found.why_not = repr(failure)[:1_000]
            await asyncio.sleep(1.0)
        self.found.boots = False
