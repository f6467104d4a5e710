"""What it costs that the conductor makes and binds ports and no longer the hosts (S0.21): CPU of each role per boot, both ways."""

import asyncio
import tempfile
from collections import defaultdict
from pathlib import Path

from moorage.main.local_cluster.cluster import TrialSet
from moorage_testing.api_user import Person
from moorage_testing.bench.machine import cpu_s_of_tree
from moorage_testing.bench.table import BenchRow, Table

BOOTS = 100
WARM_BOOTS = 10
IN_FLIGHT = 16
LEVELS = (1, 3)
"""Of all agents: those of level 1 make and bind ports themselves, to those of level 3 they arrive bound."""
SETTINGS = """
[quota]
instances = -1
cores = -1
ram = -1
"""


async def shift(table: Table) -> None:
    """A set of each level in turn; processes are distinguished by their role."""
    spent: dict[int, dict[str, float]] = {}
    for level in LEVELS:
        with tempfile.TemporaryDirectory(prefix="moorage-shift-") as room:
            trial = TrialSet(Path(room), apis=1, conductors=1, level=level, settings=SETTINGS, durability="power")
            try:
                await asyncio.to_thread(trial.start)
                spent[level] = await _boots(trial)
            finally:
                await asyncio.to_thread(trial.stop)
    for role in ("conductor", "agent", "embedded", "api"):
        before, after = (spent[level][role] for level in LEVELS)
        table.add(
            BenchRow(
                f"CPU per boot, {role}, ports arrive bound", after, "ms", note=f"made by the hosts: {before:.1f} ms"
            )
        )


async def _boots(trial: TrialSet) -> dict[str, float]:
    """Milliseconds of CPU per boot, of all processes of a role together."""
    async with Person(trial.config, urls=trial.api_urls()) as admin:
        await _boot(admin, WARM_BOOTS)
        before = cpu_s_of_roles(trial)
        await _boot(admin, BOOTS)
        after = cpu_s_of_roles(trial)
    return {role: (after[role] - before[role]) / BOOTS * 1000 for role in after}


async def _boot(admin: Person, count: int) -> None:
    turns = asyncio.Semaphore(IN_FLIGHT)

    async def one(number: int) -> None:
        async with turns:
            await admin.active(f"shift-{number}")

    await asyncio.gather(*(one(number) for number in range(count)))


def cpu_s_of_roles(trial: TrialSet) -> dict[str, float]:
    """CPU seconds of all processes of each role since they began."""
    found: dict[str, float] = defaultdict(float)
    for name, process in trial.processes.items():
        found[name.partition("-")[0]] += cpu_s_of_tree(process.pid)
    return found
