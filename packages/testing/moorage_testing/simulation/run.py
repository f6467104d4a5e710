"""One simulation from its plan to its verdict."""

import asyncio
import gc
import itertools
import logging
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import msgspec

from moorage.conductor.reconcilers import orphan_images
from moorage.main import reconcilers
from moorage_testing.leak_audit_stores import HALF_MADE, MOVED, NOT_SHELVED
from moorage_testing.simulation.cells import watch_lists
from moorage_testing.simulation.cloud import SimulatedCloud
from moorage_testing.simulation.cross_cell_scenes import across_cells
from moorage_testing.simulation.guest_duties import written_copies, wrong_chains, wrong_guests
from moorage_testing.simulation.guest_orders import every_order
from moorage_testing.simulation.guest_scenes import scene
from moorage_testing.simulation.healing import let_debtors_be_up
from moorage_testing.simulation.known_exceptions import lost_images, lost_interfaces, without_excuse
from moorage_testing.simulation.live_orders import heal
from moorage_testing.simulation.lost_answers import an_answer_of_a_host_is_lost
from moorage_testing.simulation.operator_orders import operators_act
from moorage_testing.simulation.plan import Event, SimulationPlan, every_kind, is_fault
from moorage_testing.simulation.progress import watch_conductors, watch_guests, watch_orders, watch_volumes
from moorage_testing.simulation.restores import decide_stuck, tidy_up
from moorage_testing.simulation.service_orders import at_volume_service
from moorage_testing.simulation.service_scenes import additional_scene
from moorage_testing.simulation.shared_scenes import servers_share_a_volume
from moorage_testing.simulation.starts import StartedCloud, apart, begun, run, start_of
from moorage_testing.simulation.template import template

REST_FIRST_S = 2.0
REST_MOST_S = 30.0
SETTLED_S = 450.0
"""How long after the last fault everything must have come to rest."""
IMAGES_SETTLED_S = SETTLED_S + orphan_images.GRACE_S + 2 * reconcilers.IMAGES_EVERY_S
"""The same for images that nobody needs: they are kept for a while, because they may still be written or read."""

AT_LAST = (without_excuse, lost_interfaces, lost_images, wrong_guests, wrong_chains, written_copies)
"""Checks that are made once, when nothing else is wrong."""

SETTLE_AFTER = 2
"""Simulations; by then caches are filled."""
WARMED_BY = 4
"""Of many: so many are played in this process, and what they compile and look up stays known to those that begin as its copies."""


class SimulationOutcome(msgspec.Struct, frozen=True):
    """What came of a plan."""

    plan: SimulationPlan
    digest: str
    """Of everything that happened: the same plan gives the same."""
    violations: tuple[str, ...]
    lines: tuple[str, ...]
    """What happened, for people."""
    virtual_s: float
    events: int
    counts: dict[str, int] = {}

    @property
    def failed(self) -> bool:
        return bool(self.violations)


def simulate(plan: SimulationPlan) -> SimulationOutcome:
    """Run it; the same plan gives the same outcome, in every interpreter that was started with PYTHONHASHSEED=0."""
    template(cross_cell=plan.cross_cell)
    _settle_memory()
    with _quietly():
        return _simulated(plan)  # nothing of the cloud is left when the memory is looked through


def simulate_all(plans: Iterable[SimulationPlan]) -> Iterator[SimulationOutcome]:
    """The same for many, in another order: those with the same start are started together."""
    left = sorted(plans, key=start_of)
    for plan in left[:WARMED_BY]:
        yield simulate(plan)
    for start, alike in itertools.groupby(left[WARMED_BY:], key=start_of):
        with _quietly(), begun(start) as ready:
            for plan in alike:
                said = apart(ready.cloud, partial(_packed, ready, plan))
                yield msgspec.msgpack.decode(said, type=SimulationOutcome)


def _simulated(plan: SimulationPlan) -> SimulationOutcome:
    with begun(start_of(plan)) as ready:
        return _played(ready, plan)


def _packed(ready: StartedCloud, plan: SimulationPlan) -> bytes:
    return msgspec.msgpack.encode(_played(ready, plan))


def _played(ready: StartedCloud, plan: SimulationPlan) -> SimulationOutcome:
    cloud = ready.cloud
    ready.turn_to(plan)
    run(cloud, lambda cloud: _run_plan(cloud, plan))
    return SimulationOutcome(
        plan,
        cloud.trace.digest,
        tuple(cloud.violations),
        tuple(cloud.trace.lines),
        cloud.loop.now - template(cross_cell=plan.cross_cell).passed_s,
        cloud.loop.events,
        dict(cloud.trace.counts),
    )


_settled: list[bool] = []


def _settle_memory() -> None:
    """What every simulation shares stays: each collects garbage among its own objects only."""
    if len(_settled) < SETTLE_AFTER:
        _settled.append(True)
        gc.collect()
        gc.freeze()


async def _run_plan(cloud: SimulatedCloud, plan: SimulationPlan) -> None:
    began = cloud.loop.now
    cloud.trace.note("plan", f"the cloud is ready; {len(plan.events)} events in {plan.span_s} s")
    kinds = every_kind()
    watchers = (
        watch_conductors,
        watch_guests,
        watch_volumes,
        watch_orders,
        *((watch_lists,) if plan.cross_cell else ()),
    )
    watching = [asyncio.ensure_future(each(cloud)) for each in watchers]
    tasks: list[asyncio.Task[None]] = []
    for event in plan.events:
        await asyncio.sleep(max(0.0, began + event.at_s - cloud.loop.now))
        tasks.append(asyncio.ensure_future(kinds[event.what].carry_out(cloud, event.args)))
    await asyncio.sleep(max(0.0, began + plan.span_s - cloud.loop.now))
    orders_left = [task for task, event in zip(tasks, plan.events, strict=True) if not is_fault(event.what)]
    for task, event in zip(tasks, plan.events, strict=True):
        if is_fault(event.what):
            task.cancel()
    heal(cloud)
    cloud.trace.note("plan", "all is healed")
    if orders_left:
        await asyncio.wait(orders_left)
    if cloud.work is not None:
        await asyncio.wait([cloud.work])
        cloud.work.result()
    await _rest(cloud, plan)
    for each in watching:
        each.cancel()
    for task in tasks:
        if task.done() and not task.cancelled() and (failure := task.exception()) is not None:
            raise failure


async def _rest(cloud: SimulatedCloud, plan: SimulationPlan) -> None:
    """Wait until all is as it must be."""
    began, pause_s, tidied = cloud.loop.now, REST_FIRST_S, not cloud.restores.done
    while True:
        await asyncio.sleep(pause_s)
        await let_debtors_be_up(cloud)
        await decide_stuck(cloud)
        if not tidied and not cloud.watch.unended():
            tidied = await tidy_up(cloud)
            wrong = ["what was changed since the backup is not deleted yet"]
        else:
            wrong = await cloud.watch.wrong()
        if not wrong:
            for each in [each for look in AT_LAST for each in await look(cloud, plan)]:
                cloud.violated(each)
            cloud.trace.note("plan", "all is as it must be")
            return
        only_images = all(any(why in each for why in (HALF_MADE, NOT_SHELVED, MOVED)) for each in wrong)
        if cloud.loop.now - began > (IMAGES_SETTLED_S if only_images else SETTLED_S):
            for each in wrong:
                cloud.violated(each)
            return
        pause_s = min(pause_s * 1.5, REST_MOST_S)


@contextmanager
def _quietly() -> Iterator[None]:
    """What the product logs under faults is not for the screen; what is dropped with a dead process says nothing."""
    hook, level = sys.unraisablehook, logging.root.manager.disable
    collecting = gc.isenabled()
    gc.disable()
    sys.unraisablehook = lambda _: None
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                yield
            finally:
                gc.collect()
    finally:
        sys.unraisablehook = hook
        logging.disable(level)
        if collecting:
            gc.enable()


def summed(outcomes: list[SimulationOutcome]) -> Counter[str]:
    """How often each kind of event was in the plans that ran."""
    return Counter(event.what for each in outcomes for event in each.plan.events)


__all__ = [
    "Event",
    "SimulationOutcome",
    "SimulationPlan",
    "across_cells",
    "additional_scene",
    "an_answer_of_a_host_is_lost",
    "at_volume_service",
    "every_order",
    "operators_act",
    "scene",
    "servers_share_a_volume",
    "simulate",
    "simulate_all",
    "summed",
]
