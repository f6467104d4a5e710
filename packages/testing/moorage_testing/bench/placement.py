"""Decisions and durable claims over many hosts, without HTTP, sagas or network around them (P9).

Hosts are flat here: one provider each with VCPU, MEMORY_MB and DISK_GB, and with routed networks one of 64 segments each.  A
claim is one transaction, as a boot makes it; a boot's carries the operation's line too.
"""

import asyncio
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

from moorage.main.event_loop import settle_memory
from moorage.model.ids import ProviderId, new_uuid
from moorage.model.verdict import Claimed, Shortage
from moorage.model.world import Ask, Choice, NicRequirement
from moorage.placement.engine import Engine
from moorage.scheduler.profile import Profile
from moorage.scheduler.rank import rank
from moorage.sql import Database, Durability, Tx, open_database
from moorage.store.region.placement import tables
from moorage.store.region.placement.claim_statements import Owner
from moorage_testing.bench.fleet import fill, wire
from moorage_testing.bench.table import BenchRow, Table

HOSTS = (1_000, 10_000, 100_000)
DECISIONS = 200
CLAIMS, IN_FLIGHT = 1_000, 64
SEGMENTS = 64
ASKED = {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1}
DECISION_MS, SLOW_DECISION_MS = 0.5, 3.0
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
    uuids = await database.write(lambda tx: fill(tx, hosts))
    segments = await database.write(lambda tx: wire(tx, uuids, SEGMENTS))
    engine = Engine(database, partial(rank, profile=Profile()))
    resident, began = _resident_mib(), time.perf_counter()
    await engine.start()
    engine.world()
    taken = f"read in {time.perf_counter() - began:.1f} s, {_resident_mib() - resident:.0f} MiB resident"
    settle_memory()
    nics = (NicRequirement("network", tuple(ProviderId(each) for each in segments)),)
    try:
        _decisions(table, engine, f"a decision over {hosts:,} flat hosts, CPU", Ask(resources=ASKED), taken)
        _decisions(table, engine, f"  with a network of {SEGMENTS} segments", Ask(resources=ASKED, nics=nics), "")
        per_s, cpu_ms, lost = await _claims(engine, database)
        note = f"{cpu_ms:.2f} ms CPU each, {IN_FLIGHT} in flight, {lost} lost to another"
        table.add(BenchRow("  decided and claimed durably, as a boot makes it", per_s, "/s", note=note))
    finally:
        await engine.close()


def _decisions(table: Table, engine: Engine, name: str, ask: Ask, note: str) -> None:
    spent: list[float] = []
    for number in range(DECISIONS):
        one = Ask(resources=ask.resources, nics=ask.nics, seed=number)
        began_cpu = time.thread_time()
        engine.rank(one)
        spent.append((time.thread_time() - began_cpu) * 1000)
    median, slow = np.percentile(spent, (50, 99)).tolist()
    note = f"p99 {slow:.2f} ms (≤ {SLOW_DECISION_MS:g})" + (note and f"; {note}")
    table.add(BenchRow(name, median, "ms", DECISION_MS, note=note))


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
    owner = Owner(consumer, "p", "u", operation="o", attempt=1)
    answer = engine.claim(tx, owner, choice, ask, replace=False)
    if isinstance(answer, Shortage):
        tx.refuse(answer)
    return answer


def _resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_MIB
