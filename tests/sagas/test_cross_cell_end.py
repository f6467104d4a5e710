"""A server that was moved to another cell is confirmed, reverted or deleted: what is kept, which outages delay nothing, and the reconciler."""

import dataclasses
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import msgspec
import pytest

from moorage.conductor.reconcilers.hidden_records import HiddenRecords, HiddenRecordsDone
from moorage.conductor.reconcilers.unconfirmed_resizes import ConfirmResizes
from moorage.model.clock import SystemClock
from moorage.model.errors import Conflict, Unavailable
from moorage.model.guest import PowerState
from moorage.model.ids import CellId, ConductorId, OperationId, ServerId
from moorage.model.migration import MigrationStatus
from moorage.model.operation import Accepted
from moorage.model.principal import Principal
from moorage.model.server import Server, VmState
from moorage.operations.context import SagaContext
from moorage.operations.delete import accept_delete
from moorage.operations.moves import move_ends
from moorage.operations.registry import SAGAS
from moorage.operations.resize import confirm_resize, revert_resize
from moorage.operations.steps import servers as records
from moorage.saga import MemoryJournal, Unwound, execute, first_lines
from moorage.store.cell import actions, migrations, record_transfer
from moorage.store.cell import servers as cell_servers
from moorage.store.cell.servers import Fence
from moorage.store.region import hidden_records
from moorage.store.region import servers as region_servers
from moorage_testing.proof_parts import PARTS
from moorage_testing.region_cells import records_held
from moorage_testing.region_crossed import about_crossed, crossed, released
from moorage_testing.region_fixture import CELLS, PROJECT, SERVER, SmallRegion
from moorage_testing.region_moved import MOVE, RESIZED, recorded
from moorage_testing.region_prepared import PreparedRegion
from moorage_testing.region_states import ATTACHED, attaching_volume
from moorage_testing.saga_proof import PROVED_OPERATION, prove

LEFT, THERE = CELLS
KINDS: dict[str, dict[str, Any]] = {
    "volumes": {"volumes": True},
    "off": {"state": VmState.STOPPED},
    "guarantees": {"guarantees": True},
}
OUT = Unavailable("the cell's database does not answer")
WHO = Principal(user="user-1", project=PROJECT)


@pytest.fixture
async def small() -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open()
    yield region
    await region.close()


async def execute_saga(small: SmallRegion, name: str, asked: Any, operation: OperationId = PROVED_OPERATION) -> None:
    saga = SAGAS[name]
    await execute(saga, operation, asked, small.context, MemoryJournal(first_lines(saga), small.transact))


async def held(small: SmallRegion) -> dict[str, Any]:
    return await records_held(small.region, small.cells, SERVER)


async def in_cell(small: SmallRegion, cell: CellId) -> Server | None:
    return await small.cells[cell].read(lambda tx: cell_servers.get(tx, SERVER))


class Out:
    """That cell takes no writes."""

    def __init__(self, small: SmallRegion, cell: CellId, monkeypatch: pytest.MonkeyPatch) -> None:
        self.away, self.write = True, small.cells[cell].write
        monkeypatch.setattr(small.cells[cell], "write", self)

    async def __call__(self, work: Callable[[Any], Any]) -> Any:
        if self.away:
            raise OUT
        return await self.write(work)


class RecordingDispatcher:
    """Keeps what is accepted."""

    def __init__(self, *unknown: str) -> None:
        self.told, self.unknown = list[Accepted](), unknown

    async def choose(self, saga: str) -> ConductorId:
        if saga in self.unknown:
            raise Unavailable(saga)
        return ConductorId("conductor1")

    async def begun(self, accepted: Accepted) -> None:
        self.told.append(accepted)


def with_dispatcher(small: SmallRegion, dispatcher: RecordingDispatcher, **settings: Any) -> SagaContext:
    context = dataclasses.replace(small.context, dispatcher=cast("Any", dispatcher))
    return dataclasses.replace(context, settings=dataclasses.replace(context.settings, **settings))


# ------------------------------------------------------------------------------------------------ confirm and revert


@pytest.mark.matrix
@pytest.mark.parametrize("part", [pytest.param(part, id=part.name) for part in PARTS if part.name == "failing"])
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("revert_resize/2", "volumes"),
        ("revert_resize/2", "off"),
        ("revert_resize/2", "guarantees"),
        ("delete/5", "volumes"),
    ],
)
async def test_every_kind_of_server_is_reverted_across_cells(
    small: SmallRegion, name: str, kind: str, part: Any
) -> None:
    world = KINDS[kind]
    asked = await about_crossed(small, name, **world)
    await prove(SAGAS[name], asked, PreparedRegion(small, lambda: crossed(small, **world)), part)


async def test_each_end_of_a_move_across_cells_is_shown_with_its_cell(small: SmallRegion) -> None:
    await crossed(small)
    [seen] = await move_ends.seen(small.context, await recorded(small), limit=5)
    assert (seen.source.host, seen.source.cell, seen.source.consumer) == ("host1", LEFT, MOVE)
    assert (seen.destination.host, seen.destination.cell, seen.destination.consumer) == ("host2", THERE, SERVER)


async def test_changes_and_attachments_since_the_move_survive_a_revert(small: SmallRegion) -> None:
    await crossed(small)
    before = await recorded(small)
    assert (before.cell, before.host, before.vm_state) == (THERE, "host2", VmState.RESIZED)
    await released(small)
    await small.hand_to(ATTACHED)
    await execute_saga(small, "attach_volume/1", msgspec.structs.replace(attaching_volume(ATTACHED), seq=3), ATTACHED)

    def renamed(server: Server) -> Server:
        return msgspec.structs.replace(server, name="renamed", tags=("new",))

    await records.change(small.context, THERE, SERVER, Fence(ATTACHED, 3, 1, 99), renamed)

    def moved_there_before(tx: Any) -> None:
        move = migrations.get(tx, MOVE)
        assert move is not None
        older = {"uuid": "older", "status": MigrationStatus.CONFIRMED, "source_cell": None, "dest_cell": None}
        migrations.put(tx, msgspec.structs.replace(move, **cast("Any", older)))

    await small.cells[THERE].write(moved_there_before)
    await small.hand_to(PROVED_OPERATION)
    asked = revert_resize.RevertResize(await recorded(small), 4, "req-revert", "user-1")
    await execute_saga(small, "revert_resize/2", asked)
    after = await recorded(small)
    assert (after.cell, after.host, after.vm_state, after.moved) == (LEFT, "host1", VmState.ACTIVE, None)
    assert (after.name, after.tags, after.flavor.id) == ("renamed", ("new",), "1")
    [volume] = after.volumes
    assert small.volumes.hosts[str(volume.attachment)] == "host1"
    assert {(host, state) for (host, _), state in small.hosts.guests.items()} == {("host1", PowerState.RUNNING)}
    done = await small.cells[LEFT].read(lambda tx: actions.of_server(tx, SERVER))
    assert {each.action: (each.finished_at is not None, each.message) for each in done} == dict.fromkeys(
        ("create", "resize", "attach_volume", "revertResize"), (True, None)
    )
    moved = await small.cells[LEFT].read(lambda tx: migrations.get(tx, MOVE))
    assert moved is not None
    assert (moved.status, moved.source_cell, moved.dest_cell) == (MigrationStatus.REVERTED, LEFT, THERE)
    older = await small.cells[LEFT].read(lambda tx: migrations.get(tx, "older"))
    assert older is not None
    assert (older.source_cell, older.dest_cell) == (THERE, THERE)
    assert await held(small) == {
        "shown in": LEFT,
        "records": [LEFT],
        "hidden in": [],
        "amiss": [],
        "left rows": [],
    }


async def test_a_revert_is_refused_while_the_old_cell_accepts_no_writes(
    small: SmallRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guest was not touched."""
    asked = await about_crossed(small, "revert_resize/2")
    before = await small.held()
    Out(small, LEFT, monkeypatch)
    saga, impatient = SAGAS["revert_resize/2"], revert_resize.open_cell.but()
    impatient.patience_s = 0.0
    paper = MemoryJournal(first_lines(saga), small.transact)
    with pytest.raises(Unwound, match="does not answer"):
        await execute(saga.but(impatient), PROVED_OPERATION, asked, small.context, paper)
    assert small.hosts.guests["host2", SERVER] is PowerState.RUNNING
    after = await small.held()
    assert {key: after[key] for key in ("claims", "shown in", "hidden in", "guests", "runs")} == {
        key: before[key] for key in ("claims", "shown in", "hidden in", "guests", "runs")
    }


@pytest.mark.parametrize("name", ["confirm_resize/2", "delete/5"])
async def test_an_unreachable_cell_delays_no_operation_and_the_round_cleans_up(
    small: SmallRegion, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    asked = await about_crossed(small, name)
    out = Out(small, LEFT, monkeypatch)
    await execute_saga(small, name, asked)
    left = await held(small)
    assert (left["shown in"], left["hidden in"], left["amiss"]) == (THERE if "confirm" in name else None, [LEFT], [])
    assert await HiddenRecords(small.context).run() == HiddenRecordsDone(looked_at=1, waiting=1)
    out.away = False
    assert await HiddenRecords(small.context).run() == HiddenRecordsDone(looked_at=1, removed=(SERVER,))
    assert await in_cell(small, LEFT) is None
    left = await held(small)
    assert (left["hidden in"], left["left rows"]) == ([], [])
    assert await HiddenRecords(small.context).run() == HiddenRecordsDone()


# -------------------------------------------------------------------------------------------------------- the round


async def test_hidden_records_already_fine(small: SmallRegion) -> None:
    """One that waits to be confirmed or reverted needs both of its records, and so does what an operation holds."""
    await crossed(small)
    before = await held(small)
    nothing = HiddenRecordsDone(looked_at=1)
    assert await HiddenRecords(small.context).run() == nothing
    await released(small)
    assert await HiddenRecords(small.context).run() == nothing

    def ended(tx: Any) -> None:
        move = migrations.get(tx, MOVE)
        assert move is not None
        migrations.put(tx, msgspec.structs.replace(move, status=MigrationStatus.ERROR))

    await small.cells[THERE].write(ended)
    assert await HiddenRecords(small.context).run() == nothing, "its record says where it may go back to"
    assert await held(small) == before


async def test_hidden_records_of_a_server_with_a_lost_record_are_kept(small: SmallRegion) -> None:
    await released(await crossed(small))
    await small.cells[THERE].write(lambda tx: tx.run(cell_servers.servers.delete()))
    await small.cells[THERE].write(lambda tx: tx.run(migrations.migrations.delete()))
    assert await HiddenRecords(small.context).run() == HiddenRecordsDone(looked_at=1)
    assert await in_cell(small, LEFT) is not None


async def test_the_record_that_is_shown_is_never_removed(small: SmallRegion) -> None:
    """Whatever a row says."""
    await released(await crossed(small))
    await small.region.write(lambda tx: hidden_records.open_row(tx, SERVER, THERE))
    await HiddenRecords(small.context).run()
    assert await in_cell(small, THERE) is not None


async def test_an_operation_that_begins_during_the_round_is_not_refused(
    small: SmallRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It writes to the cell while the round removes what was there: the row of the region stays for it."""
    asked, later = await about_crossed(small, "confirm_resize/2"), OperationId("later")
    out = Out(small, LEFT, monkeypatch)
    await execute_saga(small, "confirm_resize/2", asked)
    out.away = False
    remove = record_transfer.remove_record

    def removed(tx: Any, server: ServerId, fence: Fence) -> None:
        remove(tx, server, fence)
        monkeypatch.setattr(record_transfer, "remove_record", remove)

    round_ = HiddenRecords(small.context)
    whole = round_._remove

    async def taken(where: Any, cell: CellId) -> bool:
        await small.hand_to(later)
        return await whole(where, cell)

    monkeypatch.setattr(record_transfer, "remove_record", removed)
    monkeypatch.setattr(round_, "_remove", taken)
    assert await round_.run() == HiddenRecordsDone(looked_at=1)
    assert (await held(small))["hidden in"] == [LEFT]
    server = await recorded(small)
    by = Fence(later, asked.seq + 1, 1, 1)
    await small.cells[LEFT].write(lambda tx: record_transfer.copy(tx, record_transfer.RecordCopy(server), by))
    assert await in_cell(small, LEFT) is not None


# -------------------------------------------------------------------------------------------------- which version


@pytest.mark.parametrize("across", [True, False])
async def test_the_sagas_version_follows_from_the_move(
    small: SmallRegion, monkeypatch: pytest.MonkeyPatch, across: bool
) -> None:
    await released(await crossed(small))
    if not across:
        await records.change(
            small.context, THERE, SERVER, Fence(RESIZED, 3, 1, 1),
            lambda now: msgspec.structs.replace(now, moved=msgspec.structs.replace(cast("Any", now.moved), cell=None)),
        )  # fmt: skip
    server, dispatcher = await recorded(small), RecordingDispatcher()
    context = with_dispatcher(small, dispatcher, resize_confirm_window_s=3600)

    async def freed() -> str:
        new = dispatcher.told.pop()
        await released(small, new.id)
        return new.saga

    await confirm_resize.begin(context, server, "user-1", PROJECT, check=lambda _: None)
    assert await freed() == ("confirm_resize/2" if across else "confirm_resize/1")
    await revert_resize.begin(context, WHO, server, check=lambda _: None)
    assert await freed() == ("revert_resize/2" if across else "revert_resize/1")
    await accept_delete.begin(context, WHO, server)
    assert await freed() == ("delete/5" if across else "delete/4")
    old = RecordingDispatcher("delete/5")
    await accept_delete.begin(with_dispatcher(small, old), WHO, server)
    assert [each.saga for each in old.told] == ["delete/4"], "what it leaves goes with the round"
    await released(small, old.told[0].id)
    if across:
        elsewhere = msgspec.structs.replace(server, moved=None)
        for begin in (
            confirm_resize.begin(context, elsewhere, "user-1", PROJECT, check=lambda _: None),
            revert_resize.begin(context, WHO, elsewhere, check=lambda _: None),
        ):
            with pytest.raises(Conflict, match="moved again"):
                await begin

    class Later(SystemClock):
        def now(self) -> float:
            return super().now() + 7200.0

    done = await ConfirmResizes(context, Later()).run()
    assert (done.looked_at, done.begun) == (1, (SERVER,)), "one of the two records is shown"
    assert dispatcher.told[0].saga == ("confirm_resize/2" if across else "confirm_resize/1")


async def test_rounds_by_state_skip_sealed_records(small: SmallRegion) -> None:
    await crossed(small)
    found = {
        cell: await small.cells[cell].read(lambda tx, state=state: cell_servers.in_state(tx, state, "", 10))
        for cell, state in ((LEFT, VmState.ACTIVE), (THERE, VmState.RESIZED))
    }
    assert {cell: len(each) for cell, each in found.items()} == {LEFT: 0, THERE: 1}
    where = await small.region.read(lambda tx: region_servers.find(tx, SERVER))
    assert where is not None
    assert where.cell == THERE
