"""Servers whose stores contradict each other: nothing is destroyed, switched, released, deleted or begun (RULES §26)."""

import dataclasses
import types
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from tests.helpers.drifted_ports import ImmediateDispatcher
from tests.sagas.test_missing_records import told_wrong
from tests.sagas.test_orphan_images import plant, rounds

from moorage.bus.agent_calls import HostAddress
from moorage.bus.host_messages import HostReport
from moorage.bus.memory import MemoryBus
from moorage.conductor.cell_conductor import CellConductor
from moorage.conductor.reconcile_loop import ReconcileLoop
from moorage.conductor.reconcilers.doubtful_servers import DoubtfulServers, DoubtfulServersDone
from moorage.conductor.reconcilers.orphan_allocations import OrphanAllocations
from moorage.conductor.reconcilers.orphan_attachments import OrphanAttachments
from moorage.conductor.reconcilers.orphan_images import GRACE_S
from moorage.conductor.reconcilers.orphan_ports import OrphanPorts
from moorage.conductor.reconcilers.quota_usage import QuotaUsage
from moorage.main.adopt_doubts import accept_records
from moorage.main.observability.process_metrics import doubtful_by_cell
from moorage.model.clock import SystemClock
from moorage.model.errors import Doubtful, Invalid
from moorage.model.guest import PowerState, ResourceInventory
from moorage.model.ids import CellId, ImageId, OperationId
from moorage.model.principal import Principal
from moorage.model.server import Server
from moorage.operations.delete import accept_delete
from moorage.operations.doubtful_servers import DoubtfulServer, doubtful_in
from moorage.operations.guest import crash_dump, power
from moorage.operations.registry import SAGAS
from moorage.operations.shelve.shelve import Shelve, delete_image
from moorage.operations.steps import live_positions
from moorage.operations.steps import servers as records
from moorage.operations.steps.live_positions import LiveMovePath
from moorage.saga import MemoryJournal, execute, first_lines
from moorage.store.cell import servers as cell_servers
from moorage.store.cell.servers import Fence
from moorage.store.doubts import Doubt
from moorage.store.region import servers as region_servers
from moorage_testing.region_fixture import PROJECT, SERVER, SmallRegion, a_boot, a_server

BOOT = OperationId("boot")
WHO = Principal(user="user-1", project=PROJECT)
MOVE = "0d0c0b0a-0000-4000-8000-00000000c0de"
NEWER: dict[str, dict[str, int]] = {
    "the cell went back": {"op_seq": 4, "recorded_seq": 4},
    "the region went back": {"op_seq": 0, "recorded_seq": 0},
}


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[SmallRegion]:
    """One server, booted, that nobody holds."""
    region = await SmallRegion.open(tmp_path)
    await region.fresh(a_server(), BOOT)
    boot = SAGAS["boot/1"]
    await execute(boot, BOOT, a_boot(BOOT), region.context, MemoryJournal(first_lines(boot), region.transact))
    await region.region.write(lambda tx: region_servers.release(tx, SERVER, BOOT, drop_order=True, recorded=1))
    yield region
    await region.close()


async def numbers(small: SmallRegion, **numbers: int) -> CellId:
    """Set the region's numbers; the record is of operation 1. Returns the server's cell."""
    if numbers:
        await small.region.write(lambda tx: tx.run(region_servers.servers.update().values(numbers)))
    where = await small.region.read(lambda tx: region_servers.find(tx, SERVER))
    assert where is not None
    assert where.cell is not None
    return where.cell


async def change(small: SmallRegion, **changes: Any) -> None:
    """Write the record as its last operation did."""
    cell, by = await numbers(small), Fence(BOOT, 1, 9, 1)
    await records.change(small.context, cell, SERVER, by, lambda server: msgspec.structs.replace(server, **changes))


@pytest.mark.parametrize("which", NEWER)
async def test_nothing_that_it_holds_is_released(small: SmallRegion, which: str) -> None:
    await change(small, host=None, nics=())  # as before it was there: each of the rounds would release everything
    await numbers(small, **NEWER[which])
    before = await small.held()
    assert (await OrphanPorts(small.context).run()).mended == 0
    assert (await OrphanAllocations(small.context).run()).released == ()
    assert (await OrphanAttachments(small.context).run()).dropped == ()
    after = await small.held()
    assert (after["ports"], after["claims"]) == (before["ports"], before["claims"])
    await numbers(small, op_seq=1, recorded_seq=1)
    assert (await OrphanAllocations(small.context).run()).released == (SERVER,), (
        "the stores agree, and the record decides"
    )


@pytest.mark.parametrize("which", NEWER)
async def test_its_guest_stays_where_it_is(small: SmallRegion, which: str) -> None:
    """By its record it is on another host."""
    cell = await numbers(small)
    host = next(host for host, _ in small.hosts.guests)
    await change(small, host="host3" if host != "host3" else "host1")
    await numbers(small, **NEWER[which])
    assert await told_wrong(small, cell, SERVER) == []
    await numbers(small, op_seq=1, recorded_seq=1)
    assert await told_wrong(small, cell, SERVER) == [SERVER]


async def test_an_image_is_kept_that_the_older_record_does_not_name(small: SmallRegion) -> None:
    plant(small, "disk", "shelve", whole=True)
    await numbers(small, op_seq=2, recorded_seq=2)
    _, late = await rounds(small, GRACE_S + 1)
    assert (late.deleted, late.suspected) == ((), 0)
    await numbers(small, op_seq=2, recorded_seq=1)
    _, late = await rounds(small, GRACE_S + 1)
    assert late.deleted == ("disk",)


@pytest.mark.parametrize("which", NEWER)
async def test_operations_on_it_are_refused(small: SmallRegion, which: str) -> None:
    await numbers(small, **NEWER[which])
    server = (await records.find(small.context, SERVER)).server
    assert server is not None
    context = dataclasses.replace(small.context, dispatcher=cast("Any", ImmediateDispatcher(small)))
    with pytest.raises(Doubtful, match="left alone until an administrator has decided"):
        await power.begin(context, WHO, server, "stop")
    with pytest.raises(Doubtful):
        await crash_dump.begin(context, WHO, server, check=lambda now: None)
    with pytest.raises(Doubtful):
        await accept_delete.begin(context, WHO, server)
    where = await small.region.read(lambda tx: region_servers.find(tx, SERVER))
    assert where is not None
    assert (where.operation, where.op_seq) == (None, NEWER[which]["op_seq"])


@pytest.mark.parametrize(
    ("which", "doubt", "known"),
    [("the cell went back", Doubt.RECORD_OLDER, 4), ("the region went back", Doubt.REGION_OLDER, 0)],
)
async def test_it_is_listed_and_its_project_is_not_counted(
    small: SmallRegion, which: str, doubt: Doubt, known: int
) -> None:
    cell = await numbers(small, **NEWER[which])
    found = await doubtful_in(small.region, cell, small.cells[cell])
    assert found == [DoubtfulServer(SERVER, doubt, record=1, known=known)]
    assert (await QuotaUsage(small.context).run()).mended == ()


async def test_doubtful_servers_already_fine(small: SmallRegion) -> None:
    assert await DoubtfulServers(small.context).run() == DoubtfulServersDone(dict.fromkeys(small.cells, 0))


@pytest.mark.parametrize("which", NEWER)
async def test_doubtful_servers_are_counted_for_the_metrics(
    small: SmallRegion, which: str, caplog: pytest.LogCaptureFixture
) -> None:
    cell, rounds = await numbers(small, **NEWER[which]), ReconcileLoop(SystemClock())
    round_of = DoubtfulServers(small.context)
    assert doubtful_by_cell(rounds) == [], "no round has ended yet"
    for _ in range(2):
        await rounds.once("doubtful_servers", round_of.run)
    assert sorted(doubtful_by_cell(rounds)) == [((each,), int(each == cell)) for each in sorted(small.cells)]
    assert [SERVER in each for each in caplog.messages if "went back" in each] == [True], "each is named once"
    await small.cells[cell].close()
    await rounds.once("doubtful_servers", round_of.run)
    assert cell not in {labels[0] for labels, _ in doubtful_by_cell(rounds)}, "what is not known is not shown"


async def test_a_person_accepts_a_record_as_it_stands(small: SmallRegion) -> None:
    """It is no longer doubtful, and the next operation counts on; one that is under way knows more than the record."""
    cell = await numbers(small, **NEWER["the cell went back"])
    database = small.cells[cell]
    assert await accept_records(small.region, cell, database, ["another"]) == []
    await small.region.write(lambda tx: tx.run(region_servers.servers.update().values(operation="held")))
    with pytest.raises(Invalid, match="under way"):
        await accept_records(small.region, cell, database, [SERVER])
    assert len(await doubtful_in(small.region, cell, database)) == 1
    await small.region.write(lambda tx: tx.run(region_servers.servers.update().values(operation=None)))
    [said] = await accept_records(small.region, cell, database, [SERVER])
    assert "counts as it stands, as of operation 1 of 4" in said
    assert await doubtful_in(small.region, cell, database) == []
    where = await small.region.read(lambda tx: region_servers.find(tx, SERVER))
    assert where is not None
    assert where.op_seq == 4
    await numbers(small, **NEWER["the region went back"])
    assert await accept_records(small.region, cell, database, [SERVER]) == [], "adopt counts on from what the cell has"


async def test_a_host_that_has_obeyed_more_than_both_databases_know(small: SmallRegion) -> None:
    """Both are of one moment; only the host's turn is newer."""
    cell = await numbers(small)
    host = next(host for host, _ in small.hosts.guests)
    assert await doubtful_in(small.region, cell, small.cells[cell]) == []
    conductor = CellConductor(cell, small.cells[cell], small.region, small.engine, MemoryBus(), SystemClock())
    report = HostReport(
        host=host,
        cell=cell,
        host_id="x",
        boot="b",
        inventory={"VCPU": ResourceInventory(8)},
        guests={SERVER: PowerState.RUNNING},
        turns={SERVER: 1},
    )
    await conductor.take_report(report)
    assert await doubtful_in(small.region, cell, small.cells[cell]) == [], "what the region knows itself is no news"
    await conductor.take_report(msgspec.structs.replace(report, turns={SERVER: 3}))
    found = await doubtful_in(small.region, cell, small.cells[cell])
    assert [(each.doubt, each.known) for each in found] == [(Doubt.RECORD_OLDER, 3)]
    where = await small.region.read(lambda tx: region_servers.find(tx, SERVER))
    assert where is not None
    assert where.op_seq == 3, "the next operation counts on above what the host has seen"


async def test_a_report_shows_the_region_which_operation_is_recorded(small: SmallRegion) -> None:
    """For what earlier releases have ended."""
    cell = await numbers(small, op_seq=1, recorded_seq=0)
    assert await told_wrong(small, cell, SERVER) == []
    where = await small.region.read(lambda tx: region_servers.find(tx, SERVER))
    assert where is not None
    assert where.recorded_seq == 1


async def test_a_write_upon_a_record_that_went_back_is_refused(small: SmallRegion) -> None:
    """The operation was accepted with a newer one."""
    cell = await numbers(small)
    row = await small.cells[cell].read(lambda tx: cell_servers.get(tx, SERVER))
    assert row is not None
    by = Fence(OperationId("next"), 2, 1, 1, after=row.op_epoch + 1)
    with pytest.raises(Doubtful):
        await records.change(small.context, cell, SERVER, by, lambda server: server)


# -------------------------------------------------------------------------------------------- none is no proof


def moving(small: SmallRegion, source: str, to: str) -> tuple[Any, LiveMovePath]:
    run = types.SimpleNamespace(
        context=small.context, input=types.SimpleNamespace(server=a_server(), seq=2, request_id=""), operation="o", attempt=1,
        phase="undo", epoch=1, past=False, turned=None, cancelled=None, unsure=False,
    )  # fmt: skip
    cell = CellId("cell1")
    return cast("Any", run), LiveMovePath(HostAddress(cell, source), HostAddress(cell, to), MOVE)


async def test_a_source_that_does_not_know_the_move_proves_nothing(small: SmallRegion) -> None:
    run, way = moving(small, "host1", "host3")
    small.hosts.guests = {("host3", SERVER): PowerState.RUNNING}
    now = await live_positions.now_at(run, way.source, MOVE)
    assert now is not None
    assert not await live_positions.stays_for_certain(run, way, now)
    assert await live_positions.may_run_at_destination(run, way, "look")
    assert not await live_positions.closed(run, way, "close")
    small.hosts.guests = {("host1", SERVER): PowerState.RUNNING, ("host3", SERVER): PowerState.PAUSED}
    assert await live_positions.stays_for_certain(run, way, now), "it says that it has the guest"
    assert not await live_positions.may_run_at_destination(run, way, "look")
    small.hosts.guests, small.hosts.waits = {("host3", SERVER): PowerState.PAUSED}, {("host3", SERVER): MOVE}
    assert await live_positions.stays_for_certain(run, way, now), "nothing runs at the destination"
    assert not await live_positions.may_run_at_destination(run, way, "look")
    assert small.hosts.guests == {}


@pytest.mark.parametrize("guest", [True, False])
async def test_a_shelves_undo_keeps_a_whole_image_while_no_host_has_the_guest(small: SmallRegion, guest: bool) -> None:
    plant(small, "disk", "shelve", whole=True)
    server = (await records.find(small.context, SERVER)).server
    assert isinstance(server, Server)
    if not guest:
        small.hosts.guests.clear()
    input = Shelve(server, 2, ImageId("disk"))
    run = cast("Any", types.SimpleNamespace(context=small.context, input=input, cancelled=None, operation="o"))
    if guest:
        await delete_image(run)
        assert "disk" not in small.images.whole
    else:
        with pytest.raises(Doubtful):
            await delete_image(run)
        assert "disk" in small.images.whole
