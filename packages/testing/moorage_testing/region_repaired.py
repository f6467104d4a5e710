"""Servers whose guests have other devices than their records list, for proofs of what repairs them."""

import msgspec

from moorage.model.server import Server, VmState
from moorage.operations.guest.repair_devices import RepairDevicesInput
from moorage.operations.steps import servers as records
from moorage_testing.region_fixture import SERVER, SmallRegion, a_server
from moorage_testing.region_states import with_volume
from moorage_testing.region_volumes import OTHER_VOLUME, VOLUME
from moorage_testing.saga_proof import PROVED_OPERATION

FOREIGN_PORT = "00000000-0000-4000-8000-00000000f0f0"
"""Of no server."""


def repairing_devices() -> RepairDevicesInput:
    server = msgspec.structs.replace(a_server(operation=PROVED_OPERATION), vm_state=VmState.ACTIVE, task_state=None)
    return RepairDevicesInput(server, 3, "req-repair", "user-1")


async def recorded(small: SmallRegion) -> Server:
    server = (await records.find(small.context, SERVER)).server
    assert server is not None
    return server


async def with_other_devices(small: SmallRegion) -> SmallRegion:
    """The guest lacks its volume, and has one that is attached to nobody."""
    await with_volume(small)
    host = str((await recorded(small)).host)
    small.hosts.disks.discard((host, SERVER, VOLUME))
    small.hosts.disks.add((host, SERVER, OTHER_VOLUME))
    return small
