"""What the conductors of two cells decide about a server that moves from one to the other, at each moment of the move and after it."""

from functools import partial
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa
from tests.helpers.cell_conductor import BOOT, ON, CellUnderTest, Out, at, known

from moorage.bus.host_messages import ServersOfHost, ServerTurn
from moorage.conductor.guest_reconciliation import Belonging, Judged
from moorage.conductor.reconcilers.hidden_records import HiddenRecords, HiddenRecordsDone
from moorage.conductor.reconcilers.orphan_allocations import OrphanAllocations
from moorage.conductor.reconcilers.quota_usage import QuotaUsage
from moorage.model.errors import Conflict, Unavailable
from moorage.model.fencing_token import LAST_ATTEMPT, UNDO, FencingToken
from moorage.model.guest import PowerState
from moorage.model.ids import CellId, OperationId, ServerId
from moorage.model.migration import MigrationStatus, MigrationType
from moorage.model.server import VmState
from moorage.operations.records import hosts as words
from moorage.sql import Tx
from moorage.store.cell import hosts as cell_hosts
from moorage.store.cell import migrations as cell_migrations
from moorage.store.cell import record_transfer, server_lists, server_queries, usage_audits
from moorage.store.cell import servers as cell_servers
from moorage.store.cell.servers import Fence
from moorage.store.region import hidden_records, operations
from moorage.store.region import servers as region_servers
from moorage.store.region.placement import claim_statements
from moorage.store.region.placement.tables import consumers
from moorage.store.server_lists import ServerQuery
from moorage_testing.fake_server_service import a_migration
from moorage_testing.region_fixture import HOSTS, SERVER

__all__ = ["at"]

STEPS = ("begin", "open", "seal", "copy", "flip", "over", "remove", "end")


class Crossing:
    """A move of the server to a host of the other cell, step by step, and what either cell's conductor says of guests."""

    def __init__(self, at: CellUnderTest, type: MigrationType = MigrationType.RESIZE) -> None:
        self.at, self.small, self.type = at, at.small, type
        self.left, self.old = at.cell, at.host
        self.there, self.new = next((cell, host) for host, cell in HOSTS if cell != at.cell)
        self.seq = 2
        self.uuid = a_migration(1).uuid

    async def to(self, last: str) -> "Crossing":
        for step in STEPS[: STEPS.index(last) + 1]:
            await getattr(self, f"_{step}")()
        return self

    def fence(self, line: int) -> Fence:
        return Fence(BOOT, self.seq, 1, line)

    async def status(self, cell: CellId, status: MigrationStatus) -> None:
        move = a_migration(1, self.type, status, server=SERVER, source_host=self.old, dest_host=self.new)
        await self.small.cells[cell].write(lambda tx: cell_migrations.put(tx, move))

    async def claim(self, host: str, by: OperationId | None) -> None:
        world = self.small.engine.world()
        claimed = sa.update(consumers).values(operation=by, attempt=1, host=world.host_ids[world.slots_by_name[host]])
        await self.small.region.write(lambda tx: tx.run(claimed))

    async def _begin(self) -> None:
        """The operation holds the server, its claim is on the new host, and the cell that is left has its migration."""
        await self.at.held()
        hold = sa.update(region_servers.servers).values(op_seq=self.seq, doc=None)
        seq = sa.update(operations.operations).values(seq=self.seq)
        await self.small.region.write(lambda tx: (tx.run(hold), tx.run(seq)))
        await self.status(self.left, MigrationStatus.MIGRATING)
        await self.claim(self.new, BOOT)

    async def _open(self) -> None:
        await self.small.region.write(lambda tx: hidden_records.open_row(tx, SERVER, self.there))

    async def _seal(self) -> None:
        await self.small.cells[self.left].write(lambda tx: record_transfer.seal(tx, SERVER, self.fence(3)))

    async def _copy(self) -> None:
        found = await self.small.cells[self.left].read(lambda tx: record_transfer.read(tx, SERVER))
        assert found is not None
        there = msgspec.structs.replace(found.server, cell=self.there, host=self.new)
        done = MigrationStatus.DONE if self.type is MigrationType.EVACUATION else MigrationStatus.FINISHED
        moves = [msgspec.structs.replace(each, status=done) for each in found.migrations]
        copy = msgspec.structs.replace(found, server=there, migrations=moves)
        await self.small.cells[self.there].write(lambda tx: record_transfer.copy(tx, copy, self.fence(3)))

    async def _flip(self) -> None:
        def work(tx: Tx) -> None:
            assert region_servers.show_in(tx, SERVER, BOOT, self.left, self.there)
            hidden_records.end_row(tx, SERVER, self.there, 1)
            hidden_records.open_row(tx, SERVER, self.left)

        await self.small.region.write(work)
        if self.type is MigrationType.EVACUATION:
            await self.status(self.left, MigrationStatus.DONE)

    async def _over(self) -> None:
        def work(tx: Tx) -> None:
            region_servers.release(tx, SERVER, BOOT)
            tx.run(sa.update(operations.operations).values(ended_at=1, status="done"))

        await self.small.region.write(work)

    async def _remove(self) -> None:
        await self.small.cells[self.left].write(lambda tx: record_transfer.remove_record(tx, SERVER, self.fence(9)))

    async def _end(self) -> None:
        await self.small.region.write(lambda tx: hidden_records.end_row(tx, SERVER, self.left, 1))

    # ------------------------------------------------------------------------------------------- what is believed

    async def judged(self, cell: CellId, host: str, region: Any = None) -> Judged:
        small = self.small
        judge = Belonging(cell, small.cells[cell], region or small.region, small.engine)
        return await judge.judge(host, [SERVER])

    async def of_old(self) -> ServerTurn | None:
        """What the host that is left is told of its guest."""
        return next(iter((await self.judged(self.left, self.old)).turns), None)

    async def of_new(self) -> ServerTurn | None:
        return next(iter((await self.judged(self.there, self.new)).turns), None)


def belongs(told: ServerTurn | None, *, running: bool) -> bool:
    return told is not None and (told.here, told.running) == (True, running)


@pytest.mark.parametrize("last", STEPS[:6])
async def test_both_guests_are_kept_until_the_move_is_confirmed(at: CellUnderTest, last: str) -> None:
    """The old one is not started any more once its record is sealed; of the new one nothing is said before it has a record."""
    move = await Crossing(at).to(last)
    assert belongs(await move.of_old(), running=last in {"begin", "open"})
    new = await move.of_new()
    assert new is None if last in {"begin", "open", "seal"} else belongs(new, running=True)
    if last == "over":
        assert (await move.judged(move.left, move.old)).absent == frozenset()


async def test_the_old_guest_is_destroyed_after_the_confirm(at: CellUnderTest) -> None:
    move = await Crossing(at).to("remove")
    for _ in range(2):
        old = await move.of_old()
        assert old is not None
        assert (old.here, old.gone, old.turn) == (False, False, FencingToken(2, LAST_ATTEMPT, UNDO))
        assert belongs(await move.of_new(), running=True)
        await move._end()


async def test_an_undone_copy_keeps_no_guest(at: CellUnderTest) -> None:
    """Its cell was out, so the record is there still, and is not sealed: the region says where the server is."""
    move = await Crossing(at).to("copy")
    await move.small.cells[move.left].write(lambda tx: record_transfer.unseal(tx, SERVER, move.fence(5)))
    await move.status(move.left, MigrationStatus.ERROR)
    await move.claim(move.old, None)
    await move._over()
    assert belongs(await move.of_old(), running=True)
    new = await move.of_new()
    assert new is not None
    assert (new.here, new.turn) == (False, FencingToken(2, LAST_ATTEMPT, UNDO))


@pytest.mark.parametrize("sealed", [False, True], ids=["restored", "sealed"])
async def test_a_returning_cell_destroys_guests_evacuated_into_another_cell(at: CellUnderTest, sealed: bool) -> None:
    """Its row names the host still, sealed or as it was before the evacuation, when the cell was out."""
    await known(at)
    move = await Crossing(at, MigrationType.EVACUATION).to("over")
    if not sealed:
        unsealed = cell_servers.servers.update().values(hidden=False)
        await move.small.cells[move.left].write(lambda tx: tx.run(unsealed))
        await move.small.cells[move.left].write(lambda tx: cell_migrations.forget(tx, [SERVER]))
    await at.say(at.report(ON))
    (told,) = at.heard(ServersOfHost)
    assert [(each.server, each.here, each.turn) for each in told.servers] == [
        (SERVER, False, FencingToken(2, LAST_ATTEMPT, UNDO))
    ]
    assert belongs(await move.of_new(), running=True)


async def test_a_move_that_advances_between_two_reads_destroys_no_guest(at: CellUnderTest) -> None:
    """The cell was read before the move began, and the region after the flip: the cell is read again, and its migration is open."""
    move = Crossing(at)

    class TornRegion:
        reads = 0

        async def read(self, work: Any) -> Any:
            if not self.reads:
                await move.to("over")
            self.reads += 1
            return await at.small.region.read(work)

    torn = TornRegion()
    judged = await move.judged(move.left, move.old, torn)
    assert [(each.here, each.running) for each in judged.turns] == [(True, False)]
    assert torn.reads == 1


async def test_records_of_a_host_match_its_guests(at: CellUnderTest) -> None:
    """The numbers that its beats are held against: the old guest is off, and after the confirmation there is none."""
    move = await Crossing(at).to("over")
    states = partial(server_queries.power_states, hosts=[move.old])
    left = move.small.cells[move.left]
    assert await left.read(states) == {move.old: {SERVER: PowerState.SHUTDOWN}}
    await move.status(move.left, MigrationStatus.CONFIRMED)
    assert await left.read(states) == {move.old: {}}, "a sealed record that nobody needs tells of no guest"


async def test_rounds_of_a_cell_skip_sealed_records(at: CellUnderTest) -> None:
    move = await Crossing(at).to("over")
    away = cell_servers.servers.update().values(vm_state=VmState.RESIZED.value, launched_at=5)
    soft = ServerQuery(vm_states=(VmState.RESIZED.value,), soft_deleted=True, limit=5)
    for cell, found in ((move.left, []), (move.there, [SERVER])):
        database = move.small.cells[cell]
        await database.write(lambda tx: tx.run(away))
        looks: dict[str, Any] = {
            "port drift": partial(cell_servers.living, after="", limit=5),
            "unconfirmed and shelved": partial(cell_servers.in_state, state=VmState.RESIZED, after="", limit=5),
            "drains": partial(cell_servers.on_host, host=move.old if cell == move.left else move.new),
            "reclaim": partial(server_lists.page, query=soft, sealed=False),
            "usage audit": partial(usage_audits.page, began=0, ended=9, after=ServerId(""), limit=5),
        }
        for who, look in looks.items():
            assert [each.id for each in await database.read(look)] == found, (who, cell)
        by_host = await database.read(partial(usage_audits.by_host, began=0, ended=9))
        assert sum(by_host.values()) == len(found)


@pytest.mark.parametrize("last", ["over", "copy"], ids=["moved", "taken-back"])
async def test_a_recount_of_quota_counts_a_server_with_two_records_once(at: CellUnderTest, last: str) -> None:
    """Also where a copy that was taken back is left, which is not sealed."""
    move = await Crossing(at).to(last)
    if last == "copy":
        await move.small.cells[move.left].write(lambda tx: record_transfer.unseal(tx, SERVER, move.fence(5)))
        await move._over()
    done = await QuotaUsage(move.small.context, mends=False).run()
    assert [each.now["instances"] for each in done.mended] in ([], [1])
    unhidden = sa.delete(hidden_records.hidden_records)
    await move.small.region.write(lambda tx: tx.run(unhidden))
    done = await QuotaUsage(move.small.context, mends=False).run()
    assert [each.now["instances"] for each in done.mended] == [2], "both would be counted"


async def test_the_claim_of_a_move_is_kept_until_both_cells_say_it_has_ended(at: CellUnderTest) -> None:
    move = await Crossing(at).to("over")
    table = consumers.update().values(uuid=move.uuid, type=claim_statements.MIGRATION, operation="a move")
    held = sa.text("UPDATE allocations SET consumer = :uuid").bindparams(uuid=move.uuid)
    await move.small.region.write(lambda tx: (tx.run(table), tx.run(held)))
    await move.status(move.left, MigrationStatus.CONFIRMED)
    assert (await OrphanAllocations(move.small.context).run()).released == ()
    await move.status(move.left, MigrationStatus.FINISHED)
    await move.status(move.there, MigrationStatus.CONFIRMED)
    assert (await OrphanAllocations(move.small.context).run()).released == ()
    await move.status(move.left, MigrationStatus.CONFIRMED)
    assert (await OrphanAllocations(move.small.context).run()).released == (move.uuid,)


async def test_a_deleted_server_is_kept_while_it_has_a_hidden_record(at: CellUnderTest) -> None:
    move = await Crossing(at).to("over")
    await move.small.region.write(lambda tx: region_servers.mark_deleted(tx, SERVER, 1))
    old = partial(region_servers.long_deleted, before_us=5)
    assert await move.small.region.read(old) == []
    await move._end()
    assert await move.small.region.read(old) == [SERVER]


# ------------------------------------------------------------------------------------------- evacuated hosts that are back


async def statuses(move: Crossing) -> list[MigrationStatus]:
    found = []
    for cell in (move.there, move.left):
        row = await move.small.cells[cell].read(partial(cell_migrations.get, uuid=move.uuid))
        assert row is not None
        found.append(row.status)
    return found


@pytest.fixture
async def evacuated(at: CellUnderTest) -> Crossing:
    await known(at)
    at.conductor.comparison.cells = dict(at.small.cells)
    return await Crossing(at, MigrationType.EVACUATION).to("over")


async def test_an_evacuation_into_another_cell_ends_when_its_host_returns_without_the_guest(
    at: CellUnderTest, evacuated: Crossing
) -> None:
    """In the cell that shows the server first: while that one is out, it is looked at again."""
    await at.say(at.report(ON))
    assert await statuses(evacuated) == [MigrationStatus.DONE, MigrationStatus.DONE], "the guest is there still"
    there = at.small.cells[evacuated.there]
    at.conductor.comparison.cells = {**at.small.cells, evacuated.there: Out(there)}  # type: ignore[dict-item]
    await at.say(at.report({}))
    assert await statuses(evacuated) == [MigrationStatus.DONE, MigrationStatus.DONE]
    at.conductor.comparison.cells = dict(at.small.cells)
    await at.say(at.report({}))
    assert await statuses(evacuated) == [MigrationStatus.COMPLETED, MigrationStatus.COMPLETED]


async def test_an_evacuation_into_another_cell_ends_when_its_host_is_removed(
    at: CellUnderTest, evacuated: Crossing
) -> None:
    small, left = at.small, at.small.cells[at.cell]
    await evacuated.claim(evacuated.new, None)
    moved = sa.text("DELETE FROM allocations")
    await small.region.write(lambda tx: tx.run(moved))
    host = await left.read(lambda tx: cell_hosts.named(tx, at.host))
    assert host is not None
    cells: dict[str, Any] = {**small.cells, evacuated.there: Out(small.cells[evacuated.there])}
    with pytest.raises(Unavailable):
        await words.delete(small.region, cells, left, host, 1)
    assert await statuses(evacuated) == [MigrationStatus.DONE, MigrationStatus.DONE]
    await words.delete(small.region, dict(small.cells), left, host, 1)
    assert await statuses(evacuated) == [MigrationStatus.COMPLETED, MigrationStatus.COMPLETED]


async def test_an_evacuation_not_marked_as_done_in_the_old_cell_ends_too(
    at: CellUnderTest, evacuated: Crossing
) -> None:
    """It has `migrating` still, for its database was out when that was to be said."""
    await evacuated.status(evacuated.left, MigrationStatus.MIGRATING)
    await at.say(at.report(ON))
    assert await statuses(evacuated) == [MigrationStatus.DONE, MigrationStatus.MIGRATING], "the guest is there still"
    await at.say(at.report({}))
    assert await statuses(evacuated) == [MigrationStatus.COMPLETED, MigrationStatus.COMPLETED]


@pytest.mark.parametrize("last", ["begin", "seal", "copy"])
async def test_an_evacuation_that_may_unwind_is_not_ended(at: CellUnderTest, last: str) -> None:
    await known(at)
    at.conductor.comparison.cells = dict(at.small.cells)
    move = await Crossing(at, MigrationType.EVACUATION).to(last)
    await at.say(at.report({}))
    row = await at.small.cells[move.left].read(partial(cell_migrations.get, uuid=move.uuid))
    assert row is not None
    assert row.status is MigrationStatus.MIGRATING


async def test_the_claim_of_an_evacuation_is_released_after_the_server_was_deleted(
    at: CellUnderTest, evacuated: Crossing
) -> None:
    """The record of the old cell says what the move holds on the old host: it stays until that is back, be the server deleted."""
    small, held = at.small, partial(claim_statements.held, consumer=evacuated.uuid)

    def gone(tx: Tx) -> None:
        region_servers.mark_deleted(tx, SERVER, 1)
        for table in ("consumers SET uuid", "allocations SET consumer"):
            tx.run(sa.text(f"UPDATE {table} = :uuid").bindparams(uuid=evacuated.uuid))

    await small.region.write(gone)
    later = Fence(BOOT, 3, 1, 1)
    assert not await small.cells[evacuated.left].write(
        lambda tx: record_transfer.remove_unless_waited_for(tx, SERVER, evacuated.left, later)
    )
    assert await HiddenRecords(small.context).run() == HiddenRecordsDone(looked_at=1)
    assert await small.region.read(held), "what the leftover guest uses is nobody else's"
    await at.say(at.report({}))
    assert await statuses(evacuated) == [MigrationStatus.COMPLETED, MigrationStatus.COMPLETED]
    assert not await small.region.read(held)
    assert await HiddenRecords(small.context).run() == HiddenRecordsDone(looked_at=1, removed=(SERVER,))


async def test_a_host_that_cannot_be_removed_ends_no_evacuation(at: CellUnderTest, evacuated: Crossing) -> None:
    """Others hold something there: it may come back with its guest yet."""
    small, left = at.small, at.small.cells[at.cell]
    host = await left.read(lambda tx: cell_hosts.named(tx, at.host))
    assert host is not None
    with pytest.raises(Conflict):
        await words.delete(small.region, dict(small.cells), left, host, 1)
    assert await statuses(evacuated) == [MigrationStatus.DONE, MigrationStatus.DONE]
