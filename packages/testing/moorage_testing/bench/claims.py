"""Durable claims: many in one statement, decided and claimed by one, two and four processes, and through `PUT /allocations` (P9, P10).

PostgreSQL runs with fsync on; isolation level, connections and the time of a sync stand beside the figures.  CPU is that of all
processes, PostgreSQL's included.
"""

import asyncio
import gc
import random
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import sqlalchemy as sa

from moorage.main.local_cluster.postgres import Server, start_postgres
from moorage.model.ids import CellId, HostId, new_uuid
from moorage.model.verdict import Claimed
from moorage.model.world import Ask, Choice
from moorage.placement import batched_claims
from moorage.placement.batched_claims import ClaimRequest
from moorage.placement.claim_batcher import Claimer
from moorage.placement.engine import Engine
from moorage.scheduler.profile import Profile
from moorage.scheduler.rank import rank
from moorage.sql import Database, open_database
from moorage.store.region.placement import tables
from moorage.store.region.placement.claims import Owner
from moorage_testing.bench.fleet import fill
from moorage_testing.bench.http_server import HEADERS, Served, placement_of
from moorage_testing.bench.load import Connection, Refused
from moorage_testing.bench.machine import cpu_s_of_tree
from moorage_testing.bench.table import Row, Table, say

HOSTS = 10_000
BATCHED_PER_S, PLACED_PER_S, PUT_PER_S = 20_000.0, 2_000.0, 3_000.0
BATCH, CONNECTIONS, ROUNDS = 1024, 2, 3
CLAIMS = 20 * BATCH
ONE_CLASS = {"VCPU": 1}
THREE_CLASSES = {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1}
DECIDERS = (1, 2, 4)
PLACED, IN_FLIGHT = 4_000, 64
PUTS, PUT_CONNECTIONS = 1_000, 8
DEADLINE_S = 300.0


async def claims(table: Table) -> None:
    postgres = start_postgres(durability="power")
    try:
        url = postgres.create_database("claims")
        database = await open_database(url, name="region")
        await database.create(tables.placement_metadata)
        uuids = await database.write(lambda tx: fill(tx, HOSTS))
        kept = await database.read(
            lambda tx: [tx.scalar(sa.text(f"SHOW {name}")) for name in ("synchronous_commit", "fsync")]
        )
        await database.write(lambda tx: tx.run(sa.text("ANALYZE")))
        say(f"      synchronous_commit {kept[0]}, fsync {kept[1]}, READ COMMITTED; {HOSTS:,} hosts of three classes")
        for asked in (ONE_CLASS, THREE_CLASSES):
            await _batched(table, database, postgres, uuids, asked)
        for number in DECIDERS:
            await _deciders(table, url, postgres, number)
        await database.close()
        for backing in (None, postgres):
            async with placement_of(HOSTS, postgres=backing) as served:
                await puts(table, served, "SQLite" if backing is None else "PostgreSQL")
    finally:
        postgres.stop()


# -------------------------------------------------------------------------------------------------- many at once


async def _batched(table: Table, database: Database, postgres: Server, uuids: list[str], asked: dict[str, int]) -> None:
    """Claims that are decided already, so many in a transaction; the median of some rounds."""
    per_s: list[float] = []
    cpu: list[tuple[float, float]] = []
    for _ in range(ROUNDS):
        waiting = iter([_bids(uuids, asked) for _ in range(CLAIMS // BATCH)])
        gc.collect()
        gc.freeze()
        beside, mine, began = cpu_s_of_tree(postgres.process_id), time.process_time(), time.perf_counter()
        await asyncio.gather(*(_claim_all(database, waiting) for _ in range(CONNECTIONS)))
        per_s.append(CLAIMS / (time.perf_counter() - began))
        cpu.append((time.process_time() - mine, cpu_s_of_tree(postgres.process_id) - beside))
        gc.unfreeze()
    own, others = (statistics.median(each[n] for each in cpu) / CLAIMS * 1e6 for n in (0, 1))
    note = f"{BATCH} in a transaction, {CONNECTIONS} connections; CPU {own:.0f} µs and PostgreSQL {others:.0f} µs each"
    rows = len(asked)
    name = f"batched claims of {rows} row{'s' * (rows > 1)} each, durable, PostgreSQL"
    table.add(Row(name, statistics.median(per_s), "/s", BATCHED_PER_S, "at least", note=note))


def _bids(uuids: list[str], asked: dict[str, int]) -> list[ClaimRequest]:
    ask, cell = Ask(resources=asked), CellId("cell1")
    owner = Owner("", "project", "user", operation="operation", attempt=1)
    return [
        ClaimRequest(owner._replace(consumer=new_uuid()), Choice(HostId(host), "h", cell), ask)
        for host in random.choices(uuids, k=BATCH)
    ]


async def _claim_all(database: Database, waiting: Any) -> None:
    for bids in waiting:
        answers = await database.write(partial(batched_claims.claim, bids=bids))
        if not all(isinstance(answer, Claimed) for answer in answers):
            raise RuntimeError("the fleet is full")


# ------------------------------------------------------------------------------------------------ several deciders


async def place(engine: Engine, database: Database, count: int, in_flight: int) -> tuple[float, Claimer]:
    """So many servers are placed, so many in flight; seconds, and the claimer with its counts."""
    claimer, left = Claimer(engine, database), iter(range(count))

    async def worker() -> None:
        for _ in left:
            owner = Owner(new_uuid(), "project", "user", operation="operation", attempt=1)
            seed = random.getrandbits(32)
            answer = await claimer.place(Ask(resources=THREE_CLASSES, seed=seed), owner)
            if not isinstance(answer, Claimed):
                raise RuntimeError("the fleet is full")

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(worker())
    return time.perf_counter() - began, claimer


async def decide(url: str, count: int) -> None:
    """One deciding process: says that it is ready, waits for a line, and says what it did."""
    database = await open_database(url, name="region")
    engine = Engine(database, partial(rank, profile=Profile()))
    await engine.start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.readline)
    spent = time.process_time()
    took, claimer = await place(engine, database, count, IN_FLIGHT)
    pace = claimer.pace
    told = {
        "s": took,
        "cpu_s": time.process_time() - spent,
        "lost": pace.lost,
        "claimed": pace.claimed,
        "batches": pace.batches,
    }
    sys.stdout.write(msgspec.json.encode(told).decode() + "\n")
    await engine.close()
    await database.close()


async def _deciders(table: Table, url: str, postgres: Server, number: int) -> None:
    share = PLACED // number
    code = f"import asyncio; from moorage_testing.bench.claims import decide; asyncio.run(decide({url!r}, {share}))"
    pipe = asyncio.subprocess.PIPE
    processes = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdin=pipe, stdout=pipe) for _ in range(number)
    ]
    async with asyncio.timeout(DEADLINE_S):
        for process in processes:
            await _line(process)
        beside, began = cpu_s_of_tree(postgres.process_id), time.perf_counter()
        for process in processes:
            assert process.stdin is not None
            process.stdin.write(b"go\n")
        told = [msgspec.json.decode(await _line(process)) for process in processes]
        took, beside = time.perf_counter() - began, cpu_s_of_tree(postgres.process_id) - beside
        for process in processes:
            await process.wait()
    claimed = sum(each["claimed"] for each in told)
    lost = sum(each["lost"] for each in told)
    cpu_ms = sum(each["cpu_s"] for each in told) / claimed * 1000
    note = (
        f"{lost / (claimed + lost):.2%} lost to another, {claimed / sum(each['batches'] for each in told):.0f} in a "
        f"transaction; CPU {cpu_ms:.2f} ms and PostgreSQL {beside / claimed * 1000:.2f} ms each"
    )
    who = "one process" if number == 1 else f"{number} processes"
    name = f"decided and claimed, {who}, {IN_FLIGHT} in flight each"
    table.add(Row(name, claimed / took, "/s", PLACED_PER_S if number == 1 else None, "at least", note=note))


async def _line(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        raise RuntimeError("a deciding process ended by itself")
    return line


# ------------------------------------------------------------------------------------------------- PUT /allocations


def putting(hosts: list[str]) -> Callable[[Connection, int], Any]:
    """One new consumer on a random host, in the shape of 1.39."""

    async def once(connection: Connection, number: int) -> None:
        body = {
            "allocations": {random.choice(hosts): {"resources": THREE_CLASSES}},
            "project_id": "project",
            "user_id": "user",
            "consumer_type": "INSTANCE",
            "consumer_generation": None,
        }
        status, said = await connection.ask("PUT", f"/allocations/{new_uuid()}", HEADERS, msgspec.json.encode(body))
        if status != 204:
            raise Refused(f"PUT /allocations: {status} {said[:300].decode(errors='replace')}")

    return once


async def puts(table: Table, served: Served, kind: str) -> tuple[float, float]:
    """The rate, and what one costs; a core's rate is one second by the CPU of all processes."""
    once = putting(list(served.hosts))
    await served.rate(once, 50, PUT_CONNECTIONS)
    per_s, cpu_ms = await served.rate(once, PUTS, PUT_CONNECTIONS)
    note = f"{per_s:,.0f} /s with {PUT_CONNECTIONS} connections, {cpu_ms:.2f} ms CPU each"
    table.add(
        Row(
            f"PUT /allocations of three classes per core, {kind}", 1000 / cpu_ms, "/s", PUT_PER_S, "at least", note=note
        )
    )
    return per_s, cpu_ms
