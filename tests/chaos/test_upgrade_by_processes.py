"""Agents as separate processes, killed with -9 and started again at the next level, while two APIs accept boots (S0.22)."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from moorage.main.hosts import planned_hosts
from moorage.main.local_cluster.cluster import TrialSet
from moorage.main.local_cluster.nats import nats_server_program
from moorage.main.local_cluster.postgres import find_binaries
from moorage_testing.api_user import Person
from moorage_testing.leak_audit import nothing_leaked
from moorage_testing.logins import CHEAP_LOGINS_SETTINGS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.postgres,
    pytest.mark.skipif(find_binaries() is None or nats_server_program() is None, reason="no PostgreSQL or NATS here"),
]
SETTINGS = f"\n{CHEAP_LOGINS_SETTINGS}[agent]\nlevel = 1\n\n[quota]\ninstances = -1\ncores = -1\nram = -1\n"


@pytest.fixture
async def trial(tmp_path: Path) -> AsyncIterator[TrialSet]:
    trial = TrialSet(tmp_path, hosts=2, conductors=1, settings=SETTINGS, durability="none")
    await asyncio.to_thread(trial.start)
    yield trial
    await asyncio.to_thread(trial.stop)


def restart_at(trial: TrialSet, host: str, level: int) -> None:
    plan = next(each for each in planned_hosts(trial.config) if each.host == host)
    trial.kill(f"agent-{host}")
    wires = ",".join(plan.physical_networks)
    words = ("--host", host, "--cell", plan.cell, "--physical-networks", wires, "--level", str(level))
    trial.run(f"agent-{host}", "agent", *words)


async def gates_of(trial: TrialSet) -> list[dict[str, Any]]:
    """What each API says."""
    found: list[dict[str, Any]] = []
    for url in trial.api_urls():
        async with Person(trial.config, urls=[url]) as one:
            found.append((await one.compute("GET", "/ext/gates")).json()["gates"])
    return found


async def until_levels(trial: TrialSet, *levels: int) -> list[tuple[bool, ...]]:
    """Every API has heard of them; whether each gate is open there."""
    wanted = {str(level): levels.count(level) for level in levels}
    async with asyncio.timeout(180.0):
        while any(told["levels"] != wanted for told in await gates_of(trial)):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    return [tuple(gate["open"] for gate in told["gates"]) for told in await gates_of(trial)]


async def test_agents_are_upgraded_one_by_one(trial: TrialSet) -> None:
    async with Person(trial.config, urls=trial.api_urls()) as admin:
        assert await until_levels(trial, 1, 1) == [(False, False)] * 2
        servers: list[str] = []
        levels = {"host1": 1, "host2": 1}
        for host, level in (("host1", 2), ("host2", 2), ("host1", 3), ("host2", 3)):
            servers += await asyncio.gather(*(admin.boot(f"{host}-to-{level}-{n}") for n in range(4)))
            await asyncio.to_thread(restart_at, trial, host, level)
            levels[host] = level
            lowest = min(levels.values())
            assert await until_levels(trial, *sorted(levels.values())) == [(lowest >= 2, lowest == 3)] * 2
        found = await asyncio.gather(*(admin.settled(each) for each in servers))
        assert [each["fault"] for each in found if each["status"] != "ACTIVE"] == []
        for each in found:
            (port,) = (await admin.network("GET", "/ports", device_id=each["id"])).json()["ports"]
            assert port["binding:host_id"] == each["OS-EXT-SRV-ATTR:host"]
        await asyncio.gather(*(admin.gone(each) for each in servers))
        await nothing_leaked(trial.config, admin)
