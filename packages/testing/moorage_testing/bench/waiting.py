"""What servers that wait for a host cost: while nothing is freed, when something else is freed, and when what they lack is.

The waker of one conductor, on a region of its own in files; rows are written as boots write them when they fall asleep.
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec

from moorage.conductor.waking import Waker
from moorage.model.clock import SystemClock
from moorage.model.ids import ConductorId, OperationId, ProviderId, ServerId
from moorage.model.operation import Accepted
from moorage.model.world import Ask
from moorage.operations.steps.sleepers import WAITING_BOOTS
from moorage.scheduler.lacks import causes_of, kind_of
from moorage.sql import Tx
from moorage.store.region import operations, waiting
from moorage.store.region.conductors import Peer
from moorage.store.region.waiting import WaitingServer
from moorage_testing.bench.table import BenchRow, Table
from moorage_testing.region_fixture import SmallRegion, a_server
from moorage_testing.waiting import until

SLEEPERS = 10_000
AT_ONCE = 250
WATCHED_S = 5.0
PERCENT_MOST = 1.0
"""Of one processor, more than without sleepers."""
STATEMENTS_PER_S_MOST = 2.0
ME = ConductorId("bench")
ASK = Ask(resources={"VCPU": 1, "MEMORY_MB": 9_000})
"""More memory than any host has."""
FAR_US = 2**60


class LeadingConductor:
    """What the waker needs of the conductor: it leads, is alone, and executes nothing."""

    id = ME
    leads = True

    class peers:  # noqa: N801 - an attribute of the conductor
        living = (Peer(ME, "here", 0.0, 0.0, True, frozenset(WAITING_BOOTS)),)

    def check_cancel(self, operation: OperationId) -> None:
        """Nobody executes it here."""


async def fall_asleep(small: SmallRegion, kinds: int) -> None:
    """`SLEEPERS` of so many kinds."""
    asks = [msgspec.structs.replace(ASK, project=str(number)) for number in range(kinds)]
    known = [(kind_of(each), msgspec.json.encode(each)) for each in asks]
    common: dict[str, Any] = {"saga": WAITING_BOOTS[0], "project": "p", "user": "u", "owner": ME}

    def work(tx: Tx, numbers: range) -> None:
        ids = {number: OperationId(f"sleeper-{number}") for number in numbers}
        operations.accept(
            tx,
            [
                Accepted(id=each, server=ServerId(each), asked=b"{}", journal=b"", head=1, **common)
                for each in ids.values()
            ],
        )
        for number, each in ids.items():
            kind, ask = known[number % kinds]
            row = WaitingServer(
                operation=each,
                server=ServerId(each),
                project="p",
                saga=WAITING_BOOTS[0],
                kind=kind,
                causes=causes_of({"hosts", "MEMORY_MB"}),
                counts={"not enough memory": 3},
                ask=ask,
                came_at=number,
                since=number,
                until=FAR_US,
            )
            waiting.fall_asleep(tx, row)

    for start in range(0, SLEEPERS, AT_ONCE):
        await small.region.write(partial(work, numbers=range(start, start + AT_ONCE)))


@asynccontextmanager
async def region() -> AsyncIterator[SmallRegion]:
    with tempfile.TemporaryDirectory() as directory:
        small = await SmallRegion.open(Path(directory))
        try:
            await small.fresh(a_server(), OperationId("bench"))
            yield small
        finally:
            await small.close()


async def percent(seconds: float) -> float:
    """Of one processor, that this process uses."""
    cpu_s, began_s = time.process_time(), time.monotonic()
    await asyncio.sleep(seconds)
    return (time.process_time() - cpu_s) / (time.monotonic() - began_s) * 100


def statements(small: SmallRegion) -> int:
    return sum(count for (name, _), count in list(small.region.meter.statements.items()) if name == small.region.name)


async def waiting_servers(table: Table) -> None:
    """Ten thousand that ask the same, and ten thousand of whom every tenth asks something else."""
    for kinds in (1, SLEEPERS // 10):
        async with region() as small:
            waker = Waker(
                cast("Any", LeadingConductor()), small.context, cast("Any", None), SystemClock(), asyncio.Event()
            )
            await waker.start()
            try:
                await measured(table, small, waker, kinds)
            finally:
                await waker.stop()


async def measured(table: Table, small: SmallRegion, waker: Waker, kinds: int) -> None:
    """Idle without and with them; a search after something that they lack is freed, and after something else is."""
    said = f"{SLEEPERS:,} sleepers of {kinds:,} kind{'s' if kinds > 1 else ''}"
    await percent(1.0)
    alone = await percent(WATCHED_S)
    await fall_asleep(small, kinds)
    await until(lambda: waker.searches >= kinds and waker.kinds == kinds)
    await percent(2.0)
    while waker.searching or (await small.region.read(lambda tx: waiting.news(tx, 0))).new:  # noqa: ASYNC110 - rows
        await asyncio.sleep(0.1)  # a look each second finds who fell asleep since the last one
    searches, ran = waker.searches, statements(small)
    idle = await percent(WATCHED_S)
    per_s = (statements(small) - ran) / WATCHED_S
    assert waker.searches == searches, "nothing was freed"
    table.add(BenchRow(f"{said}: CPU while nothing is freed", max(0.0, idle - alone), "%", PERCENT_MOST))
    table.add(BenchRow(f"{said}: statements", per_s, "/s", STATEMENTS_PER_S_MOST, counting=True))
    picture = small.engine.picture
    freed = picture.freed
    assert freed is not None
    host = ProviderId(picture.host_ids[0])
    for what, resource, asked in (("something else", "DISK_GB", 0), ("what they lack", "MEMORY_MB", kinds)):
        before, cpu_s = waker.searches, time.process_time()
        freed.amount(host, resource)
        await until(lambda before=before, asked=asked: waker.searches - before >= asked)  # type: ignore[misc]
        await asyncio.sleep(0.5)
        table.add(
            BenchRow(f"{said}: searches after {what} is freed", waker.searches - before, "", asked, counting=True)
        )
        table.add(BenchRow(f"{said}: CPU of those", (time.process_time() - cpu_s) * 1000, "ms"))
    assert sum(waker.woken.values()) == 0, "there is no room for any"
