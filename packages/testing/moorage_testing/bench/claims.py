"""Durable claims through `PUT /allocations` (P10), on SQLite and on PostgreSQL with fsync on.

CPU is that of all processes, PostgreSQL's included.
"""

import random
from collections.abc import Callable
from typing import Any

import msgspec

from moorage.main.local_cluster.postgres import start_postgres
from moorage.model.ids import new_uuid
from moorage_testing.bench.http_server import HEADERS, Served, placement_of
from moorage_testing.bench.load import Connection, UnexpectedAnswer
from moorage_testing.bench.table import BenchRow, Table

HOSTS = 10_000
PUT_PER_S = 3_000.0
THREE_CLASSES = {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1}
PUTS, PUT_CONNECTIONS = 1_000, 8


async def claims(table: Table) -> None:
    postgres = start_postgres(durability="power")
    try:
        for backing in (None, postgres):
            async with placement_of(HOSTS, postgres=backing) as served:
                await puts(table, served, "SQLite" if backing is None else "PostgreSQL")
    finally:
        postgres.stop()


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
            raise UnexpectedAnswer(f"PUT /allocations: {status} {said[:300].decode(errors='replace')}")

    return once


async def puts(table: Table, served: Served, kind: str) -> tuple[float, float]:
    """The rate, and what one costs; a core's rate is one second by the CPU of all processes."""
    once = putting(list(served.hosts))
    await served.rate(once, 50, PUT_CONNECTIONS)
    per_s, cpu_ms = await served.rate(once, PUTS, PUT_CONNECTIONS)
    note = f"{per_s:,.0f} /s with {PUT_CONNECTIONS} connections, {cpu_ms:.2f} ms CPU each"
    table.add(
        BenchRow(
            f"PUT /allocations of three classes per core, {kind}", 1000 / cpu_ms, "/s", PUT_PER_S, "at least", note=note
        )
    )
    return per_s, cpu_ms
