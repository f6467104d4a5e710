"""A record is changed only into a permitted state: any other change leaves it unchanged."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from moorage.model.errors import Internal
from moorage.model.ids import OperationId
from moorage.model.server import VmState
from moorage.operations.records import servers as nouns
from moorage.operations.steps import servers as records
from moorage.store.cell import servers as cell_servers
from moorage.store.cell.servers import Fence
from moorage_testing.region_fixture import CELLS, SERVER, SmallRegion, a_server

FENCE = Fence(OperationId("x"), 1, 1, 1)


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open(tmp_path)
    await region.fresh(a_server(), OperationId("x"))
    yield region
    await region.close()


async def test_a_step_cannot_bring_a_deleted_server_back(small: SmallRegion) -> None:
    gone = a_server(vm_state=VmState.DELETED, deleted_at=1, cell=CELLS[0])
    database = small.cells[CELLS[0]]
    was = await database.write(lambda tx: cell_servers.record(tx, gone, FENCE))
    with pytest.raises(Internal, match="cannot change its state"):
        await records.change(
            small.context, CELLS[0], SERVER, FENCE, lambda row: msgspec.structs.replace(row, vm_state=VmState.ACTIVE)
        )
    assert await database.read(lambda tx: cell_servers.get(tx, SERVER)) == was


async def test_a_request_cannot_pause_an_order(small: SmallRegion) -> None:
    with pytest.raises(Internal, match="cannot change its state"):
        await nouns.change(
            small.region, {}, SERVER, lambda row: msgspec.structs.replace(row, vm_state=VmState.PAUSED), now=1
        )
