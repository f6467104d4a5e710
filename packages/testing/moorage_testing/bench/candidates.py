"""Allocation candidates over HTTP, from a process of their own: flat hosts, hosts of seven providers, wide hosts (P6–P8, P12).

The queries over hosts of seven providers are those of Placement's own gate job.  Each figure has its growth from 1,000 to 100,000 hosts with it; budgets are of 10,000, and of 16 wide hosts.
"""

from moorage.main.local_cluster.postgres import PostgresServer, start_postgres
from moorage_testing.bench.fleet import FLAT, NESTED, wide
from moorage_testing.bench.http_server import Served, placement_of
from moorage_testing.bench.table import BenchRow, Table

HOSTS = (1_000, 10_000, 100_000)
BUDGETED = 10_000
TIMES = 15
FLAT_QUERY = "/allocation_candidates?resources=VCPU:1,MEMORY_MB:512,DISK_GB:1"
FLAT_MS = {"10": 2.0, "1000": 4.0, "": 25.0}
NESTED_QUERY = (
    "/allocation_candidates?resources=DISK_GB:10&required=COMPUTE_VOLUME_MULTI_ATTACH"
    "&resources_COMPUTE=VCPU:1,MEMORY_MB:256&required_COMPUTE=HW_NUMA_ROOT&resources_FPGA=FPGA:1"
    "&group_policy=none&same_subtree=_COMPUTE,_FPGA&limit=10"
)
NESTED_MS = 4.0
WIDE_HOSTS = (16, 160, 1600)
WIDE_MS = {8: 3.0, 16: 10.0}
MEMORY_MIB, COLD_START_S = 600.0, 10.0


def wide_query(groups: int) -> str:
    """As many groups as there are equal children, each on one of its own."""
    asked = "".join(f"&resources_G{n}=PGPU:1" for n in range(groups))
    return f"/allocation_candidates?resources=VCPU:1{asked}&group_policy=isolate&limit=10"


async def candidates(table: Table) -> None:
    """Medians over one kept connection, CPU of all processes per request."""
    for hosts in HOSTS:
        async with placement_of(hosts, FLAT) as served:
            for limit, budget in FLAT_MS.items():
                path = FLAT_QUERY + (f"&limit={limit}" if limit else "")
                name = f"candidates over {hosts:,} flat hosts, " + (f"limit={limit}" if limit else "all")
                await _row(table, served, name, path, budget if hosts == BUDGETED else None)
    for children, budget in WIDE_MS.items():
        for hosts in WIDE_HOSTS:
            async with placement_of(hosts, wide(children)) as served:
                name = f"{children} groups over {children} equal children, {hosts:,} hosts, limit=10"
                await _row(table, served, name, wide_query(children), budget if hosts == WIDE_HOSTS[0] else None)


async def nested(table: Table) -> None:
    """Seven providers a host, on PostgreSQL: from the command to the first answer, memory, and candidates."""
    postgres = start_postgres(durability="power")
    try:
        for hosts in HOSTS:
            await _nested(table, postgres, hosts)
    finally:
        postgres.stop()


async def _nested(table: Table, postgres: PostgresServer, hosts: int) -> None:
    async with placement_of(hosts, NESTED, postgres=postgres) as served:
        largest = hosts == HOSTS[-1]
        name = f"moorage placement over {hosts:,} hosts × 7 providers, until it answers"
        table.add(BenchRow(name, served.started_s, "s", COLD_START_S if largest else None))
        await served.medians(NESTED_QUERY, 1)
        table.add(BenchRow("  resident", served.resident_mib(), "MiB", MEMORY_MIB if largest else None))
        name = f"candidates over {hosts:,} hosts × 7 providers, limit=10"
        await _row(table, served, name, NESTED_QUERY, NESTED_MS if hosts == BUDGETED else None)


async def _row(table: Table, served: Served, name: str, path: str, budget: float | None) -> None:
    await served.medians(path, 1)
    wall_ms, cpu_ms, size = await served.medians(path, TIMES)
    table.add(BenchRow(name, wall_ms, "ms", budget, note=f"{cpu_ms:.1f} ms CPU, {size / 1024:,.0f} KiB"))
