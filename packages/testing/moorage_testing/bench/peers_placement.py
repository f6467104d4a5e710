"""Moorage's Placement compared with the real one, the same fleets and the same requests, in turns in one run (P6–P8, P10).

Both serve HTTP from one process over SQLite with everybody believed (`noauth2`), isolation SERIALIZABLE by SQLite itself, one
connection for reads and eight for writes; CPU is that of the whole process, its database included.  The real one's is cheroot with
one thread: more would wait for each other.  More than four groups over eight equal children are left out: the real one does not answer
within minutes.
"""

import contextlib
import sqlite3
import statistics
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from moorage.model.ids import new_uuid
from moorage_testing.bench.candidates import FLAT_QUERY, NESTED_QUERY
from moorage_testing.bench.claims import putting
from moorage_testing.bench.fleet import FLAT, NESTED, ProviderPart, wide
from moorage_testing.bench.http_server import Served, placement_of
from moorage_testing.bench.table import BenchRow, Table
from moorage_testing.real_services.placement import real_placement_alone

HOSTS, WIDE_HOSTS = 10_000, 16
ROUNDS = 3
OURS_TIMES = 40
THEIRS_TIMES = 2
FLAT_RATIOS = {"10": 400.0, "1000": 200.0, "": 50.0}
NESTED_RATIO, PUT_RATIO = 1_000.0, 30.0
PUTS_OURS, PUTS_THEIRS, PUT_CONNECTIONS = 1_000, 200, 8


async def compare_with_placement(table: Table) -> None:
    table.title(
        f"Placement beside the real one, {HOSTS:,} hosts, SQLite on both sides: how many times less CPU, and p50"
    )
    async with _pair(HOSTS, FLAT) as (ours, theirs):
        for limit, budget in FLAT_RATIOS.items():
            path = FLAT_QUERY + (f"&limit={limit}" if limit else "")
            await _compare(table, ours, theirs, f"flat hosts, {f'limit={limit}' if limit else 'all'}", path, budget)
        await _puts(table, ours, theirs)
    async with _pair(HOSTS, NESTED) as (ours, theirs):
        await _compare(table, ours, theirs, "hosts of seven providers, limit=10", NESTED_QUERY, NESTED_RATIO)
    async with _pair(WIDE_HOSTS, wide(8)) as (ours, theirs):
        for groups in (3, 4):
            asked = "".join(f"&resources_G{n}=PGPU:1" for n in range(groups))
            path = f"/allocation_candidates?resources=VCPU:1{asked}&group_policy=isolate&limit=10"
            await _compare(
                table, ours, theirs, f"{groups} groups over 8 equal children, {WIDE_HOSTS} hosts", path, None
            )


async def _compare(table: Table, ours: Served, theirs: Served, name: str, path: str, budget: float | None) -> None:
    mine: list[tuple[float, float]] = []
    other: list[tuple[float, float]] = []
    await ours.medians(path, 1)
    await theirs.medians(path, 1)
    for _ in range(ROUNDS):
        mine.append((await ours.medians(path, OURS_TIMES))[:2])
        other.append((await theirs.medians(path, THEIRS_TIMES))[:2])
    (our_ms, our_cpu), (their_ms, their_cpu) = (
        [statistics.median(each[n] for each in taken) for n in (0, 1)] for taken in (mine, other)
    )
    note = (
        f"ours {our_ms:.2f} ms ({our_cpu:.2f} CPU), theirs {their_ms:,.0f} ms ({their_cpu:,.0f} CPU); "
        f"p50 {their_ms / our_ms:,.0f}×"
    )
    table.add(BenchRow(f"candidates, {name}", their_cpu / our_cpu, "× less", budget, "at least", note=note))


async def _puts(table: Table, ours: Served, theirs: Served) -> None:
    mine, other = putting(list(ours.hosts)), putting(list(theirs.hosts))
    await ours.rate(mine, 50, PUT_CONNECTIONS)
    await theirs.rate(other, 10, 1)
    taken: list[tuple[float, float, float, float]] = []
    for _ in range(ROUNDS):
        our_rate, our_cpu = await ours.rate(mine, PUTS_OURS, PUT_CONNECTIONS)
        their_rate, their_cpu = await theirs.rate(other, PUTS_THEIRS, 1)
        taken.append((our_rate, our_cpu, their_rate, their_cpu))
    our_rate, our_cpu, their_rate, their_cpu = (statistics.median(each[n] for each in taken) for n in range(4))
    note = f"ours {our_rate:.0f} /s, {our_cpu:.2f} ms CPU each; theirs {their_rate:.0f} /s, {their_cpu:.1f} ms"
    table.add(BenchRow("PUT /allocations per core", their_cpu / our_cpu, "×", PUT_RATIO, "at least", note=note))


@asynccontextmanager
async def _pair(hosts: int, layout: Sequence[ProviderPart]) -> AsyncIterator[tuple[Served, Served]]:
    """Ours and theirs, each with so many hosts."""
    processes: list[int] = []
    with tempfile.TemporaryDirectory(prefix="moorage-real-") as room, contextlib.ExitStack() as stack:
        root = Path(room) / "placement"
        url = stack.enter_context(real_placement_alone(root, started=processes.append))
        uuids = fill_real(root / "placement.db", hosts, layout)
        theirs = Served(urlsplit(url).port or 80, processes, 0.0, uuids)
        async with placement_of(hosts, layout) as ours:
            yield ours, theirs
        await theirs.close()


def fill_real(file: Path, hosts: int, layout: Sequence[ProviderPart]) -> list[str]:
    """The same fleet in the tables of the real one; the ids of its roots."""
    with contextlib.closing(sqlite3.connect(file, timeout=60)) as database, database:
        classes = dict(database.execute("SELECT name, id FROM resource_classes"))
        traits = dict(database.execute("SELECT name, id FROM traits"))
        first = (database.execute("SELECT max(id) FROM resource_providers").fetchone()[0] or 0) + 1
        uuids = [new_uuid() for _ in range(hosts)]
        for place, part in enumerate(layout):
            ids = range(first + place, first + hosts * len(layout), len(layout))
            roots = range(first, first + hosts * len(layout), len(layout))
            parents = [None] * hosts if place == 0 else [root + part.above for root in roots]
            mine = uuids if place == 0 else [new_uuid() for _ in range(hosts)]
            names = [f"h{n}{'_' * bool(part.name)}{part.name}" for n in range(hosts)]
            database.executemany(
                "INSERT INTO resource_providers (id, uuid, name, generation, root_provider_id, parent_provider_id) "
                "VALUES (?, ?, ?, 0, ?, ?)",
                zip(ids, mine, names, roots, parents, strict=True),
            )
            for resource, total in part.totals.items():
                database.executemany(
                    "INSERT INTO inventories (resource_provider_id, resource_class_id, total, reserved, min_unit, max_unit, "
                    "step_size, allocation_ratio) VALUES (?, ?, ?, 0, 1, ?, 1, 1.0)",
                    [(each, classes[resource], total, total) for each in ids],
                )
            for trait in part.traits:
                database.executemany(
                    "INSERT INTO resource_provider_traits (trait_id, resource_provider_id) VALUES (?, ?)",
                    [(traits[trait], each) for each in ids],
                )
    return uuids
