"""Decisions and durable claims over many hosts, without HTTP, sagas or network around them (CORE P9, P10, P12).

Hosts are flat here: one provider each with VCPU, MEMORY_MB and DISK_GB.  They are written straight into the region's tables, for
what is measured is the reading of them; the first figure is that of `Engine.start` on a database full of hosts.
"""

import asyncio
import tempfile
import time
from functools import partial
from pathlib import Path

from moorage.model.ids import new_uuid
from moorage.model.verdict import Claimed, Shortage
from moorage.model.world import Ask, Choice
from moorage.placement.engine import Engine
from moorage.scheduler.profile import Profile
from moorage.scheduler.rank import rank
from moorage.sql import Database, Durability, Tx, open_database
from moorage.store.region.placement import tables
from moorage.testing.bench.fleet import fill
from moorage.testing.bench.table import Row, Table

HOSTS = (1_000, 10_000, 100_000)
DECISIONS = 100
CLAIMS, IN_FLIGHT = 1_000, 64
ASKED = {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1}
DECISION_MS = 0.5
CLAIMS_PER_S = 2_000.0
PAGE_MIB = 4096 / 1024 / 1024


async def placement(table: Table, durability: Durability = "power") -> None:
    for hosts in HOSTS:
        with tempfile.TemporaryDirectory(prefix="moorage-placement-") as room:
            database = await open_database(f"sqlite:///{room}/region.db", name="region", durability=durability)
            try:
                await _over(table, database, hosts)
            finally:
                await database.close()


async def _over(table: Table, database: Database, hosts: int) -> None:
    await database.create(tables.placement_metadata)
    await database.write(lambda tx: fill(tx, hosts))
    engine = Engine(database, partial(rank, profile=Profile()))
    resident, began = _resident_mib(), time.perf_counter()
    await engine.start()
    engine.world()
    taken = f"read in {time.perf_counter() - began:.1f} s, {_resident_mib() - resident:.0f} MiB resident"
    try:
        spent: list[float] = []
        for number in range(DECISIONS):
            began_cpu = time.thread_time()
            engine.rank(Ask(resources=ASKED, seed=number))
            spent.append((time.thread_time() - began_cpu) * 1000)
        median = sorted(spent)[DECISIONS // 2]
        table.add(Row(f"a decision over {hosts:,} flat hosts, CPU", median, "ms", DECISION_MS, note=taken))
        per_s, cpu_ms, lost = await _claims(engine, database)
        note = f"{cpu_ms:.2f} ms CPU each, {IN_FLIGHT} in flight, {lost} lost to another"
        table.add(Row("  decided and claimed durably", per_s, "/s", CLAIMS_PER_S, "at least", note=note))
    finally:
        await engine.close()


async def _claims(engine: Engine, database: Database) -> tuple[float, float, int]:
    """Claims as a boot makes them: decide, hold, one transaction; a lost one takes the next choice."""
    left, lost = iter(range(CLAIMS)), 0

    async def claim(number: int) -> int:
        ask = Ask(resources=ASKED, seed=number)
        for tried, choice in enumerate(engine.rank(ask).best):
            with engine.holding(choice, ask):
                answer = await database.write(
                    partial(_take, engine=engine, consumer=new_uuid(), choice=choice, ask=ask)
                )
            if isinstance(answer, Claimed):
                engine.claimed(answer)
                return tried
            engine.lost(answer)
        raise RuntimeError("no host took the claim")

    async def worker() -> None:
        nonlocal lost
        for number in left:
            lost += await claim(number)

    began, began_cpu = time.perf_counter(), time.process_time()
    async with asyncio.TaskGroup() as group:
        for _ in range(IN_FLIGHT):
            group.create_task(worker())
    return CLAIMS / (time.perf_counter() - began), (time.process_time() - began_cpu) / CLAIMS * 1000, lost


def _take(tx: Tx, *, engine: Engine, consumer: str, choice: Choice, ask: Ask) -> Claimed | Shortage:
    answer = engine.claim(
        tx, consumer, choice, ask, project="p", user="u", operation="o", attempt=1, replace=False
    )  # fmt: skip
    if isinstance(answer, Shortage):
        tx.refuse(answer)
    return answer


def _resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_MIB
