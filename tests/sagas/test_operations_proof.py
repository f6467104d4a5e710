"""Every operation, broken in every way (RULES §15).  The registry decides what is proved, so none can be forgotten."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest
from parts import every_part, matrix_part

from moorage.operations.all import SAGAS
from moorage.operations.delete import Delete
from moorage.operations.power import EFFECTS, Power
from moorage.saga import Paper, first_lines, tell
from moorage.testing.sagas import PROVED_OPERATION, Part, prove
from moorage.testing.small_region import SmallRegion, a_boot, a_server
from moorage.testing.small_stories import Card, attached, attaching, booted, deleted_under_it, detaching


@pytest.fixture
async def small() -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open()
    yield region
    await region.close()


async def plots(small: SmallRegion) -> dict[str, tuple[Any, Callable[[], Awaitable[Any]]]]:
    """For each saga of the registry: what is asked, and the world it is told in."""
    server = msgspec.structs.replace(a_server(), operation=PROVED_OPERATION)
    return {
        "boot/1": (a_boot(PROVED_OPERATION), lambda: small.fresh(a_server(), PROVED_OPERATION)),
        "delete/1": (Delete(server, seq=2, request_id="req-delete"), lambda: booted(small)),
        "attach_interface/1": (attaching("made"), lambda: booted(small)),
        "detach_interface/1": (await detaching(small, "made"), lambda: attached(small, "made")),
        "power/1": (Power(server, seq=2, verb="stop", request_id="req-stop"), lambda: booted(small)),
    }


@every_part
@pytest.mark.parametrize("name", sorted(SAGAS))
async def test_proved(name: str, part: Part, small: SmallRegion) -> None:
    asked, new_world = (await plots(small))[name]
    await prove(SAGAS[name], asked, new_world, part)


@matrix_part
@pytest.mark.parametrize("saga", ["attach_interface/1", "detach_interface/1"])
@pytest.mark.parametrize("card", ["users", "routed"])
async def test_every_kind_of_port_is_attached_and_detached(
    card: Card, saga: str, part: Part, small: SmallRegion
) -> None:
    if saga == "attach_interface/1":
        await prove(SAGAS[saga], attaching(card), lambda: booted(small), part)
    else:
        await prove(SAGAS[saga], await detaching(small, card), lambda: attached(small, card), part)


@matrix_part
@pytest.mark.parametrize(("card", "guarantees"), [("routed", False), ("made", True)])
async def test_a_port_deleted_in_the_network_service_is_forgotten(
    card: Card, guarantees: bool, part: Part, small: SmallRegion
) -> None:
    detach = SAGAS["detach_interface/1"]
    asked = await detaching(small, card, gone=True, guarantees=guarantees)
    await prove(detach, asked, lambda: deleted_under_it(small, card, guarantees=guarantees), part)


@matrix_part
@pytest.mark.parametrize("name", ["boot/1", "delete/1"])
async def test_a_server_with_guaranteed_ports_is_proved(name: str, part: Part, small: SmallRegion) -> None:
    """Both forms of a request: the claim, the bindings' allocation, and everything given back."""
    asked, _ = (await plots(small))[name]

    async def new_world() -> SmallRegion:
        if name == "boot/1":
            return await small.fresh(a_server(), PROVED_OPERATION, guarantees=True)
        return await booted(small, guarantees=True)

    await prove(SAGAS[name], asked, new_world, part)


@matrix_part
@pytest.mark.parametrize("saga", ["attach_interface/1", "detach_interface/1"])
@pytest.mark.parametrize("card", ["made", "users"])
async def test_a_guaranteed_port_is_attached_and_detached(
    card: Card, saga: str, part: Part, small: SmallRegion
) -> None:
    if saga == "attach_interface/1":
        await prove(SAGAS[saga], attaching(card), lambda: booted(small, guarantees=True), part)
    else:
        asked = await detaching(small, card, guarantees=True)
        await prove(SAGAS[saga], asked, lambda: attached(small, card, guarantees=True), part)


async def test_what_a_booted_server_with_guaranteed_ports_holds(small: SmallRegion) -> None:
    await booted(small, guarantees=True)
    held = (await small.held())["guarantees"]
    assert [amount for _, amount in held["claimed"]] == [300, 3]
    assert held["as named"]


@pytest.mark.parametrize("verb", sorted(EFFECTS))
async def test_every_power_verb_is_told(verb: Any, small: SmallRegion) -> None:
    await booted(small)
    power = SAGAS["power/1"]
    asked = Power(a_server(), seq=2, verb=verb, request_id="req-1")
    await tell(power, PROVED_OPERATION, asked, small.rooms, Paper(first_lines(power), small.transact))


async def test_every_saga_is_proved(small: SmallRegion) -> None:
    assert set(await plots(small)) == set(SAGAS)


def test_every_saga_has_a_plan_that_was_agreed() -> None:
    """The order of the steps is a wire format: in-flight journals name them (RULES §19)."""
    assert {name: [step.name for step in saga.steps] for name, saga in SAGAS.items()} == {
        "boot/1": ["make_ports", "claim_host", "bind_ports", "record_server", "start_guest", "await_vifs", "announce"],
        "delete/1": ["find_server", "destroy_guest", "release_ports", "mark_deleted", "release_claims"],
        "attach_interface/1": ["begin_action", "make_port", "claim_more", "bind_port", "plug", "record_nic"],
        "detach_interface/1": ["begin_action", "unplug", "let_port_go", "forget_nic", "give_back"],
        "power/1": ["begin_action", "tell_host", "record_power"],
    }
