"""Lists and single reads of a cloud with a thousand servers (P11)."""

from moorage_testing.bench.clouds import BenchCloud
from moorage_testing.bench.table import BenchRow, Table

SERVERS = 1000
LIST_CPU_MS, SHOW_CPU_MS = 50.0, 0.6
STATEMENTS_PER_CELL = 2
LISTS, SHOWS = 9, 300


async def reads(table: Table, cloud: BenchCloud) -> None:
    """Measure lists and shows. Raises RuntimeError for a wrong answer."""
    missing = SERVERS - cloud.numbered
    if missing > 0:
        await cloud.boot(missing, in_flight=64)
    connection = cloud.compute.connection()
    path = cloud.compute.path(f"/servers/detail?limit={SERVERS}")
    took: list[float] = []
    statements: list[int] = []
    content = b""
    for _ in range(LISTS):
        await cloud.command("begin")
        status, content = await connection.ask("GET", path, cloud.compute.headers)
        spent = await cloud.command("settle")
        if status != 200 or content.count(b'"OS-EXT-STS:vm_state"') < SERVERS:
            raise RuntimeError(f"the list of {SERVERS} servers: {status}, {len(content)} bytes")
        took.append(spent["cpu_s"] * 1000)
        statements.append(
            sum(number for name, label, number in spent["statements"] if name.startswith("cell") and label != "hosts")
        )
    table.add(
        BenchRow(f"GET /servers/detail, {SERVERS} servers, CPU", sorted(took)[LISTS // 2], "ms", LIST_CPU_MS,
            note=f"{len(content) / 1e6:.1f} MB")
    )  # fmt: skip
    cells = len(cloud.config.cells)
    table.add(BenchRow("  its statements per cell", sorted(statements)[LISTS // 2] / cells, "", STATEMENTS_PER_CELL))
    listed = await cloud.compute.call("GET", "/servers?limit=50")
    paths = [cloud.compute.path(f"/servers/{each['id']}") for each in listed["servers"]]
    await cloud.command("begin")
    for number in range(SHOWS):
        status, _ = await connection.ask("GET", paths[number % len(paths)], cloud.compute.headers)
        if status != 200:
            raise RuntimeError(f"a server is shown with {status}")
    spent = await cloud.command("settle")
    table.add(BenchRow("GET /servers/{id}, CPU", spent["cpu_s"] * 1000 / SHOWS, "ms", SHOW_CPU_MS))
    await connection.close()
