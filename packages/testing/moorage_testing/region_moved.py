"""A small region with a server that is moved, or was: for proofs."""

from typing import Any

import msgspec

from moorage.model.ids import FlavorId, ImageId, OperationId, SegmentId
from moorage.model.resources import needs_of
from moorage.model.server import FlavorCopy, Server, VmState
from moorage.operations.delete.delete import Delete
from moorage.operations.live_migrate.live_migrate_input import LiveMigrate
from moorage.operations.registry import SAGAS
from moorage.operations.resize.confirm_resize import ConfirmResize
from moorage.operations.resize.resize_input import Resize
from moorage.operations.resize.revert_resize import RevertResize
from moorage.operations.steps import servers as records
from moorage.placement.inventory import SegmentReport, host_id
from moorage.saga import MemoryJournal, execute, first_lines
from moorage.store.region import quotas
from moorage_testing.region_cells import wire_far_hosts
from moorage_testing.region_fixture import ALL_HOSTS, PROJECT, SERVER, SmallRegion
from moorage_testing.region_network import SEGMENTS
from moorage_testing.region_states import IMAGE, booted_from_volume, imaged
from moorage_testing.saga_proof import PROVED_OPERATION

RESIZED = OperationId("resized")
MOVE = "70a599e0-31e7-49b7-b260-868f441e0002"
TEMPORARY = ImageId("70a599e0-31e7-49b7-b260-868f441e0099")
LARGER = FlavorCopy(id=FlavorId("2"), name="small", vcpus=2, ram_mib=128, disk_gib=2, number=2)
MORE = {"cores": 1, "ram": 64}


async def recorded(small: SmallRegion) -> Server:
    found = await records.find(small.context, SERVER)
    assert found.server is not None
    return found.server


async def movable(
    small: SmallRegion,
    *,
    operation: OperationId = PROVED_OPERATION,
    state: VmState = VmState.ACTIVE,
    routed: bool = False,
    guarantees: bool = False,
    volumes: bool = False,
    across: bool = False,
) -> SmallRegion:
    """A server on host1, charged for what it is to become, held by the operation that is to be proved.

    `across`: no other host is on its segment.
    """
    await small.wire_host4()
    if across:
        await wired_apart(small, "host1")
    if volumes:
        await booted_from_volume(small, operation)
    else:
        await imaged(small, state, routed=routed, guarantees=guarantees, operation=operation)
        small.images.whole.pop(IMAGE)
    await small.region.write(lambda tx: quotas.reserve(tx, PROJECT, MORE))
    small.watches_moves, small.charged_meanwhile = True, MORE
    return small


async def wired_apart(small: SmallRegion, *hosts: str) -> None:
    """Only these are on its segment, all others on the other one; so they stay for the worlds after this one."""
    own, other = SEGMENTS
    wires = {own: hosts, other: tuple(host for host, _ in ALL_HOSTS if host not in hosts)}
    await small.engine.report_segments(
        [SegmentReport(segment=SegmentId(each), name=each, total=100, hosts=hosts) for each, hosts in wires.items()]
    )


async def resizing(small: SmallRegion, *, same_host: bool = False, **world: Any) -> Resize:
    """What is asked of a resize of that server."""
    await movable(small, **world)
    server = await recorded(small)
    disk = 0 if server.volume_backed else LARGER.disk_gib
    return Resize(
        server=server,
        seq=2,
        flavor=LARGER,
        migration=MOVE,
        host="host1" if same_host else None,
        same_host=same_host,
        across=bool(world.get("across")),
        needs=needs_of(vcpus=LARGER.vcpus, memory_mb=LARGER.ram_mib, disk_gb=disk),
        charged=MORE,
        request_id="req-resize",
        user="user-1",
        by_project=PROJECT,
    )


async def crossable(small: SmallRegion, **world: Any) -> SmallRegion:
    """The same server, and hosts in the other cell that it may go to."""
    await wire_far_hosts(small.engine)
    await movable(small, **world)
    small.watches_cells = True
    return small


async def crossing_cells(small: SmallRegion, *, may_stay: bool = False, **world: Any) -> Resize:
    """What is asked of a resize that may end in another cell; without `may_stay` it can end there only."""
    await crossable(small, **world)
    asked, seen = await resizing(small, **world), small.engine.world()
    far = tuple(seen.host_ids[seen.slots_by_name[each]] for each in ("host3", "host4"))
    image = None if asked.server.volume_backed else TEMPORARY
    return msgspec.structs.replace(asked, cross_cell=True, image=image, far=() if may_stay else far)


async def live_movable(
    small: SmallRegion, *, operation: OperationId = PROVED_OPERATION, state: VmState = VmState.ACTIVE, **world: Any
) -> SmallRegion:
    """A server on host1 that runs, held by the operation that is to be proved."""
    await movable(small, operation=operation, state=state, **world)
    await small.region.write(lambda tx: quotas.release(tx, PROJECT, MORE))
    small.charged_meanwhile = {}
    return small


async def live_movable_elsewhere(small: SmallRegion, **world: Any) -> SmallRegion:
    """The same server, and hosts in the other cell, which is linked with its own, that it may go to."""
    await wire_far_hosts(small.engine)
    await live_movable(small, **world)
    small.watches_cells = True
    return small


async def live_migrating_elsewhere(small: SmallRegion, *, may_stay: bool = False, **world: Any) -> LiveMigrate:
    """What is asked of its live migration to any linked cell; `may_stay`: to its own first."""
    await wire_far_hosts(small.engine)
    asked = await live_migrating(small, **world)
    away = () if may_stay else (host_id("host3"), host_id("host4"))
    return msgspec.structs.replace(asked, far=away, cross_cell=True)


async def live_migrating(small: SmallRegion, **world: Any) -> LiveMigrate:
    """What is asked of a live migration of that server."""
    await live_movable(small, **world)
    server = await recorded(small)
    flavor, disk = server.flavor, 0 if server.volume_backed else server.flavor.disk_gib
    return LiveMigrate(
        server=server,
        seq=2,
        migration=MOVE,
        needs=needs_of(vcpus=flavor.vcpus, memory_mb=flavor.ram_mib, disk_gb=disk),
        request_id="req-live",
        user="user-1",
        by_project=PROJECT,
    )


async def moved(small: SmallRegion, *, same_host: bool = False, **world: Any) -> SmallRegion:
    """The same server in VERIFY_RESIZE."""
    asked = await resizing(small, same_host=same_host, operation=RESIZED, **world)
    saga, asked = SAGAS["resize/1"], msgspec.structs.replace(asked, host="host1" if same_host else "host3")
    await execute(saga, RESIZED, asked, small.context, MemoryJournal(first_lines(saga), small.transact))
    await small.hand_to(PROVED_OPERATION)
    return small


async def about_moved(small: SmallRegion, saga: str, **world: Any) -> ConfirmResize | RevertResize | Delete:
    """What is asked of what comes after a resize."""
    await moved(small, **world)
    server = await recorded(small)
    match saga:
        case "confirm_resize/1":
            return ConfirmResize(server, 3, "req-confirm", "user-1")
        case "revert_resize/1":
            return RevertResize(server, 3, "req-revert", "user-1")
        case _:
            return Delete(msgspec.structs.replace(server), seq=3, request_id="req-delete")
