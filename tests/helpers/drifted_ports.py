"""A small region with a server whose ports are changed in the network service."""

import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from moorage.model.ids import ConductorId, OperationId
from moorage.model.operation import Accepted
from moorage.model.server import Server
from moorage.operations.registry import SAGAS
from moorage.operations.steps import servers as records
from moorage.saga import MemoryJournal, execute, first_lines
from moorage.store.region import servers as region_servers
from moorage_testing.region_fixture import SERVER, SmallRegion
from moorage_testing.region_states import INDEX, attached
from moorage_testing.saga_proof import PROVED_OPERATION


class ImmediateDispatcher:
    """Executors that tell what is accepted before they answer."""

    def __init__(self, small: SmallRegion) -> None:
        self.small = small
        self.told: list[str] = []

    async def choose(self, saga: str) -> ConductorId:
        return ConductorId("conductor")

    async def begun(self, new: Accepted) -> None:
        saga = SAGAS[new.saga]
        self.told.append(new.saga)
        asked = msgspec.json.decode(new.asked, type=saga.input_type)
        await execute(saga, new.id, asked, self.small.context, MemoryJournal(first_lines(saga), self.small.transact))

    async def cancelled(self, operation: OperationId, owner: ConductorId) -> None:
        raise AssertionError("nothing here is stopped")


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[SmallRegion]:
    """A server on host1 with three cards, the last on a routed network; nobody holds it."""
    region = await SmallRegion.open(tmp_path)
    await attached(region, "routed")
    await region.region.write(lambda tx: region_servers.release(tx, SERVER, PROVED_OPERATION))
    region.context = dataclasses.replace(region.context, dispatcher=cast("Any", ImmediateDispatcher(region)))
    yield region
    await region.close()


async def record(small: SmallRegion) -> Server:
    found = (await records.find(small.context, SERVER)).server
    assert found is not None
    return found


def routed_port(small: SmallRegion) -> str:
    return next(key for key, port in small.network.ports.items() if port.index == INDEX)


def changed(small: SmallRegion, **changes: Any) -> None:
    key = routed_port(small)
    small.network.ports[key] = msgspec.structs.replace(small.network.ports[key], **changes)
