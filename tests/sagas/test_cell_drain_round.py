"""Rounds of a cell's drain, one at a time: which hosts are drained, whose record is moved, and what is repeated after a crash."""

import dataclasses
from collections.abc import AsyncIterator
from typing import Any, cast

import msgspec
import pytest
import pytest_asyncio

from moorage.conductor.cell_drains import CellDrains
from moorage.conductor.drains import Drains
from moorage.model.cell_drain import CellDrain, CellDrainRequest
from moorage.model.clock import SystemClock
from moorage.model.drain import Drain, DrainProgress, DrainStatus
from moorage.model.host import Host
from moorage.model.ids import CellId, ConductorId, HostId, OperationId
from moorage.model.operation import Accepted
from moorage.operations.context import SagaContext
from moorage.operations.records import cells as cell_writes
from moorage.operations.registry import SAGAS
from moorage.placement.inventory import host_id
from moorage.saga import MemoryJournal, execute, first_lines
from moorage.store.cell import hosts as cell_hosts
from moorage.store.region import cell_drains, drains
from moorage.store.region import servers as region_servers
from moorage.store.region.placement import cells
from moorage_testing.region_fixture import CELLS, SERVER, SmallRegion
from moorage_testing.region_shelved import shelved
from moorage_testing.saga_proof import PROVED_OPERATION

HOME, OTHER = CELLS
DRAIN = CellDrain(
    "7a1c1a0e-0000-4000-8000-00000000c001",
    HOME,
    asked_at=1,
    asked_by="admin",
    project="admins",
    asked=CellDrainRequest(hosts=1, confirm=False),
    status=DrainStatus.WAITING,
)


class RecordingDispatcher:
    """Executes nothing; keeps what is accepted, and the test executes it."""

    def __init__(self) -> None:
        self.accepted_: list[Accepted] = []

    async def choose(self, saga: str) -> ConductorId:
        return ConductorId("conductor1")

    async def begun(self, new: Accepted) -> None:
        self.accepted_.append(new)


class Ahead(SystemClock):
    """An hour later at each look: nothing is waited for."""

    def __init__(self) -> None:
        super().__init__()
        self._looks = 0

    def now(self) -> float:
        self._looks += 1
        return super().now() + 3_600.0 * self._looks


class Ground:
    """A small region with an offloaded server in its first cell, of which a drain is asked for."""

    def __init__(self, small: SmallRegion) -> None:
        self.small, self.dispatcher, self.clock = small, RecordingDispatcher(), Ahead()

    @property
    def context(self) -> SagaContext:
        return dataclasses.replace(self.small.context, dispatcher=cast("Any", self.dispatcher))

    async def round(self) -> CellDrain:
        """Run one round, and return the drain as it wrote it."""
        await CellDrains(self.context, self.clock).run()
        found = await self.small.region.read(lambda tx: cell_drains.get(tx, DRAIN.id))
        assert found is not None
        return found

    async def host_drains(self) -> dict[str, Drain]:
        found = await self.small.region.read(lambda tx: drains.listed(tx, None, 10))
        return {each.host: each for each in found}

    async def accepted(self) -> list[Accepted]:
        """What was since this was asked last."""
        began, self.dispatcher.accepted_ = self.dispatcher.accepted_, []
        return began

    async def end(self, new: Accepted) -> None:
        """Its operation comes to its good end."""
        saga = SAGAS[new.saga]
        asked = msgspec.json.decode(new.asked, type=saga.input_type)
        await execute(saga, new.id, asked, self.small.context, MemoryJournal(first_lines(saga), self.small.transact))


@pytest_asyncio.fixture
async def ground() -> AsyncIterator[Ground]:
    small = await SmallRegion.open()
    await shelved(small, offload=True)
    await small.region.write(lambda tx: region_servers.release(tx, SERVER, PROVED_OPERATION))
    for name in ("host1", "host8"):
        host = Host(0, HostId(host_id(name)), "", name, name, HOME)
        await small.cells[HOME].write(lambda tx, host=host: cell_hosts.report(tx, host, 1))  # type: ignore[misc]
    await small.region.write(lambda tx: cell_drains.ask(tx, DRAIN))
    yield Ground(small)
    await small.close()


async def test_hosts_are_drained_in_turn_and_records_are_moved(ground: Ground) -> None:
    now = await ground.round()
    said = (await ground.small.region.read(cells.every))[HOME]
    assert (said.disabled, said.reason, said.said_by) == (True, f"drain {DRAIN.id}", "admin")
    assert {each.host: each.progress for each in now.hosts} == {
        "host1": DrainProgress.MOVING,
        "host8": DrainProgress.WAITING,
    }
    (its,) = (await ground.host_drains()).values()
    assert (its.host, its.asked.across, its.asked.partial, its.asked.confirm) == ("host1", True, True, False)
    (new,) = await ground.accepted()
    assert (new.saga, msgspec.json.decode(new.asked)["to"]) == ("move_record/1", OTHER)
    (row,) = now.records
    assert (row.server, row.to, row.progress) == (SERVER, OTHER, DrainProgress.MOVING)

    await ground.end(new)
    await Drains(ground.context, ground.clock).run()  # nobody is on it
    now = await ground.round()
    assert (now.records, now.records_gone, now.status) == ((), 1, DrainStatus.RUNNING)
    assert {each.host: each.progress for each in now.hosts} == {
        "host1": DrainProgress.DONE,
        "host8": DrainProgress.MOVING,
    }
    await Drains(ground.context, ground.clock).run()
    now = await ground.round()
    assert (now.status, now.why, now.counts()["done"]) == (DrainStatus.DONE, "", 1)
    assert await ground.accepted() == []
    where = await ground.small.region.read(lambda tx: region_servers.find(tx, SERVER))
    assert where is not None
    assert where.cell == OTHER


async def test_moves_begun_before_a_crash_are_not_begun_again(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row was not written: the next leader finds the host's drain, and who holds the server."""
    with monkeypatch.context() as patched:
        patched.setattr(cell_drains, "write", lambda tx, now: False)
        now = await ground.round()
        assert (now.status, now.hosts, now.records) == (DrainStatus.WAITING, (), ())
    before = await ground.host_drains()
    (new,) = await ground.accepted()
    now = await ground.round()
    assert await ground.accepted() == []
    assert await ground.host_drains() == before
    assert [each.progress for each in now.hosts] == [DrainProgress.MOVING, DrainProgress.WAITING]
    assert [each.progress for each in now.records] == [DrainProgress.MOVING]
    await ground.end(new)
    assert (await ground.round()).records_gone == 1


async def test_a_busy_server_is_waited_for(ground: Ground) -> None:
    """Whatever its owner does to it takes no try, and when that is over its turn comes."""
    region, other = ground.small.region, OperationId("another")
    await region.write(lambda tx: region_servers.take(tx, SERVER, other, None))
    for _ in range(4):
        (row,) = (await ground.round()).records
        assert (row.progress, row.attempts, row.why) == (DrainProgress.WAITING, 0, "another action on it is under way")
    await region.write(lambda tx: region_servers.release(tx, SERVER, other))
    (row,) = (await ground.round()).records
    assert (row.progress, row.why) == (DrainProgress.MOVING, "")
    assert [each.saga for each in await ground.accepted()] == ["move_record/1"]


async def test_an_unconfigured_cell_does_not_delay_others(ground: Ground) -> None:
    """It was taken out of the configuration while it was being emptied."""
    gone = msgspec.structs.replace(DRAIN, id=DRAIN.id.replace("c001", "c000"), cell=CellId("gone"), asked_at=0)
    await ground.small.region.write(lambda tx: cell_drains.ask(tx, gone))
    assert (await ground.round()).status is DrainStatus.RUNNING


async def test_a_server_without_a_place_stays_after_three_tries(ground: Ground) -> None:
    region = ground.small.region
    await cell_writes.set_disabled(region, OTHER, 1, disabled=True, reason="", by="", configured=True)
    for progress in (DrainProgress.WAITING, DrainProgress.WAITING, DrainProgress.LEFT):
        now = await ground.round()
        assert [each.progress for each in now.records] == [progress]
        await Drains(ground.context, ground.clock).run()
    assert "the host's cell is disabled" in now.records[0].why
    now = await ground.round()
    assert (now.status, now.why) == (DrainStatus.INCOMPLETE, "1 servers stay")
    assert await ground.accepted() == []


async def test_a_cancelled_drain_begins_no_more_moves(ground: Ground) -> None:
    await ground.round()
    (new,) = await ground.accepted()
    await ground.small.region.write(lambda tx: cell_drains.cancel(tx, DRAIN.id))
    now = await ground.round()
    assert all(each.cancel for each in (await ground.host_drains()).values())
    assert now.status is DrainStatus.RUNNING, "what is on its way comes to its end"
    await Drains(ground.context, ground.clock).run()
    await ground.end(new)
    now = await ground.round()
    assert (now.status, now.records_gone) == (DrainStatus.CANCELLED, 1)
    assert {each.host: each.progress for each in now.hosts} == {
        "host1": DrainProgress.LEFT,
        "host8": DrainProgress.WAITING,
    }
    assert len(await ground.host_drains()) == 1
    assert (await ground.small.region.read(cells.every))[HOME].disabled, "it stays as it is"
