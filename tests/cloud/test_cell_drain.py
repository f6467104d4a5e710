"""A cell with many servers is drained: how fast, and only servers that the plan named stay (measured in `make soak`)."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.cloud.conftest import Running, Start
from tests.helpers.resized_cloud import host_of

from moorage.main.config import Hosts

SERVERS, HOSTS = 500, 24
AT_ONCE = 20
PATIENCE_S = 3_600.0


async def booted(running: Running, number: int) -> list[str]:
    """So many, in cell1, which alone takes any."""
    admin = running.admin
    reply = await admin.compute("PUT", "/ext/cells/cell2", {"cell": {"disabled": True}})
    assert reply.status_code == 200, reply.text
    found: list[str] = []
    for start in range(0, number, AT_ONCE):
        some = range(start, min(number, start + AT_ONCE))
        servers = await asyncio.gather(*(admin.active(f"d{n}", networks="none") for n in some))
        found += [each["id"] for each in servers]
    reply = await admin.compute("PUT", "/ext/cells/cell2", {"cell": {"disabled": False}})
    assert reply.status_code == 200, reply.text
    return found


async def emptied(running: Running, servers: list[str]) -> dict[str, Any]:
    admin = running.admin
    wanted = {"cell": "cell1", "hosts": 4, "concurrency": 4}
    plan = (await admin.compute("POST", "/ext/cell-drains", {"cell_drain": wanted | {"dry_run": True}})).json()[
        "cell_drain"
    ]
    assert (plan["counts"]["waiting"], plan["counts"]["left"]) == (len(servers), 0), plan["counts"]
    began = time.monotonic()
    reply = await admin.compute("POST", "/ext/cell-drains", {"cell_drain": wanted})
    assert reply.status_code == 202, reply.text
    path = f"/ext/cell-drains/{reply.json()['cell_drain']['id']}"
    while True:
        answer: dict[str, Any] = (await admin.compute("GET", path)).json()["cell_drain"]
        if answer["ended_at"] is not None:
            break
        assert time.monotonic() < began + PATIENCE_S, answer
        await asyncio.sleep(0.5)
    return answer


@pytest.mark.soak
async def test_only_servers_named_by_the_plan_stay(
    start: Start, record_property: Callable[[str, object], None]
) -> None:
    async with start(hosts=Hosts(count=HOSTS)) as running:
        servers = await booted(running, SERVERS)
        began = time.monotonic()
        told = await emptied(running, servers)
        record_property("servers_per_s", SERVERS / (time.monotonic() - began))
        assert (told["status"], told["counts"]["done"], told["counts"]["left"]) == ("done", SERVERS, 0), told
        cells = {plan.host: str(plan.cell) for plan in running.cloud.plans}
        for each in servers:
            seen = await running.admin.settled(each)
            assert (seen["status"], cells[host_of(seen)]) == ("ACTIVE", "cell2")
