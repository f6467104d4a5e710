"""Allocation candidates over flat hosts, through the Placement API's application in this process (CORE P6)."""

import tempfile
import time

import httpx

from moorage.api.placement.app import make_placement_app
from moorage.api.placement.noauth import believe
from moorage.model.errors import Internal
from moorage.model.verdict import Verdict
from moorage.model.world import Ask, World
from moorage.placement.engine import Engine
from moorage.sql import open_database
from moorage.store.region.placement import tables
from moorage.testing.bench.fleet import fill
from moorage.testing.bench.table import Row, Table

HOSTS = (1_000, 10_000, 100_000)
BUDGETS_MS = {"10": 2.0, "1000": 4.0, "": 25.0}
TIMES = 15
BUDGETED = 10_000
QUERY = "/allocation_candidates?resources=VCPU:1,MEMORY_MB:512"


def _unranked(ask: Ask, world: World) -> Verdict:
    raise Internal("nothing is scheduled here", private=repr((ask, world)))


async def candidates(table: Table) -> None:
    """Medians, catch-up with the database and JSON included, sockets not."""
    for hosts in HOSTS:
        with tempfile.TemporaryDirectory(prefix="moorage-candidates-") as room:
            database = await open_database(f"sqlite:///{room}/region.db", name="region", durability="process")
            await database.create(tables.placement_metadata)
            await database.write(lambda tx, hosts=hosts: fill(tx, hosts))  # type: ignore[misc]
            engine = Engine(database, _unranked)
            await engine.start()
            try:
                app = make_placement_app(engine, database, believe)
                for limit, budget in BUDGETS_MS.items():
                    median = await _median_ms(app, limit)
                    name = f"candidates over {hosts:,} flat hosts, " + (f"limit={limit}" if limit else "all")
                    table.add(Row(name, median, "ms", budget if hosts == BUDGETED else None))
            finally:
                await engine.close()
                await database.close()


async def _median_ms(app: object, limit: str) -> float:
    headers = {"x-auth-token": "admin", "openstack-api-version": "placement 1.39"}
    spent: list[float] = []
    transport = httpx.ASGITransport(app)  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://placement", headers=headers) as http:
        for _ in range(TIMES):
            began = time.perf_counter()
            reply = await http.get(QUERY + (f"&limit={limit}" if limit else ""))
            spent.append((time.perf_counter() - began) * 1000)
            reply.raise_for_status()
    return sorted(spent)[TIMES // 2]
