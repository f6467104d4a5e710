"""CPU of each move, and of a delete: of the cloud's one process, its hosts included, and what it spends in the same time without moves."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from moorage_testing.bench.clouds import BenchCloud, backing, cloud
from moorage_testing.bench.load import UnexpectedAnswer
from moorage_testing.bench.table import BenchRow, Table

HOSTS = 10
SERVERS = 32
IN_FLIGHT = 8
IDLE_S = 5.0
OTHER_FLAVOR = "84"
DEADLINE_S = 300.0
LOOK_S = 0.2


@dataclass(frozen=True)
class MoveOrder:
    """One order given to every server, and what each server shows when it is done."""

    name: str
    body: dict[str, Any]
    until: str


MOVES = (
    MoveOrder("cold migration", {"migrate": None}, "VERIFY_RESIZE"),
    MoveOrder("its confirm", {"confirmResize": None}, "ACTIVE"),
    MoveOrder("resize to another flavor", {"resize": {"flavorRef": OTHER_FLAVOR}}, "VERIFY_RESIZE"),
    MoveOrder("its revert", {"revertResize": None}, "ACTIVE"),
    MoveOrder("live migration", {"os-migrateLive": {"host": None, "block_migration": "auto"}}, "ACTIVE"),
    MoveOrder("shelve, offloaded at once", {"shelve": None}, "SHELVED_OFFLOADED"),
    MoveOrder("unshelve", {"unshelve": None}, "ACTIVE"),
)


async def _servers(running: BenchCloud) -> list[str]:
    rows = (await running.compute.call("GET", "/servers?all_tenants=1"))["servers"]
    return [row["id"] for row in rows][:SERVERS]


async def _ask(running: BenchCloud, servers: Sequence[str], move: MoveOrder | None) -> None:
    """Give one order to every server; None: a delete."""
    room = asyncio.Semaphore(IN_FLIGHT)

    async def one(server: str) -> None:
        async with room:
            if move is None:
                await running.compute.call("DELETE", f"/servers/{server}", expect=204)
            else:
                await running.compute.call("POST", f"/servers/{server}/action", move.body)

    async with asyncio.TaskGroup() as group:
        for server in servers:
            group.create_task(one(server))


async def _done(running: BenchCloud, servers: Sequence[str], status: str) -> None:
    wanted = set(servers)
    async with asyncio.timeout(DEADLINE_S):
        while wanted:
            await asyncio.sleep(LOOK_S)
            rows = (await running.compute.call("GET", "/servers/detail?all_tenants=1"))["servers"]
            for row in rows:
                if row["status"] == "ERROR":
                    raise UnexpectedAnswer(f"a server of the bench is in ERROR: {row.get('fault')}")
                if row["status"] == status and row["OS-EXT-STS:task_state"] is None:
                    wanted.discard(row["id"])


async def _idle_ms_per_s(running: BenchCloud) -> float:
    """What hosts, leases and rounds cost in each second while nobody asks for anything."""
    await running.command("begin")
    await asyncio.sleep(IDLE_S)
    spent = await running.command("settle")
    return float(spent["cpu_s"]) / IDLE_S * 1000


async def moves(table: Table) -> None:
    """Milliseconds of CPU for each move and a delete, on SQLite, with one port each; what the cloud spends idle is taken off."""
    with backing("sqlite") as found:
        async with cloud(found, hosts=HOSTS) as running:
            await running.boot(SERVERS, in_flight=IN_FLIGHT)
            servers = await _servers(running)
            idle = await _idle_ms_per_s(running)
            for move in (*MOVES, None):
                await running.command("begin")
                began = asyncio.get_running_loop().time()
                await _ask(running, servers, move)
                if move is not None:
                    await _done(running, servers, move.until)
                spent = await running.command("settle")
                took_s = asyncio.get_running_loop().time() - began
                ms = (float(spent["cpu_s"]) * 1000 - idle * took_s) / len(servers)
                table.add(
                    BenchRow(
                        f"CPU of one: {move.name if move else 'delete'}",
                        ms,
                        "ms",
                        note=f"{len(servers)} of them in {took_s:.1f} s",
                    )
                )
            table.add(BenchRow("taken off: what the idle cloud spends", idle, "ms/s", note=f"{HOSTS} hosts"))
