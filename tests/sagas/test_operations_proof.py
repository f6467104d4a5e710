"""Every operation, broken in every way (RULES §15).  The registry decides what is proved, so none can be forgotten."""

import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import msgspec
import pytest
from tests.helpers.proof_parameters import every_saga, matrix_part, quick_part

from moorage.model.ids import ImageId
from moorage.model.rescue import RescueSpec
from moorage.model.resources import needs_of
from moorage.model.server import Server, VmState
from moorage.operations.delete.delete import Delete
from moorage.operations.delete.soft_delete import Restore, SoftDelete
from moorage.operations.guest.crash_dump import CrashDump
from moorage.operations.guest.power import EFFECTS, Power
from moorage.operations.guest.rebuild import Rebuild
from moorage.operations.guest.rescue import Rescue, Unrescue
from moorage.operations.registry import SAGAS
from moorage.operations.shelve.shelve import Shelve, ShelveOffload
from moorage.operations.steps.sleepers import WAITING_BOOTS
from moorage.operations.unshelve_input import Unshelve
from moorage.saga import MemoryJournal, execute, first_lines
from moorage_testing.proof_parts import ProofPart
from moorage_testing.region_crossed import about_crossed, crossed
from moorage_testing.region_evacuated import evacuable, evacuable_elsewhere, evacuating, evacuating_elsewhere
from moorage_testing.region_fixture import SmallRegion, a_boot, a_server
from moorage_testing.region_moved import (
    about_moved,
    crossable,
    crossing_cells,
    live_migrating,
    live_migrating_elsewhere,
    live_movable,
    live_movable_elsewhere,
    movable,
    moved,
    resizing,
)
from moorage_testing.region_owing import owing, settling
from moorage_testing.region_prepared import PreparedRegion
from moorage_testing.region_repaired import repairing_devices, with_other_devices
from moorage_testing.region_shelved import (
    leaving_its_cell,
    moving_record,
    offloading,
    recorded_elsewhere,
    shelved,
    shelved_elsewhere,
    shelved_server,
    shelving,
    unshelving,
    unshelving_in_place,
    volumes_world,
    with_volumes,
)
from moorage_testing.region_states import (
    Card,
    attached,
    attaching,
    attaching_volume,
    booted,
    booting_from_volume,
    deleted_under_it,
    detaching,
    detaching_volume,
    extending_volume,
    imaged,
    rescued,
    snapshotting,
    snapshotting_still,
    snapshotting_volume,
    snapshotting_volumes,
    softly_deleted,
    swapping_volume,
    with_grown_volume,
    with_snapshots,
    with_still_guest,
    with_swappable_volume,
    with_volume,
    with_volumes_ready,
)
from moorage_testing.region_waiting import FullRegion, waiting_boot
from moorage_testing.saga_proof import PROVED_OPERATION, prove


def rebuilding(server: Server) -> Rebuild:
    """From another image, with another name."""
    becomes = msgspec.structs.replace(server, image=ImageId("image-2"), name="anew")
    return Rebuild(server, 2, becomes, ("image", "name"), request_id="req-rebuild", user="user-1")


def active(server: Server) -> Server:
    """As it is when it was booted."""
    return msgspec.structs.replace(server, vm_state=VmState.ACTIVE, task_state=None)


@pytest.fixture
async def small() -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open()
    yield region
    await region.close()


World: TypeAlias = Callable[[], Awaitable[Any]]


def scenarios(small: SmallRegion) -> dict[str, tuple[msgspec.Struct | World, World]]:
    """For each saga of the registry: what is asked, or who asks it of a world, and the world it is told in."""
    server = msgspec.structs.replace(a_server(), operation=PROVED_OPERATION)
    return {
        "boot/1": (a_boot(PROVED_OPERATION), lambda: small.fresh(a_server(), PROVED_OPERATION)),
        "delete/1": (Delete(server, seq=2, request_id="req-delete"), lambda: booted(small)),
        "attach_interface/1": (attaching("made"), lambda: booted(small)),
        "attach_interface/2": (attaching("made"), lambda: booted(small)),
        "detach_interface/1": (lambda: detaching(small, "made"), lambda: attached(small, "made")),
        "boot/2": (booting_from_volume(), lambda: with_volumes_ready(small)),
        "boot/3": (waiting_boot(a_boot(PROVED_OPERATION)), lambda: small.fresh(a_server(), PROVED_OPERATION)),
        "boot/4": (waiting_boot(booting_from_volume()), lambda: with_volumes_ready(small)),
        "delete/2": (Delete(server, seq=3, request_id="req-delete"), lambda: with_volume(small, goes=True)),
        "attach_volume/1": (attaching_volume(), lambda: booted(small)),
        "extend_volume/1": (extending_volume(), lambda: with_grown_volume(small)),
        "assisted_snapshot/1": (snapshotting_volume(), lambda: with_volume(small)),
        "detach_volume/1": (lambda: detaching_volume(small), lambda: with_volume(small)),
        "swap_volume/1": (lambda: swapping_volume(small), lambda: with_volume(small)),
        "repair_devices/1": (repairing_devices(), lambda: with_other_devices(small)),
        "power/1": (Power(server, seq=2, verb="stop", request_id="req-stop"), lambda: booted(small)),
        "rebuild/1": (rebuilding(server), lambda: booted(small)),
        "rescue/1": (Rescue(active(server), 2, RescueSpec("image-2"), "req-rescue"), lambda: booted(small)),
        "unrescue/1": (
            Unrescue(msgspec.structs.replace(server, rescue=RescueSpec("image-2")), 3, "req-unrescue"),
            lambda: rescued(small),
        ),
        "soft_delete/1": (SoftDelete(active(server), 2, "req-soft"), lambda: booted(small)),
        "restore/1": (Restore(active(server), 3, request_id="req-restore"), lambda: softly_deleted(small)),
        "crash_dump/1": (CrashDump(server, seq=2, request_id="req-dump"), lambda: booted(small)),
        "snapshot/1": (snapshotting(), lambda: imaged(small)),
        "snapshot_volumes/1": (snapshotting_volumes(), lambda: with_snapshots(small)),
        "snapshot_volumes/2": (snapshotting_still(), lambda: with_still_guest(small)),
        "shelve/1": (shelving(offload=True), lambda: imaged(small)),
        "shelve_offload/1": (offloading(), lambda: shelved(small, offload=False)),
        "unshelve/1": (unshelving(), lambda: shelved(small, offload=True)),
        "unshelve/2": (unshelving(across=True), lambda: shelved(small, offload=True, routed=True, across=True)),
        "unshelve_in_place/1": (unshelving_in_place(), lambda: shelved(small, offload=False)),
        "resize/1": (lambda: resizing(small), lambda: movable(small)),
        "confirm_resize/1": (lambda: about_moved(small, "confirm_resize/1"), lambda: moved(small)),
        "revert_resize/1": (lambda: about_moved(small, "revert_resize/1"), lambda: moved(small)),
        "delete/3": (lambda: about_moved(small, "delete/3"), lambda: moved(small)),
        "delete/4": (lambda: about_moved(small, "delete/4", volumes=True), lambda: moved(small, volumes=True)),
        "live_migrate/1": (lambda: live_migrating(small), lambda: live_movable(small)),
        "evacuate/1": (lambda: evacuating(small), lambda: evacuable(small)),
        "evacuate/2": (
            lambda: evacuating(small, routed=True, across=True),
            lambda: evacuable(small, routed=True, across=True),
        ),
        "confirm_resize/2": (lambda: about_crossed(small, "confirm_resize/2"), lambda: crossed(small)),
        "revert_resize/2": (lambda: about_crossed(small, "revert_resize/2"), lambda: crossed(small)),
        "delete/5": (lambda: about_crossed(small, "delete/5"), lambda: crossed(small)),
        "resize/2": (lambda: crossing_cells(small), lambda: crossable(small)),
        "move_record/1": (moving_record(), lambda: recorded_elsewhere(small)),
        "unshelve/3": (leaving_its_cell(), lambda: shelved_elsewhere(small)),
        "live_migrate/2": (lambda: live_migrating_elsewhere(small), lambda: live_movable_elsewhere(small)),
        "evacuate/3": (lambda: evacuating_elsewhere(small), lambda: evacuable_elsewhere(small)),
        "settle_debt/1": (lambda: settling(small), lambda: owing(small)),
    }


async def scenario(small: SmallRegion, name: str) -> tuple[Any, World]:
    """The one saga's: another's world would leave its wires behind."""
    asked, new_world = scenarios(small)[name]
    return asked if isinstance(asked, msgspec.Struct) else await asked(), new_world


SCENARIOS = {
    "resize/2": r"executed|(reserve_volumes|start_guest) failing once|(stop_guest|copy_record|show_there) failing",
    "unshelve/3": r"executed|start_guest failing once|(begin_copy|copy_record|show_there) failing",
    "evacuate/3": r"executed|start_guest failing once|(begin_copy|copy_record|show_there) failing",
    "live_migrate/2": r"executed|prepare_guest failing once|switch_guest failing",
}
"""Of a saga that has most of its steps from another one, in which they are proved whole: the ways in which its own may go."""


@every_saga(SAGAS, {"delete/2", "unshelve/1", "boot/4", *SCENARIOS})
async def test_proved(name: str, part: ProofPart, small: SmallRegion) -> None:
    asked, new_world = await scenario(small, name)
    part = dataclasses.replace(part, scenarios=SCENARIOS.get(name, part.scenarios))
    world = FullRegion(small, new_world) if name in WAITING_BOOTS else PreparedRegion(small, new_world)
    await prove(SAGAS[name], asked, world, part)


@matrix_part
@pytest.mark.parametrize("name", WAITING_BOOTS)
async def test_a_boot_sleeps_after_an_attempt_that_failed(name: str, part: ProofPart, small: SmallRegion) -> None:
    """Nothing of the attempt is held meanwhile."""
    asked, new_world = await scenario(small, name)
    world = FullRegion(small, new_world, after_failure=True)
    await prove(SAGAS[name], asked, world, dataclasses.replace(part, scenarios=r".* failing once"))
    assert world.world.woken_times


@matrix_part
async def test_a_volume_that_the_volume_service_moves_keeps_its_id(part: ProofPart, small: SmallRegion) -> None:
    asked = await swapping_volume(small, migrating=True)
    await prove(
        SAGAS["swap_volume/1"], asked, PreparedRegion(small, lambda: with_swappable_volume(small, migrating=True)), part
    )


@matrix_part
@pytest.mark.parametrize("saga", ["attach_interface/2", "detach_interface/1"])
@pytest.mark.parametrize("card", ["users", "routed"])
async def test_every_kind_of_port_is_attached_and_detached(
    card: Card, saga: str, part: ProofPart, small: SmallRegion
) -> None:
    if saga == "attach_interface/2":
        await prove(SAGAS[saga], attaching(card), PreparedRegion(small, lambda: booted(small)), part)
    else:
        await prove(
            SAGAS[saga], await detaching(small, card), PreparedRegion(small, lambda: attached(small, card)), part
        )


@matrix_part
@pytest.mark.parametrize(("card", "guarantees"), [("routed", False), ("made", True)])
async def test_a_port_deleted_in_the_network_service_is_forgotten(
    card: Card, guarantees: bool, part: ProofPart, small: SmallRegion
) -> None:
    detach = SAGAS["detach_interface/1"]
    asked = await detaching(small, card, gone=True, guarantees=guarantees)
    await prove(
        detach, asked, PreparedRegion(small, lambda: deleted_under_it(small, card, guarantees=guarantees)), part
    )


@matrix_part
async def test_a_shelved_server_is_deleted_with_its_image(part: ProofPart, small: SmallRegion) -> None:
    asked = Delete(shelved_server(), seq=4, request_id="req-delete")
    await prove(SAGAS["delete/4"], asked, PreparedRegion(small, lambda: shelved(small, offload=True)), part)


@matrix_part
@pytest.mark.parametrize("state", ["stopped", "paused"])
async def test_a_paused_server_is_shelved_and_stays_on_its_host(
    state: str, part: ProofPart, small: SmallRegion
) -> None:
    asked = shelving(offload=False)
    asked = msgspec.structs.replace(asked, server=msgspec.structs.replace(asked.server, vm_state=VmState(state)))
    await prove(SAGAS["shelve/1"], asked, PreparedRegion(small, lambda: imaged(small, VmState(state))), part)


@matrix_part
@pytest.mark.parametrize("saga", ["shelve/1", "shelve_offload/1", "unshelve/1"])
async def test_volumes_stay_reserved_while_their_server_is_shelved(
    saga: str, part: ProofPart, small: SmallRegion
) -> None:
    """No attachment is left behind, none is lost, and no volume is exported to two hosts."""
    off = saga == "unshelve/1"
    server = await with_volumes(small, shelved=saga != "shelve/1", offload=off)
    asked: Any = {
        "shelve/1": Shelve(server, 3, None, True, "req-shelve", "user-1"),
        "shelve_offload/1": ShelveOffload(server, 3, "req-offload", "user-1"),
        "unshelve/1": Unshelve(server, 3, None, needs=needs_of(vcpus=1, memory_mb=64, disk_gb=0)),
    }[saga]
    await prove(
        SAGAS[saga],
        asked,
        PreparedRegion(small, lambda: volumes_world(small, shelved=saga != "shelve/1", offload=off)),
        part,
    )


@matrix_part
async def test_a_root_volume_is_written_anew(part: ProofPart, small: SmallRegion) -> None:
    server = await with_volumes(small)
    asked = msgspec.structs.replace(rebuilding(server), becomes=server, fields=(), reimage="image-2")
    await prove(SAGAS["rebuild/1"], asked, PreparedRegion(small, lambda: volumes_world(small)), part)


@matrix_part
@pytest.mark.parametrize(
    ("saga", "routed", "guarantees"),
    [("shelve/1", True, False), ("shelve/1", False, True), ("unshelve/1", False, True)],
)
async def test_addresses_and_guarantees_of_shelved_servers(
    saga: str, routed: bool, guarantees: bool, part: ProofPart, small: SmallRegion
) -> None:
    """Addresses stay claimed while a server is on no host; guarantees are given back, and claimed anew."""
    if saga == "shelve/1":
        asked: Any = shelving(offload=True)
        await prove(
            SAGAS[saga], asked, PreparedRegion(small, lambda: imaged(small, routed=routed, guarantees=guarantees)), part
        )
    else:
        new_world = lambda: shelved(small, offload=True, routed=routed, guarantees=guarantees)  # noqa: E731
        await prove(SAGAS[saga], unshelving(), new_world, part)


@quick_part
async def test_a_server_is_unshelved_on_its_own_segment(part: ProofPart, small: SmallRegion) -> None:
    """Every step of it is the one that is proved of a server that leaves its segment."""
    await prove(
        SAGAS["unshelve/1"],
        unshelving(),
        PreparedRegion(small, lambda: shelved(small, offload=True, routed=True)),
        part,
    )


@matrix_part
@pytest.mark.parametrize("name", ["boot/1", "delete/4"])
async def test_a_server_with_guaranteed_ports_is_proved(name: str, part: ProofPart, small: SmallRegion) -> None:
    """Both forms of a request: the claim, the bindings' allocation, and everything given back."""
    asked, _ = await scenario(small, "boot/1" if name == "boot/1" else "delete/1")  # of a server that was booted

    async def new_world() -> SmallRegion:
        if name == "boot/1":
            return await small.fresh(a_server(), PROVED_OPERATION, guarantees=True)
        return await booted(small, guarantees=True)

    await prove(SAGAS[name], asked, PreparedRegion(small, new_world), part)


@matrix_part
@pytest.mark.parametrize("saga", ["attach_interface/2", "detach_interface/1"])
@pytest.mark.parametrize("card", ["made", "users"])
async def test_a_guaranteed_port_is_attached_and_detached(
    card: Card, saga: str, part: ProofPart, small: SmallRegion
) -> None:
    if saga == "attach_interface/2":
        await prove(SAGAS[saga], attaching(card), PreparedRegion(small, lambda: booted(small, guarantees=True)), part)
    else:
        asked = await detaching(small, card, guarantees=True)
        await prove(SAGAS[saga], asked, PreparedRegion(small, lambda: attached(small, card, guarantees=True)), part)


async def test_what_a_booted_server_with_guaranteed_ports_holds(small: SmallRegion) -> None:
    await booted(small, guarantees=True)
    held = (await small.held())["guarantees"]
    assert [amount for _, amount in held["claimed"]] == [300, 3]
    assert held["as named"]


@pytest.mark.parametrize("verb", sorted(EFFECTS))
async def test_every_power_verb_is_executed(verb: Any, small: SmallRegion) -> None:
    await booted(small)
    power = SAGAS["power/1"]
    asked = Power(a_server(), seq=2, verb=verb, request_id="req-1")
    await execute(power, PROVED_OPERATION, asked, small.context, MemoryJournal(first_lines(power), small.transact))


async def test_every_saga_is_proved(small: SmallRegion) -> None:
    assert set(scenarios(small)) == set(SAGAS)
