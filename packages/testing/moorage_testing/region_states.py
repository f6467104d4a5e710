"""A small region with a past: a server that was booted, and one that an interface was attached to; for proofs."""

from typing import Literal, TypeAlias

import msgspec

from moorage.model.guest import PowerState
from moorage.model.ids import CellId, ImageId, OperationId
from moorage.model.network import NicAsk, mint_mac
from moorage.model.rescue import RescueSpec
from moorage.model.server import BlockDevice, VmState
from moorage.model.volume import Volume
from moorage.model.volume import VolumeSnapshot as VolumeSnapshot
from moorage.operations.boot.boot import Boot
from moorage.operations.delete.soft_delete import SoftDelete
from moorage.operations.guest.rescue import Rescue
from moorage.operations.images.snapshot import SnapshotInput
from moorage.operations.images.snapshot_volumes import SnapshotVolumes, Taken
from moorage.operations.interfaces.attach_claim import AttachInterfaceInput
from moorage.operations.interfaces.detach_interface import DetachInterfaceInput
from moorage.operations.registry import SAGAS
from moorage.operations.steps import servers as records
from moorage.operations.volumes.assisted_snapshot import AssistedSnapshot, SnapshotWish
from moorage.operations.volumes.attach_volume import AttachVolumeInput
from moorage.operations.volumes.detach_volume import DetachVolumeInput
from moorage.operations.volumes.extend_volume import ExtendVolumeInput
from moorage.operations.volumes.swap_volume import SwapVolumeInput
from moorage.saga import MemoryJournal, execute, first_lines
from moorage.store.cell.servers import Fence
from moorage_testing.region_fixture import SERVER, SPARE_PORT, SmallRegion, a_boot, a_server
from moorage_testing.region_network import NETWORK, NETWORK_FACTS, ROUTED, ROUTED_FACTS
from moorage_testing.region_volumes import MIGRATING, OTHER_VOLUME, VOLUME
from moorage_testing.saga_proof import PROVED_OPERATION

BOOTED = OperationId("booted")
ATTACHED = OperationId("attached")
RESCUED = OperationId("rescued")
DELETED = OperationId("deleted")
INDEX = 2
"""The boot had two cards."""

Card: TypeAlias = Literal["made", "users", "routed"]
"""A port of ours, of the user's, and of ours on a routed network."""


async def booted(
    small: SmallRegion, *, guarantees: bool = False, operation: OperationId = PROVED_OPERATION
) -> SmallRegion:
    """One ACTIVE server, held by the operation that is to be proved."""
    await _boot(small, guarantees=guarantees)
    await small.hand_to(operation)
    return small


async def _boot(small: SmallRegion, *, guarantees: bool = False, routed: bool = False) -> None:
    await small.wire_segments()
    await small.fresh(a_server(), BOOTED, guarantees=guarantees)
    boot = SAGAS["boot/1"]
    asked = msgspec.structs.replace(a_boot(BOOTED), forced_host="host1")
    if routed:
        nic = NicAsk(index=INDEX, network=ROUTED, mac=mint_mac(SERVER, INDEX))
        networks = {**asked.networks, ROUTED: ROUTED_FACTS}
        asked = msgspec.structs.replace(asked, nics=(*asked.nics, nic), networks=networks)
    await execute(boot, BOOTED, asked, small.context, MemoryJournal(first_lines(boot), small.transact))


IMAGE = ImageId("70a599e0-31e7-49b7-b260-868f441e0001")
"""The image that a snapshot is to fill; made with the request."""


async def imaged(
    small: SmallRegion,
    state: VmState = VmState.ACTIVE,
    *,
    routed: bool = False,
    guarantees: bool = False,
    operation: OperationId = PROVED_OPERATION,
) -> SmallRegion:
    """The same server, an image that waits for data, and two backups of it from before."""
    await _boot(small, guarantees=guarantees, routed=routed)
    small.images.whole.update({f"backup-{number}": True for number in (1, 2)})
    small.images.whole[IMAGE] = False
    if state is not VmState.ACTIVE:
        power = {VmState.STOPPED: PowerState.SHUTDOWN, VmState.PAUSED: PowerState.PAUSED}[state]
        small.hosts.guests["host1", SERVER] = power
        found, by = await records.find(small.context, SERVER), Fence(BOOTED, seq=1, epoch=1, line=99)
        assert found.cell is not None
        await records.change(
            small.context,
            found.cell,
            SERVER,
            by,
            lambda server: msgspec.structs.replace(server, vm_state=state, power_state=int(power)),
        )
    await small.hand_to(operation)
    return small


def snapshotting(kind: Literal["snapshot", "backup"] = "snapshot") -> SnapshotInput:
    """What is asked of a snapshot or a backup of that server."""
    server = a_server(operation=PROVED_OPERATION)
    return SnapshotInput(server, 2, IMAGE, kind, "daily", 1, "req-image", "user-1")


SNAPSHOT_OF_VOLUME = "snapshot-1"


async def booted_from_volume(small: SmallRegion, operation: OperationId = PROVED_OPERATION) -> SmallRegion:
    """A server whose root is a volume of the user's, with another one that was made for it, ACTIVE on a host."""
    await small.fresh(booting_from_volume(BOOTED).server, BOOTED)
    small.volumes.volumes[MADE] = Volume(id=MADE, status="creating", size_gib=1)
    boot, asked = SAGAS["boot/2"], msgspec.structs.replace(booting_from_volume(BOOTED), forced_host="host1")
    await execute(boot, BOOTED, asked, small.context, MemoryJournal(first_lines(boot), small.transact))
    await small.hand_to(operation)
    return small


async def with_snapshots(small: SmallRegion) -> SmallRegion:
    """The same, with a snapshot of its root and an image that waits for what names it."""
    await booted_from_volume(small)
    small.images.whole[IMAGE] = False
    small.volumes.snapshots[SNAPSHOT_OF_VOLUME] = VolumeSnapshot(
        id=SNAPSHOT_OF_VOLUME, volume=VOLUME, status="available", size_gib=1
    )
    return small


async def with_still_guest(small: SmallRegion) -> SmallRegion:
    """The same, and the guest has been still since before the snapshot."""
    await with_snapshots(small)
    small.hosts.still["host1", SERVER] = IMAGE
    return small


def snapshotting_still() -> SnapshotVolumes:
    """What is asked of an image of that server, which must be still meanwhile."""
    asked = snapshotting_volumes()
    properties = {"hw_qemu_guest_agent": "yes", "os_require_quiesce": "yes"}
    server = msgspec.structs.replace(
        asked.server, host="host1", cell=CellId("cell1"), vm_state=VmState.ACTIVE, image_properties=properties
    )
    return msgspec.structs.replace(asked, server=server, still=True)


def snapshotting_volumes() -> SnapshotVolumes:
    """What is asked of an image of that server."""
    server = booting_from_volume().server
    return SnapshotVolumes(server, 2, IMAGE, (Taken(ROOT.bdm, SNAPSHOT_OF_VOLUME, 1),), "req-image", "user-1")


def attaching(card: Card, operation: OperationId = PROVED_OPERATION) -> AttachInterfaceInput:
    """What is asked of an attach to that server."""
    nic = NicAsk(INDEX, NETWORK, SPARE_PORT, ours=False)
    if card != "users":
        nic = NicAsk(INDEX, ROUTED if card == "routed" else NETWORK, mac=mint_mac(SERVER, INDEX))
    server = a_server(operation=operation)
    return AttachInterfaceInput(server, 2, nic, {NETWORK: NETWORK_FACTS, ROUTED: ROUTED_FACTS}, "req-attach", "user-1")


async def attached(small: SmallRegion, card: Card, *, guarantees: bool = False) -> SmallRegion:
    """The same server with one more interface, held by the operation that is to be proved."""
    await _boot(small, guarantees=guarantees)
    await small.hand_to(ATTACHED)
    saga = SAGAS["attach_interface/2"]
    await execute(
        saga, ATTACHED, attaching(card, ATTACHED), small.context, MemoryJournal(first_lines(saga), small.transact)
    )
    await small.hand_to(PROVED_OPERATION)
    return small


async def rescued(small: SmallRegion) -> SmallRegion:
    """The server, rescued, held by the operation that is to be proved."""
    await _boot(small)
    await small.hand_to(RESCUED)
    saga, server = SAGAS["rescue/1"], msgspec.structs.replace(a_server(operation=RESCUED), vm_state=VmState.ACTIVE)
    asked = Rescue(server, 2, RescueSpec("image-2"), "req-rescue")
    await execute(saga, RESCUED, asked, small.context, MemoryJournal(first_lines(saga), small.transact))
    await small.hand_to(PROVED_OPERATION)
    return small


async def softly_deleted(small: SmallRegion) -> SmallRegion:
    """The server, deleted so that it can be restored, held by the operation that is to be proved."""
    await _boot(small)
    return await execute_soft_delete(small)


async def execute_soft_delete(small: SmallRegion) -> SmallRegion:
    """Of a server that an operation holds, and that was ACTIVE when its delete was asked."""
    await small.hand_to(DELETED)
    saga, server = SAGAS["soft_delete/1"], msgspec.structs.replace(a_server(operation=DELETED), vm_state=VmState.ACTIVE)
    asked = SoftDelete(server, 2, "req-soft")
    await execute(saga, DELETED, asked, small.context, MemoryJournal(first_lines(saga), small.transact))
    await small.hand_to(PROVED_OPERATION)
    return small


async def detaching(
    small: SmallRegion, card: Card, *, gone: bool = False, guarantees: bool = False
) -> DetachInterfaceInput:
    """What is asked of the detach of that interface; each such world has it with the same names."""
    await attached(small, card, guarantees=guarantees)
    server = (await records.find(small.context, SERVER)).server
    assert server is not None
    nic = next(each for each in server.nics if each.index == INDEX)
    return DetachInterfaceInput(server, 3, nic, gone, "req-detach", "user-1")


async def deleted_under_it(small: SmallRegion, card: Card, *, guarantees: bool = False) -> SmallRegion:
    """The same, after the network service deleted the port."""
    await attached(small, card, guarantees=guarantees)
    gone = [key for key, port in small.network.ports.items() if port.index == INDEX]
    for key in gone:
        del small.network.ports[key]
    return small


# ------------------------------------------------------------------------------------------------------- volumes

DEVICE = BlockDevice(
    "volume",
    "volume",
    uuid=VOLUME,
    volume=VOLUME,
    size_gib=1,
    device="/dev/vdb",
    bdm="0d0c0b0a-0000-4000-8000-00000000b000",
)


def attaching_volume(operation: OperationId = PROVED_OPERATION, *, goes: bool = False) -> AttachVolumeInput:
    """What is asked of an attach of a volume to that server; `goes`: the volume goes with it."""
    device = msgspec.structs.replace(DEVICE, delete_on_termination=goes)
    return AttachVolumeInput(a_server(operation=operation), 2, device, "req-attach", "user-1")


async def with_volume(small: SmallRegion, *, goes: bool = False) -> SmallRegion:
    """The same server with a volume, held by the operation that is to be proved."""
    await _boot(small)
    await small.hand_to(ATTACHED)
    saga = SAGAS["attach_volume/1"]
    asked = attaching_volume(ATTACHED, goes=goes)
    await execute(saga, ATTACHED, asked, small.context, MemoryJournal(first_lines(saga), small.transact))
    await small.hand_to(PROVED_OPERATION)
    return small


async def detaching_volume(small: SmallRegion) -> DetachVolumeInput:
    """What is asked of the detach of that volume."""
    await with_volume(small)
    server = (await records.find(small.context, SERVER)).server
    assert server is not None
    return DetachVolumeInput(server, 3, server.block_devices[0], "req-detach", "user-1")


def extending_volume(operation: OperationId = PROVED_OPERATION) -> ExtendVolumeInput:
    """What is asked when the volume of that server has grown."""
    return ExtendVolumeInput(a_server(operation=operation), 3, DEVICE, 2, "req-extend", "user-1")


def snapshotting_volume() -> AssistedSnapshot:
    """What is asked when the volume service wants a snapshot of that server's volume."""
    wish = SnapshotWish(VOLUME, "snapshot-1", new_file="volume.snapshot-1")
    return AssistedSnapshot(a_server(operation=PROVED_OPERATION), 3, wish, "req-assist", "user-1")


async def with_grown_volume(small: SmallRegion) -> SmallRegion:
    await with_volume(small)
    small.volumes.volumes[VOLUME] = msgspec.structs.replace(
        small.volumes.volumes[VOLUME], status="extending", size_gib=2
    )
    return small


async def swapping_volume(small: SmallRegion, *, migrating: bool = False) -> SwapVolumeInput:
    """What is asked when that volume is swapped for another one."""
    await with_swappable_volume(small, migrating=migrating)
    server = (await records.find(small.context, SERVER)).server
    assert server is not None
    return SwapVolumeInput(server, 3, server.block_devices[0], OTHER_VOLUME, 1, migrating, request_id="req-swap")


async def with_swappable_volume(small: SmallRegion, *, migrating: bool = False) -> SmallRegion:
    """`migrating`: the volume service moves it, and waits for a report of the end."""
    await with_volume(small)
    if migrating:
        known = small.volumes.volumes
        known[VOLUME] = msgspec.structs.replace(known[VOLUME], migration_status=MIGRATING)
    return small


MADE = "made-for-it"
ROOT = BlockDevice(
    "volume", "volume", 0, uuid=VOLUME, volume=VOLUME, device="/dev/vda", bdm="0d0c0b0a-0000-4000-8000-00000000b001"
)
BLANK = BlockDevice(
    "blank", "volume", volume=MADE, device="/dev/vdb", bdm="0d0c0b0a-0000-4000-8000-00000000b002", created=True
)


def booting_from_volume(operation: OperationId = PROVED_OPERATION) -> Boot:
    """What is asked of a boot from a volume of the user's, with another one that was made for it."""
    asked = a_boot(operation)
    return msgspec.structs.replace(asked, server=msgspec.structs.replace(asked.server, block_devices=(ROOT, BLANK)))


async def with_volumes_ready(small: SmallRegion) -> SmallRegion:
    """The order, and the volume that was made for it."""
    order = booting_from_volume().server
    await small.fresh(order, PROVED_OPERATION)
    small.volumes.volumes[MADE] = Volume(id=MADE, status="creating", size_gib=1)
    return small
