"""Somebody deletes what a server uses at another service, at any moment of any operation: the operation ends all the same.

A thing that is gone is an answer and no outage. So neither an undo nor a step past the point of no return may wait for it
without end: what was to be released is released, and what cannot be used any more is left out or ends the operation.
"""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.sagas.test_operations_proof import scenario, small

from moorage.operations.registry import SAGAS
from moorage.operations.steps.sleepers import WAITING_BOOTS
from moorage_testing.case_run import CaseRun, ProofOutcome
from moorage_testing.fault_points import StepFault, StepMoment
from moorage_testing.planted_problems import outage, refusal
from moorage_testing.region_fixture import SmallRegion
from moorage_testing.saga_proof import PROVED_OPERATION

__all__ = ["small"]


def volumes_go(world: Any) -> bool:
    """Volumes with their attachments."""
    service = world.volumes
    had = bool(service.attachments)
    for each in (service.volumes, service.attachments, service.hosts):
        each.clear()
    return had


def attachments_go(world: Any) -> bool:
    """Attachments alone: their volumes are available then."""
    service = world.volumes
    had = bool(service.attachments)
    for id, each in list(service.volumes.items()):
        service.volumes[id] = msgspec.structs.replace(each, status="available")
    service.attachments.clear()
    service.hosts.clear()
    return had


def ports_go(world: Any) -> bool:
    had = bool(world.network.ports)
    world.network.ports.clear()
    return had


def images_go(world: Any) -> bool:
    had = bool(world.images.whole)
    world.images.whole.clear()
    return had


KINDS: dict[str, Callable[[Any], bool]] = {
    each.__name__.removesuffix("_go"): each for each in (volumes_go, attachments_go, ports_go, images_go)
}


LEFT_TO_A_PERSON = "is gone, so the guest that was made is kept"
"""An unshelve is undone, and its image, which was all that was left of the disk, is gone: the guest has the only copy."""


class Vanishing(StepFault):
    """At one moment, once, something is deleted; no step fails because of that alone."""

    def __init__(self, moment: StepMoment, go: Callable[[Any], bool]) -> None:
        super().__init__(moment.step, moment.when, outage)
        self.moment, self.go = moment, go
        self.world: Any = None
        self.had = False

    def spring(self, moment: StepMoment) -> None:
        if moment == self.moment and not self.fired:
            self.fired += 1
            self.had = self.go(self.world)


async def tried(small: SmallRegion, name: str, faults: list[StepFault], vanishing: Vanishing | None = None) -> Any:
    """How it ended, and the moments that it passed."""
    asked, new_world = await scenario(small, name)
    world = await new_world()
    run: CaseRun[Any] = CaseRun(
        SAGAS[name], PROVED_OPERATION, asked, world, [*faults, *filter(None, [vanishing])], False
    )
    if vanishing is not None:
        vanishing.world = world
    outcome: ProofOutcome = await run.execute()
    return outcome, run.recorder.passed


@pytest.mark.matrix
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", sorted(set(SAGAS) - set(WAITING_BOOTS)))
async def test_an_operation_ends_although_things_vanish(name: str, kind: str, small: SmallRegion) -> None:
    saga = SAGAS[name]
    no_return = next((at for at, each in enumerate(saga.steps) if each.point_of_no_return), len(saga.steps) - 1)
    await vanishes(small, name, kind, None)
    if not saga.forward_only:
        await vanishes(small, name, kind, saga.steps[no_return].name)


async def vanishes(small: SmallRegion, name: str, kind: str, failing: str | None) -> None:
    """At each step forward, or at each undo from the step that fails."""
    faults = [] if failing is None else [StepFault(failing, "before", refusal)]
    _, moments = await tried(small, name, faults)
    stuck: list[str] = []
    for moment in sorted(moments):
        if moment.when == "before" and (failing is None or moment.phase == "undo"):
            vanishing = Vanishing(moment, KINDS[kind])
            outcome, _ = await tried(small, name, faults, vanishing)
            if vanishing.had and outcome.stuck is not None and LEFT_TO_A_PERSON not in str(outcome.stuck):
                stuck.append(f"{failing or 'executed'}, before {moment.phase} of {moment.step}: {outcome.stuck}")
    assert stuck == []
