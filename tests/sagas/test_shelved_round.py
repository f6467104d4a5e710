"""The reconciler that offloads shelved servers has nothing to do if none is shelved for long."""

import dataclasses
import time

import msgspec
import pytest

from moorage.conductor.reconcilers.offload_shelved import OffloadShelved, ShelvedDone, still_shelved
from moorage.model.errors import Conflict
from moorage.model.ids import OperationId
from moorage.model.server import Server, Shelved, VmState
from moorage.operations.steps import servers as records
from moorage.store.cell.servers import Fence
from moorage_testing.region_fixture import SERVER, SmallRegion
from moorage_testing.region_states import booted


async def test_offload_shelved_already_fine() -> None:
    small = await SmallRegion.open()
    await booted(small)
    context = dataclasses.replace(
        small.context, settings=dataclasses.replace(small.context.settings, shelved_offload_time_s=3600)
    )
    assert await OffloadShelved(context).run() == ShelvedDone()
    found = await records.find(context, SERVER)
    assert found.cell is not None

    def shelved(server: Server) -> Server:
        return msgspec.structs.replace(
            server, vm_state=VmState.SHELVED, shelved=Shelved(time.time_ns() // 1000, None, "host1")
        )

    await records.change(context, found.cell, SERVER, Fence(OperationId("a"), 2, 1, 1), shelved)
    assert await OffloadShelved(context).run() == ShelvedDone(looked_at=1)
    never = dataclasses.replace(context, settings=dataclasses.replace(context.settings, shelved_offload_time_s=-1))
    assert await OffloadShelved(never).run() == ShelvedDone()
    await small.close()


async def test_a_server_no_longer_shelved_is_left_alone() -> None:
    small = await SmallRegion.open()
    await booted(small)
    found = (await records.find(small.context, SERVER)).server
    assert found is not None
    with pytest.raises(Conflict, match="no longer shelved"):
        still_shelved(found)
    await small.close()
