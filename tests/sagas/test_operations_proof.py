"""Every operation, broken in every way (RULES §15).  The registry decides what is proved, so none can be forgotten."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest

from moorage.model.ids import OperationId
from moorage.operations.all import SAGAS
from moorage.operations.delete import Delete
from moorage.operations.power import EFFECTS, Power
from moorage.saga import Paper, first_lines, tell
from moorage.testing.sagas import PROVED_OPERATION, prove
from moorage.testing.small_region import SmallRegion, a_boot, a_server

BOOTED = OperationId("booted")


@pytest.fixture
async def small() -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open()
    yield region
    await region.close()


async def booted(small: SmallRegion) -> SmallRegion:
    """A region with one ACTIVE server, held by the operation that is to be proved."""
    await small.fresh(a_server(), BOOTED)
    boot = SAGAS["boot/1"]
    await tell(boot, BOOTED, a_boot(BOOTED), small.rooms, Paper(first_lines(boot), small.transact))
    await small.hand_to(PROVED_OPERATION)
    return small


def plots(small: SmallRegion) -> dict[str, tuple[Any, Callable[[], Awaitable[Any]]]]:
    """For each saga of the registry: what is asked, and the world it is told in."""
    server = msgspec.structs.replace(a_server(), operation=PROVED_OPERATION)
    return {
        "boot/1": (a_boot(PROVED_OPERATION), lambda: small.fresh(a_server(), PROVED_OPERATION)),
        "delete/1": (Delete(server, seq=2, request_id="req-delete"), lambda: booted(small)),
        "power/1": (Power(server, seq=2, verb="stop", request_id="req-stop"), lambda: booted(small)),
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SAGAS))
async def test_proved(name: str, small: SmallRegion) -> None:
    asked, new_world = plots(small)[name]
    proof = await prove(SAGAS[name], asked, new_world)
    assert proof.total > 50, proof.cases


@pytest.mark.parametrize("verb", sorted(EFFECTS))
async def test_every_power_verb_is_told(verb: Any, small: SmallRegion) -> None:
    await booted(small)
    power = SAGAS["power/1"]
    asked = Power(a_server(), seq=2, verb=verb, request_id="req-1")
    await tell(power, PROVED_OPERATION, asked, small.rooms, Paper(first_lines(power), small.transact))


def test_every_saga_has_a_plan_that_was_agreed() -> None:
    """The order of the steps is a wire format: in-flight journals name them (RULES §19)."""
    assert {name: [step.name for step in saga.steps] for name, saga in SAGAS.items()} == {
        "boot/1": ["make_ports", "claim_host", "bind_ports", "record_server", "start_guest", "await_vifs", "announce"],
        "delete/1": ["find_server", "destroy_guest", "release_ports", "mark_deleted", "release_claims"],
        "power/1": ["begin_action", "tell_host", "record_power"],
    }
