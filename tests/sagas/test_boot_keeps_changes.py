"""Changes of an owner during a build are kept."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from moorage.model.errors import HostFailed
from moorage.model.ids import OperationId
from moorage.model.server import Server
from moorage.operations.boot.boot import BOOT
from moorage.operations.records import servers as nouns
from moorage.operations.steps import servers as records
from moorage.saga import MemoryJournal, Unwound, execute, first_lines
from moorage_testing.region_fixture import SERVER, SmallRegion, a_boot, a_server

OPERATION = OperationId("building")


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open(tmp_path)
    await region.fresh(a_server(), OPERATION)
    yield region
    await region.close()


async def renamed(small: SmallRegion, name: str) -> Server:
    cells = {str(cell): database for cell, database in small.cells.items()}
    return await nouns.change(small.region, cells, SERVER, nouns.with_fields(name=name), 5)


async def boot(small: SmallRegion) -> None:
    await execute(BOOT, OPERATION, a_boot(OPERATION), small.context, MemoryJournal(first_lines(BOOT), small.transact))


async def test_a_change_before_the_claim_is_kept(small: SmallRegion) -> None:
    await renamed(small, "early")
    await boot(small)
    found = await records.find(small.context, SERVER)
    assert found.cell is not None
    assert found.server is not None
    assert found.server.name == "early"


async def test_a_change_between_claim_and_record_waits_for_the_record(small: SmallRegion) -> None:
    bind: Any = small.network.bind_ports
    renaming: list[asyncio.Task[Server]] = []

    async def slow(*args: Any, **named: Any) -> Any:
        renaming.append(asyncio.create_task(renamed(small, "late")))
        await asyncio.sleep(0)
        return await bind(*args, **named)

    small.network.bind_ports = slow  # type: ignore[method-assign]
    await boot(small)
    await renaming[0]
    found = await records.find(small.context, SERVER)
    assert found.server is not None
    assert found.server.name == "late"


async def test_a_failed_boot_keeps_the_change(small: SmallRegion) -> None:
    await renamed(small, "early")

    async def fail(*args: Any, **named: Any) -> Any:
        raise HostFailed("planted")

    small.hosts.start_guest = fail  # type: ignore[method-assign]
    with pytest.raises(Unwound):
        await boot(small)
    found = await records.find(small.context, SERVER)
    assert found.server is not None
    assert (found.server.name, found.server.vm_state) == ("early", "error")
