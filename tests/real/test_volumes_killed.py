"""Sagas of volumes whose executor dies after each step, with a real Cinder: the next one completes or undoes them.

All that Cinder holds is compared, as in the proofs (`tests/sagas`): volumes and their states, attachments, snapshots, and what its
back end exports.  Reservations are attachments of no host.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest
from tests.helpers.real_cinder_region import (
    OTHER_IMAGE,
    CinderRegion,
    cinder_region,
    with_real_grown_volume,
    with_real_snapshots,
    with_real_volumes_ready,
)

from moorage.model.resources import needs_of
from moorage.model.server import Server
from moorage.operations.delete.delete import Delete
from moorage.operations.guest.rebuild import Rebuild
from moorage.operations.registry import SAGAS
from moorage.operations.shelve.shelve import Shelve, ShelveOffload
from moorage.operations.unshelve_input import Unshelve
from moorage_testing.proof_parts import ProofPart
from moorage_testing.real_services.fixtures import RealService
from moorage_testing.region_evacuated import evacuable, evacuating
from moorage_testing.region_fixture import a_server
from moorage_testing.region_moved import about_moved, live_migrating, live_movable, movable, moved, resizing
from moorage_testing.region_shelved import volumes_world
from moorage_testing.region_shelved import with_volumes as shelved_with_volumes
from moorage_testing.region_states import (
    attaching_volume,
    booted,
    booting_from_volume,
    detaching_volume,
    extending_volume,
    snapshotting_volumes,
    swapping_volume,
    with_swappable_volume,
    with_volume,
)
from moorage_testing.saga_proof import PROVED_OPERATION, prove

pytestmark = pytest.mark.real


@pytest.fixture
async def small(real_volume: RealService) -> AsyncIterator[CinderRegion]:
    async with cinder_region(real_volume.stack) as made:
        yield made


async def asked_of(saga: str, small: CinderRegion) -> Any:
    """What is asked; the server is as it is recorded in each such world."""
    server = msgspec.structs.replace(a_server(), operation=PROVED_OPERATION)
    match saga:
        case "boot/2":
            return booting_from_volume()
        case "delete/2":
            return Delete(server, seq=3, request_id="req-delete")
        case "attach_volume/1":
            return attaching_volume()
        case "detach_volume/1":
            return await detaching_volume(small)
        case "extend_volume/1":
            return extending_volume()
        case "swap_volume/1":
            return await swapping_volume(small)
        case "snapshot_volumes/1":
            return snapshotting_volumes()
        case "resize/1":
            return await resizing(small, volumes=True)
        case "confirm_resize/1" | "revert_resize/1" | "delete/4":
            return await about_moved(small, saga, volumes=True)
        case "live_migrate/1":
            return await live_migrating(small, volumes=True)
        case "evacuate/1":
            return await evacuating(small, volumes=True)
    return _about(saga, await shelved_with_volumes(small, shelved=saga in SHELVED, offload=saga == "unshelve/1"))


SHELVED = {"shelve_offload/1", "unshelve/1"}


def _about(saga: str, server: Server) -> Any:
    """Of a server that boots from a volume, and has another one."""
    match saga:
        case "shelve/1":
            return Shelve(server, 3, None, True, "req-shelve", "user-1")
        case "shelve_offload/1":
            return ShelveOffload(server, 3, "req-offload", "user-1")
        case "unshelve/1":
            return Unshelve(server, 3, None, needs=needs_of(vcpus=1, memory_mb=64, disk_gb=0))
    return Rebuild(server, 2, server, (), request_id="req-rebuild", user="user-1", reimage=OTHER_IMAGE)


WORLDS: dict[str, Callable[[CinderRegion], Awaitable[Any]]] = {
    "boot/2": with_real_volumes_ready,
    "delete/2": lambda small: with_volume(small, goes=True),
    "attach_volume/1": booted,
    "detach_volume/1": with_volume,
    "extend_volume/1": with_real_grown_volume,
    "swap_volume/1": with_swappable_volume,
    "snapshot_volumes/1": with_real_snapshots,
    "shelve/1": volumes_world,
    "shelve_offload/1": lambda small: volumes_world(small, shelved=True),
    "unshelve/1": lambda small: volumes_world(small, shelved=True, offload=True),
    "rebuild/1": volumes_world,
    "resize/1": lambda small: movable(small, volumes=True),
    "confirm_resize/1": lambda small: moved(small, volumes=True),
    "revert_resize/1": lambda small: moved(small, volumes=True),
    "delete/4": lambda small: moved(small, volumes=True),
    "live_migrate/1": lambda small: live_movable(small, volumes=True),
    "evacuate/1": lambda small: evacuable(small, volumes=True),
}


STEPS: dict[str, tuple[str, ...]] = {
    "boot/2": ("hold_volumes", "connect_volumes", "record_server", "start_guest"),
    "delete/2": ("destroy_guest", "release_volumes", "finish_volumes"),
    "attach_volume/1": ("reserve", "begin_action", "connect", "plug", "record_volume"),
    "detach_volume/1": ("begin_detaching", "unplug", "let_volume_go"),
    "extend_volume/1": ("begin_action", "tell_host", "tell_volume_service"),
    "swap_volume/1": ("reserve", "begin_detaching", "connect", "swap", "let_old_volume_go", "complete_migration"),
    "snapshot_volumes/1": ("await_snapshots", "write_image"),
    "shelve/1": ("clear_host", "keep_volumes"),
    "shelve_offload/1": ("destroy_guest", "reserve_volumes"),
    "unshelve/1": ("connect_volumes", "start_guest"),
    "rebuild/1": ("hold_root", "write_root", "connect_volumes", "rebuild_guest"),
    "resize/1": ("send_guest", "switch_volumes", "land_guest", "start_guest"),
    "confirm_resize/1": ("clear_source",),
    "revert_resize/1": ("clear_destination", "return_volumes", "start_source"),
    "delete/4": ("destroy_guest", "release_volumes", "release_all_claims", "finish_volumes"),
    "live_migrate/1": ("export_volumes", "switch_guest", "complete_volumes", "drop_source_volumes"),
    "evacuate/1": ("connect_volumes", "start_guest"),
}
"""After which something may be left in Cinder that it would not be without them."""


@pytest.mark.parametrize("saga", sorted(WORLDS))
async def test_sagas_killed_after_each_step_are_completed_or_cancelled(saga: str, small: CinderRegion) -> None:
    asked, steps = await asked_of(saga, small), STEPS[saga]
    after_each = ProofPart("dying", scenarios="executed", points=f"leaving do of ({'|'.join(steps)}), .*")
    proof = await prove(SAGAS[saga], asked, lambda: WORLDS[saga](small), after_each)
    assert proof.cases["killed"] == proof.cases["killed, then cancelled"] == len(steps)


TAKEN_BACK: dict[str, tuple[str, tuple[str, ...]]] = {
    "boot/2": ("start_guest", ("hold_volumes",)),
    "attach_volume/1": ("plug", ("reserve", "begin_action", "plug")),
    "detach_volume/1": ("unplug", ("begin_detaching",)),
    "swap_volume/1": ("swap", ("reserve", "begin_detaching")),
    "rebuild/1": ("rebuild_guest", ("hold_root",)),
    "unshelve/1": ("start_guest", ("connect_volumes",)),
    "resize/1": ("start_guest", ("switch_volumes",)),
    "live_migrate/1": ("prepare_guest", ("export_volumes", "prepare_guest")),
    "evacuate/1": ("start_guest", ("connect_volumes",)),
}
"""Which step fails, and which undos Cinder sees, or has a guest that writes behind them."""


@pytest.mark.parametrize("saga", sorted(TAKEN_BACK))
async def test_killed_while_it_is_taken_back(saga: str, small: CinderRegion) -> None:
    asked, (fails, undone) = await asked_of(saga, small), TAKEN_BACK[saga]
    on_the_way_back = ProofPart(
        "dying", scenarios=f"{fails} failing", points=f"leaving undo of ({'|'.join(undone)}), .*"
    )
    proof = await prove(SAGAS[saga], asked, lambda: WORLDS[saga](small), on_the_way_back)
    assert proof.cases["killed"] >= len(undone)
