"""An offloaded server is unshelved in another cell: when this is allowed, and in which order hosts are tried."""

import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from moorage.bus.agent_calls import HostAddress
from moorage.model.errors import HostFailed, Unavailable
from moorage.model.ids import ConductorId
from moorage.model.operation import Accepted
from moorage.model.principal import Principal
from moorage.model.server import Server
from moorage.operations.registry import SAGAS
from moorage.operations.shelve import accept_unshelve
from moorage.operations.shelve.accept_unshelve import UnshelveWish
from moorage.operations.steps import servers as records
from moorage.saga import MemoryJournal, execute, first_lines
from moorage.store.region import processes
from moorage.store.region import servers as region_servers
from moorage.store.region.processes import ProcessRecord
from moorage_testing.region_cells import records_held
from moorage_testing.region_fixture import CELLS, SERVER, SmallRegion
from moorage_testing.region_shelved import leaving_its_cell, shelved_elsewhere
from moorage_testing.saga_proof import PROVED_OPERATION

SAGA = SAGAS["unshelve/3"]


@pytest.fixture
async def small() -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open()
    yield region
    await region.close()


async def unshelved(small: SmallRegion) -> Server:
    asked = leaving_its_cell(may_stay=True)
    await execute(SAGA, PROVED_OPERATION, asked, small.context, MemoryJournal(first_lines(SAGA), small.transact))
    found = await records.find(small.context, SERVER)
    assert found.server is not None
    return found.server


async def held(small: SmallRegion) -> tuple[Any, ...]:
    found = await records_held(small.region, small.cells, SERVER)
    return found["shown in"], found["records"], found["hidden in"], found["amiss"]


async def test_hosts_of_its_own_cell_are_tried_first_and_keep_the_record(small: SmallRegion) -> None:
    await shelved_elsewhere(small)
    server = await unshelved(small)
    assert (server.host, server.cell, server.shelved, server.vm_state) == ("host2", CELLS[1], None, "active")
    assert await held(small) == (CELLS[1], [CELLS[1]], [], [])


async def test_after_a_failure_a_host_of_another_cell_is_used(
    small: SmallRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shelved_elsewhere(small)
    asked, start = list[tuple[str, str]](), small.hosts.start_guest

    async def failing(to: HostAddress, *more: Any) -> Any:
        asked.append((to.cell, to.host))
        if len(asked) < 3:
            raise HostFailed("planted")
        return await start(to, *more)

    monkeypatch.setattr(small.hosts, "start_guest", failing)
    server = await unshelved(small)
    assert [cell for cell, _ in asked] == [CELLS[1], CELLS[0], CELLS[0]]
    assert len(set(asked)) == 3
    assert (server.cell, server.host) == asked[-1]
    assert await held(small) == (CELLS[0], [CELLS[0]], [], [])


class RecordingDispatcher:
    """Takes what is accepted; conductors know all, or all but what crosses cells."""

    def __init__(self, *unknown: str) -> None:
        self.unknown = unknown
        self.told: list[Accepted] = []

    async def choose(self, saga: str) -> ConductorId:
        if saga in self.unknown:
            raise Unavailable("not known")
        return ConductorId("conductor1")

    async def begun(self, accepted: Accepted) -> None:
        self.told.append(accepted)


async def test_a_server_leaves_its_cell_with_permission_and_when_all_processes_support_it(small: SmallRegion) -> None:
    """Else it stays, and where a host of another cell is named it is refused for now."""
    await shelved_elsewhere(small)
    await small.region.write(lambda tx: region_servers.release(tx, SERVER, PROVED_OPERATION))
    server = (await records.find(small.context, SERVER)).server
    assert server is not None
    who = Principal("user-1", project=server.project, roles=("admin",))

    async def begun(wish: UnshelveWish, *unknown: str) -> tuple[str, bool]:
        dispatcher = RecordingDispatcher(*unknown)
        context = dataclasses.replace(small.context, dispatcher=dispatcher)  # type: ignore[arg-type]
        await accept_unshelve.begin(context, who, server, wish, check=lambda _: None)
        (told,) = dispatcher.told
        await small.region.write(lambda tx: region_servers.release(tx, SERVER, told.id))
        return told.saga, msgspec.json.decode(told.asked)["cross_cell"]

    may = UnshelveWish(cross_cell=True)
    assert await begun(may) == ("unshelve/3", True)
    assert await begun(UnshelveWish()) == ("unshelve/1", False)
    assert await begun(UnshelveWish(host="host2", cross_cell=True)) == ("unshelve/1", False), "it is of its own cell"
    assert await begun(UnshelveWish(host="host1", cross_cell=True)) == ("unshelve/3", True)
    assert await begun(may, "unshelve/3") == ("unshelve/1", False)
    with pytest.raises(Unavailable, match="of this release"):
        await begun(UnshelveWish(host="host1", cross_cell=True), "unshelve/3")
    await small.region.write(lambda tx: processes.report(tx, ProcessRecord("p1", "api", "box1", "0.1.0"), 600.0))
    assert await begun(may) == ("unshelve/1", False)
    await small.region.write(lambda tx: processes.leave(tx, "p1"))
