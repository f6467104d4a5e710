"""A simulated cloud up to the moment before its plan begins: every process is started, and all know each other.

Plans have little influence on that, so those with the same settings share one start: in a process of its own each (`apart`), which
begins as a copy of the one that made the start, and ends without collecting garbage. A plan that runs alone makes its own start, with the same dice, so that the trace is the same.
"""

import asyncio
import itertools
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import msgspec

from moorage.agent.legacy_ports import PORTS_ARRIVE_BOUND
from moorage.main.config import Config
from moorage_testing.simulation.cloud import EMBEDDED, SimulatedCloud, Violation
from moorage_testing.simulation.determinism import Chance, determined
from moorage_testing.simulation.invariants import InvariantWatch
from moorage_testing.simulation.loop import Livelock, Starved, VirtualLoop
from moorage_testing.simulation.plan import SimulationPlan
from moorage_testing.simulation.restores import Restores
from moorage_testing.simulation.roles import RegionRole, people
from moorage_testing.simulation.template import template

READY_S = 60.0

_context = itertools.count(1)


class Start(msgspec.Struct, frozen=True, order=True):
    """What a plan decides of the processes that it begins with."""

    levels: tuple[int, ...]
    reclaim_s: float
    offload_s: float
    across: bool
    cross_cell: bool = False


@dataclass(frozen=True)
class StartedCloud:
    """A cloud that is ready, or has violations already."""

    cloud: SimulatedCloud
    chance: Chance

    def turn_to(self, plan: SimulationPlan) -> None:
        """From here on everything that is drawn is drawn for it."""
        seed = f"seed {plan.seed}"
        self.chance.begin(seed)
        self.cloud.draw_for(seed)
        for name, store in self.cloud.stores.items():
            store.far_s = 0.0 if name in EMBEDDED else plan.far_s
        self.cloud.evacuates = any(event.what == "evacuate" for event in plan.events)


def start_of(plan: SimulationPlan) -> Start:
    return Start(plan.levels, plan.reclaim_s, plan.offload_s, plan.across, plan.cross_cell)


@contextmanager
def begun(start: Start) -> Iterator[StartedCloud]:
    """Everything between happens in its cloud."""
    whole = template(cross_cell=start.cross_cell)
    loop = VirtualLoop()
    loop.now = whole.passed_s
    said = f"start {start.levels} {start.reclaim_s} {start.offload_s}"
    cloud = SimulatedCloud(_as_planned(whole.config, start), said, whole.config.data / f"run{next(_context)}", loop)
    try:
        with determined(loop, said, cloud.machine("world")) as chance:
            for name, content in whole.stores.items():
                cloud.stores[name].load(content)
            cloud.known = whole.known
            cloud.restores = Restores(cloud)
            cloud.watch = InvariantWatch(cloud)
            people(cloud)
            run(cloud, _ready)
            yield StartedCloud(cloud, chance)
    finally:
        cloud.leave()


def run(cloud: SimulatedCloud, story: Callable[[SimulatedCloud], Coroutine[Any, Any, None]]) -> None:
    """To its end, or to what must not happen."""
    if cloud.violations:
        return
    try:
        cloud.loop.run(story(cloud))
    except Violation:
        pass
    except (Livelock, Starved) as failure:
        cloud.violated(str(failure))


def apart(cloud: SimulatedCloud, work: Callable[[], bytes]) -> bytes:
    """Run the work in a forked process; return its result. Nothing of it stays in this process or in the cloud's
    directory.

    Raises RuntimeError when the process fails.
    """
    kept = cloud.room.with_name(f"{cloud.room.name}.kept")
    if not kept.exists() and cloud.room.exists():
        shutil.copytree(cloud.room, kept)
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        _end_after(work, theirs)
    os.close(theirs)
    with open(ours, "rb") as said:
        answer = said.read()
    _, status = os.waitpid(child, 0)
    shutil.rmtree(cloud.room, ignore_errors=True)
    if kept.exists():
        shutil.copytree(kept, cloud.room)
    if status != 0:
        raise RuntimeError(f"a simulation ended with status {os.waitstatus_to_exitcode(status)}")
    return answer


def _end_after(work: Callable[[], bytes], to: int) -> NoReturn:
    """Nothing of what the parent wants done at its own end is done here."""
    status = 1
    try:
        with open(to, "wb") as answer:
            answer.write(work())
        status = 0
    except BaseException:  # noqa: BLE001  said, and told by the status: there is nobody else here to hear of it
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _as_planned(config: Config, start: Start) -> Config:
    """The same fleet, of the protocol levels of a plan, and the same cloud with its settings."""
    known = tuple(each for each in start.levels if each <= PORTS_ARRIVE_BOUND)
    return msgspec.structs.replace(
        config,
        hosts=msgspec.structs.replace(config.hosts, levels=known),
        compute=msgspec.structs.replace(
            config.compute,
            reclaim_instance_interval=start.reclaim_s,
            shelved_offload_time=start.offload_s,
            allow_move_across_segments=start.across,
        ),
    )


async def _ready(cloud: SimulatedCloud) -> None:
    for role in cloud.roles.values():
        role.start()
    async with asyncio.timeout(READY_S):
        while not all(role.ready for role in cloud.roles.values()) or not _levels_are_known(cloud):  # noqa: ASYNC110  virtual time costs nothing
            await asyncio.sleep(0.25)


def _levels_are_known(cloud: SimulatedCloud) -> bool:
    """All processes know the levels of the hosts: no fleet changes its level in the moment before a boot."""
    levels = {plan.host: plan.level for plan in cloud.plans}
    for role in cloud.roles.values():
        if isinstance(role, RegionRole) and role.region is not None:
            world = role.region.engine.world()
            if any(int(world.level[world.slots_by_name[host]]) != level for host, level in levels.items()):
                return False
    return True
