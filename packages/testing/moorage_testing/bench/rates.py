"""CPU per boot, servers per second, and how both grow with the number of hosts (P2, P3)."""

import math

from moorage_testing.bench.clouds import BenchCloud, Spent, backing, cloud
from moorage_testing.bench.table import BenchRow, Table, print_line

BOOTS = 300
IN_FLIGHT = 64
HOSTS = 100
CPU_MS, PER_S, EXPONENT = 4.0, 250.0, 0.1
GROWTH_HOSTS = (10, 100, 1000)
GROWTH_BOOTS = 200
GROWTH_ROUNDS = 2


async def rate(table: Table, running: BenchCloud, boots: int = BOOTS) -> Spent:
    """Single boots, many in flight; the load comes from this process, the CPU is the cloud's."""
    spent = await running.boot(boots, in_flight=IN_FLIGHT)
    kind = "PostgreSQL, NATS" if running.backing.kind == "postgresql" else "SQLite"
    beside = ", ".join(f"{name} {spent.other_process_ms(name):.1f} ms" for name in running.backing.processes)
    table.add(
        BenchRow(
            f"CPU of the cloud's process per boot, {kind}",
            spent.cpu_ms,
            "ms",
            CPU_MS,
            note=beside and f"beside: {beside}",
        )
    )
    table.add(
        BenchRow(
            f"servers to ACTIVE, {IN_FLIGHT} in flight, {HOSTS} hosts, {kind}",
            spent.per_s,
            "/s",
            PER_S,
            "at least",
            note=f"{boots} boots; answered 202 at {boots / spent.accepted_s:.0f}/s",
        )
    )
    return spent


async def growth(table: Table) -> None:
    """The exponent b of CPU = a × hosts^b, by least squares over the logarithms; rounds are interleaved, the least counts."""
    best: dict[int, float] = {}
    for _ in range(GROWTH_ROUNDS):
        for hosts in GROWTH_HOSTS:
            with backing("sqlite") as found:
                async with cloud(found, hosts=hosts) as running:
                    spent = await running.boot(GROWTH_BOOTS, in_flight=IN_FLIGHT)
            best[hosts] = min(best.get(hosts, math.inf), spent.cpu_ms)
    points = [(math.log(hosts), math.log(ms)) for hosts, ms in best.items()]
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    exponent = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    seen = ", ".join(f"{hosts} hosts {ms:.1f} ms" for hosts, ms in best.items())
    table.add(BenchRow("growth of CPU per boot with hosts (exponent)", exponent, "", EXPONENT, note=seen))
    print_line("      the hosts' own heartbeats and reports are in it: they live in the same process")
