"""The provider cache of hosts with seven providers each, from SQLite and PostgreSQL: its load time and memory (P12).

A process of its own opens the database, notes its memory, and loads everything. The result is the additional memory
after the load, at its peak, and when the maximum of provider objects is kept.
"""

import asyncio
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import msgspec
import sqlalchemy as sa

from moorage.main.event_loop import settle_memory
from moorage.main.local_cluster.postgres import PostgresServer, start_postgres
from moorage.placement.engine import Engine
from moorage.scheduler.profile import Profile
from moorage.scheduler.rank import rank
from moorage.sql import open_database
from moorage.store.region.placement import tables
from moorage_testing.bench.fleet import NESTED, fill
from moorage_testing.bench.machine import cpu_s_of_tree
from moorage_testing.bench.table import BenchRow, Table

HOSTS = (1_000, 10_000, 100_000)
MEMORY_MIB, COLD_START_S = 600e6 / 2**20, 10.0
DEADLINE_S = 300.0
PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / 2**20


class Measurement(msgspec.Struct):
    """What the process says of itself."""

    wall_s: float
    cpu_s: float
    resident_mib: float
    highest_mib: float
    kept_mib: float
    providers: int


async def measure_cache(table: Table, kinds: tuple[str, ...]) -> None:
    for kind in kinds:
        table.title(f"The picture of hosts of seven providers, read from {kind}, in a process of its own")
        postgres = start_postgres(durability="power") if kind == "postgresql" else None
        try:
            for hosts in HOSTS:
                with tempfile.TemporaryDirectory(prefix="moorage-picture-") as room:
                    name = f"picture_{hosts}"
                    url = f"sqlite:///{room}/region.db" if postgres is None else postgres.create_database(name)
                    await _over(table, url, hosts, postgres)
                    if postgres is not None:
                        postgres.drop_database(name)
        finally:
            if postgres is not None:
                postgres.stop()


async def _over(table: Table, url: str, hosts: int, postgres: PostgresServer | None) -> None:
    database = await open_database(url, name="region")
    await database.create(tables.placement_metadata)
    await database.write(lambda tx: fill(tx, hosts, NESTED))
    if postgres is not None:
        await database.write(lambda tx: tx.run(sa.text("ANALYZE")))
    await database.close()
    beside = 0.0 if postgres is None else cpu_s_of_tree(postgres.process_id)
    told = await _measured_in_process(url)
    beside = 0.0 if postgres is None else cpu_s_of_tree(postgres.process_id) - beside
    largest = hosts == HOSTS[-1]
    note = f"{told.cpu_s:.2f} s CPU" + (f", and PostgreSQL {beside:.2f} s" if postgres is not None else "")
    name = f"{hosts:,} hosts, {told.providers:,} providers: until all is read"
    table.add(BenchRow(name, told.wall_s, "s", COLD_START_S if largest else None, note=note))
    note = f"{told.resident_mib:.0f} MiB when all is read, {told.kept_mib:.0f} MiB when many were asked for"
    memory = max(told.highest_mib, told.kept_mib)
    table.add(BenchRow("  memory at its highest", memory, "MiB", MEMORY_MIB if largest else None, note=note))


async def _measured_in_process(url: str) -> Measurement:
    code = f"import asyncio; from moorage_testing.bench.provider_cache import read; asyncio.run(read({url!r}))"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(DEADLINE_S):
        said, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError("the process that reads the picture failed")
    return msgspec.json.decode(said, type=Measurement)


async def read(url: str) -> None:
    """The process that reads: says what it took."""
    database = await open_database(url, name="region")
    engine = Engine(database, partial(rank, profile=Profile()), every_s=DEADLINE_S)
    before, began, began_cpu = _resident_mib(), time.perf_counter(), time.process_time()
    await engine.start()
    engine.world()
    took, spent = time.perf_counter() - began, time.process_time() - began_cpu
    settle_memory()
    resident, highest = _resident_mib() - before, _highest_mib() - before
    for root in engine.picture.trees:
        _ = engine.picture.trees[root]
    kept = _highest_mib() - before
    told = Measurement(took, spent, resident, highest, kept, len(engine.picture.providers))
    sys.stdout.write(msgspec.json.encode(told).decode())
    await engine.close()
    await database.close()


def _resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_MIB


def _highest_mib() -> float:
    """Since the process began."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024
