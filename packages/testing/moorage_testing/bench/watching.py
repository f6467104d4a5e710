"""The cost of observability: boots and reads of clouds without it, with metrics, and with traces of everything too."""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from moorage.main.config import Listen
from moorage.main.config_watching import MetricsConfig, TracingConfig
from moorage.main.http_servers import HttpServer
from moorage.main.local_cluster.ports import free_ports
from moorage_testing.bench.clouds import BenchCloud, backing, cloud
from moorage_testing.bench.load import Connection
from moorage_testing.bench.table import BenchRow, Table

HOSTS, BOOTS, SHOWS, SCRAPES = 20, 200, 1_500, 40
IN_FLIGHT = 32
ROUNDS = 3
TIMES_MORE = 1.1
"""Of the CPU of a boot that nobody watches, with metrics."""


@asynccontextmanager
async def _sink() -> AsyncIterator[str]:
    """Takes traces and forgets them; in this process, whose CPU is not counted."""

    async def forget(scope: Any, receive: Any, send: Any) -> None:
        more = True
        while more:
            more = (await receive()).get("more_body", False)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    port = free_ports(1)[0]
    door = HttpServer("sink", Listen(port=port))
    await door.open(forget)
    try:
        yield f"http://127.0.0.1:{port}/v1/traces"
    finally:
        await door.close()


async def watching(table: Table) -> None:
    """In turns, so that a machine that is busy for a while is so for all of them; the least of each counts."""
    best: dict[tuple[str, str], float] = {}
    async with _sink() as endpoint:
        for _ in range(ROUNDS):
            for name, changes in _kinds(endpoint).items():
                with backing("sqlite") as found:
                    async with cloud(found, hosts=HOSTS, changes=changes) as running:
                        boots = (await running.boot(BOOTS, in_flight=IN_FLIGHT)).cpu_ms
                        shows = await _shown(running)
                        took = {"boot": boots, "show": shows}
                        if "metrics" in changes:
                            took["scrape"] = await _scraped(running)
                for what, ms in took.items():
                    best[name, what] = min(best.get((name, what), math.inf), ms)
    plain = best["nobody watches", "boot"]
    for (name, what), ms in best.items():
        said = {"boot": "CPU per boot", "show": "CPU per GET /servers/{id}", "scrape": "CPU per scrape"}[what]
        budget = TIMES_MORE * plain if (name, what) == ("metrics", "boot") else None
        table.add(BenchRow(f"{said}, {name}", ms, "ms", budget))


def _kinds(endpoint: str) -> dict[str, dict[str, Any]]:
    metrics = MetricsConfig(port=free_ports(1)[0])
    return {
        "nobody watches": {},
        "metrics": {"metrics": metrics},
        "metrics and all traces": {"metrics": metrics, "tracing": TracingConfig(endpoint=endpoint)},
        "metrics, one trace in 100": {"metrics": metrics, "tracing": TracingConfig(endpoint=endpoint, sample=0.01)},
    }


async def _shown(running: BenchCloud) -> float:
    listed = await running.compute.call("GET", "/servers?limit=50")
    paths = [running.compute.path(f"/servers/{each['id']}") for each in listed["servers"]]
    connection = running.compute.connection()
    await running.command("begin")
    for number in range(SHOWS):
        status, _ = await connection.ask("GET", paths[number % len(paths)], running.compute.headers)
        if status != 200:
            raise RuntimeError(f"a server is shown with {status}")
    spent = await running.command("settle")
    await connection.close()
    return float(spent["cpu_s"]) * 1000 / SHOWS


async def _scraped(running: BenchCloud) -> float:
    connection = Connection("127.0.0.1", running.config.metrics.port)
    await running.command("begin")
    for _ in range(SCRAPES):
        status, _ = await connection.ask("GET", "/metrics", {})
        if status != 200:
            raise RuntimeError(f"a scrape is answered with {status}")
    spent = await running.command("settle")
    await connection.close()
    return float(spent["cpu_s"]) * 1000 / SCRAPES
