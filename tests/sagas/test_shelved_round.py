"""The round that takes shelved servers off their hosts has nothing to do where none is shelved for long."""

import dataclasses
import time

import msgspec
import pytest

from moorage.conductor.reconcilers.shelved import OffloadShelved, ShelvedDone, still_shelved
from moorage.model.errors import Conflict
from moorage.model.ids import OperationId
from moorage.model.server import Server, Shelved, VmState
from moorage.operations.steps import servers as records
from moorage.store.cell.servers import Fence
from moorage.testing.small_region import SERVER, SmallRegion
from moorage.testing.small_stories import booted


async def test_shelved_already_fine() -> None:
    small = await SmallRegion.open()
    await booted(small)
    rooms = dataclasses.replace(
        small.rooms, settings=dataclasses.replace(small.rooms.settings, shelved_offload_time_s=3600)
    )
    assert await OffloadShelved(rooms).run() == ShelvedDone()
    found = await records.find(rooms, SERVER)
    assert found.cell is not None

    def shelved(server: Server) -> Server:
        return msgspec.structs.replace(
            server, vm_state=VmState.SHELVED, shelved=Shelved(time.time_ns() // 1000, None, "host1")
        )

    await records.change(rooms, found.cell, SERVER, Fence(OperationId("a"), 2, 1, 1), shelved)
    assert await OffloadShelved(rooms).run() == ShelvedDone(looked_at=1)
    never = dataclasses.replace(rooms, settings=dataclasses.replace(rooms.settings, shelved_offload_time_s=-1))
    assert await OffloadShelved(never).run() == ShelvedDone()
    await small.close()


async def test_a_server_that_is_shelved_no_more_is_left_alone() -> None:
    small = await SmallRegion.open()
    await booted(small)
    found = (await records.find(small.rooms, SERVER)).server
    assert found is not None
    with pytest.raises(Conflict, match="not shelved"):
        still_shelved(found)
    await small.close()
