"""Records in a second cell: which one is shown, the seal, the copy in one transaction, and which rows of a cell are copied."""

import msgspec
import pytest

from moorage.main.databases import open_databases
from moorage.model.action import Action, ActionEvent
from moorage.model.errors import NotFound, Stale
from moorage.model.ids import CellId, FlavorId, OperationId, ServerId
from moorage.model.migration import Migration, MigrationStatus, MigrationType
from moorage.model.server import FlavorCopy, Server, TaskState, VmState
from moorage.sql import Database, Tx
from moorage.store.cell import actions, migrations, record_transfer, server_queries
from moorage.store.cell import server_lists as cell_lists
from moorage.store.cell import servers as cell_servers
from moorage.store.cell.record_transfer import COPIED, OF_THE_CELL, RecordCopy
from moorage.store.cell.servers import Fence
from moorage.store.cell.tables import cell_metadata
from moorage.store.region import hidden_records
from moorage.store.region import servers as region_servers
from moorage.store.region.hidden_records import HiddenRecord
from moorage.store.region.tables import region_metadata
from moorage.store.server_lists import ServerQuery
from moorage.store.servers import replace_server

ID = ServerId("00000000-0000-4000-8000-000000000001")
OTHER = ServerId("00000000-0000-4000-8000-000000000002")
A, B = CellId("cell1"), CellId("cell2")
MOVE = OperationId("move")
SERVER = Server(
    id=ID,
    project="p1",
    user="u1",
    name="web",
    hostname="web",
    created_at=1_000_000,
    flavor=FlavorCopy(FlavorId("1"), "m1.tiny", 1, 512, 1),
    vm_state=VmState.ACTIVE,
    task_state=None,
    tags=("blue",),
)
SEAL, COPY, UNDO_COPY, UNSEAL, LATER = 20, 21, 30, 31, 40


def by(line: int, *, epoch: int = 1, seq: int = 2) -> Fence:
    return Fence(MOVE, seq, epoch, line)


def action(number: int, server: ServerId = ID) -> Action:
    event = ActionEvent(f"compute_{number}", 5, 6, "Success", "host1")
    return Action(server, "resize", f"req-{number}", "u1", "p1", number, number, events=(event,))


def move(number: int, server: ServerId = ID) -> Migration:
    return Migration(
        uuid=f"move-{number}",
        server=server,
        type=MigrationType.RESIZE,
        status=MigrationStatus.FINISHED,
        user="u1",
        project="p1",
        created_at=number,
        updated_at=number,
        source_host="host1",
        source_cell=A,
        dest_host="host4",
        dest_cell=B,
    )


RECORD = RecordCopy(SERVER, (action(2), action(1)), (move(1), move(2)))


@pytest.fixture
async def cell(database: Database) -> Database:
    await database.create(cell_metadata)
    return database


@pytest.fixture
async def region(database: Database) -> Database:
    await database.create(region_metadata)
    return database


def test_every_table_of_a_cell_is_copied_or_belongs_to_the_cell() -> None:
    """Who adds a table to a cell says which, here and in what `copies` reads, copies and removes."""
    assert open_databases  # its module brings every file of the store
    assert COPIED.isdisjoint(OF_THE_CELL)
    assert set(cell_metadata.tables) == COPIED | OF_THE_CELL


# ------------------------------------------------------------------------------------------------------- the region's


async def test_a_hidden_record_row_counts_its_changes(region: Database) -> None:
    async def rows() -> list[HiddenRecord]:
        return list(await region.read(lambda tx: hidden_records.of_server(tx, ID)))

    for _ in range(2):  # a commit whose reply was lost is done again
        await region.write(lambda tx: hidden_records.open_row(tx, ID, B))
    assert await rows() == [HiddenRecord(ID, B, 1)]
    assert await region.read(lambda tx: hidden_records.is_open(tx, ID, B))
    assert not await region.read(lambda tx: hidden_records.is_open(tx, ID, A))
    for now in (70, 80):
        await region.write(lambda tx, now=now: hidden_records.end_row(tx, ID, B, now))
    assert await rows() == [HiddenRecord(ID, B, 2, 70)]
    await region.write(lambda tx: hidden_records.open_row(tx, ID, B))
    assert await rows() == [HiddenRecord(ID, B, 3)]


async def test_open_and_recently_ended_rows_are_listed(region: Database) -> None:
    def plant(tx: Tx) -> None:
        for server, cell in ((ID, A), (ID, B), (OTHER, A), (OTHER, B)):
            hidden_records.open_row(tx, server, cell)
        hidden_records.end_row(tx, ID, A, 100)
        hidden_records.end_row(tx, OTHER, A, 200)

    await region.write(plant)
    recent = await region.read(lambda tx: hidden_records.open_or_ended_since(tx, 200))
    assert {(row.server, row.cell, row.is_open) for row in recent} == {
        (ID, B, True),
        (OTHER, A, False),
        (OTHER, B, True),
    }
    assert await region.read(lambda tx: hidden_records.open_of(tx, [ID, OTHER])) == {
        ID: frozenset({B}),
        OTHER: frozenset({B}),
    }
    assert await region.read(lambda tx: hidden_records.open_of(tx, [])) == {}
    assert await region.read(lambda tx: hidden_records.count_open(tx, B)) == 2
    assert await region.read(lambda tx: hidden_records.count_open(tx, A)) == 0
    first = await region.read(lambda tx: hidden_records.open_ones(tx, ("", ""), 1))
    assert [(row.server, row.cell) for row in first] == [(ID, B)]
    rest = await region.read(lambda tx: hidden_records.open_ones(tx, (ID, B), 10))
    assert [(row.server, row.cell) for row in rest] == [(OTHER, B)]
    assert await region.write(lambda tx: hidden_records.forget_ended(tx, 200)) == 1
    left = await region.read(lambda tx: hidden_records.open_or_ended_since(tx, 0))
    assert {(row.server, row.cell) for row in left} == {(ID, B), (OTHER, A), (OTHER, B)}


async def test_only_the_holding_operation_shows_the_server_in_another_cell(region: Database) -> None:
    def born(tx: Tx) -> None:
        held = msgspec.structs.replace(SERVER, operation=OperationId("boot"))
        region_servers.insert(tx, [held])
        region_servers.recorded_in(tx, ID, A)
        region_servers.release(tx, ID, OperationId("boot"))
        region_servers.take(tx, ID, MOVE, TaskState.RESIZE_PREP)

    async def shown(operation: OperationId, left: CellId, to: CellId) -> bool:
        return await region.write(lambda tx: region_servers.show_in(tx, ID, operation, left, to))

    async def where() -> tuple[CellId | None, TaskState | None]:
        found = await region.read(lambda tx: region_servers.find(tx, ID))
        assert found is not None
        return found.cell, found.task

    await region.write(born)
    assert not await shown(OperationId("another"), A, B)
    assert not await shown(MOVE, B, A)
    assert await where() == (A, TaskState.RESIZE_PREP)
    assert await shown(MOVE, A, B)
    assert await where() == (B, None)
    assert not await shown(MOVE, A, B)

    await region.write(lambda tx: region_servers.queue(tx, ID, OperationId("delete"), TaskState.DELETING))
    assert await shown(MOVE, B, A), "who waits in line shows what it is to do"
    assert await where() == (A, TaskState.DELETING)


# --------------------------------------------------------------------------------------------------------- the cell's


async def test_a_sealed_row_refuses_writes_of_requests(cell: Database) -> None:
    recorded = await cell.write(lambda tx: cell_servers.record(tx, SERVER, by(1)))
    assert not await cell.read(lambda tx: record_transfer.is_sealed(tx, ID))
    tagged = msgspec.structs.replace(recorded, tags=("red",))
    sealed = await cell.write(lambda tx: record_transfer.seal(tx, ID, by(SEAL)))
    assert await cell.read(lambda tx: record_transfer.is_sealed(tx, ID))
    assert await cell.read(lambda tx: record_transfer.sealed(tx)) == [ID]
    assert (await cell.read(lambda tx: server_queries.where_placed(tx, "none", [ID])))[ID].hidden
    for was in (recorded.generation, sealed.generation):
        written = await cell.write(
            lambda tx, was=was: replace_server(tx, cell_servers.servers, tagged, generation=was),
        )
        assert written is None
    # who holds the server writes, and the seal stays
    ours = await cell.write(lambda tx: cell_servers.write(tx, sealed, by(LATER)))
    assert await cell.read(lambda tx: record_transfer.is_sealed(tx, ID))
    open_again = await cell.write(lambda tx: record_transfer.unseal(tx, ID, by(LATER)))
    assert open_again.generation > ours.generation > sealed.generation > recorded.generation
    assert not await cell.read(lambda tx: record_transfer.is_sealed(tx, ID))
    after = await cell.write(
        lambda tx: replace_server(tx, cell_servers.servers, tagged, generation=open_again.generation)
    )
    assert after is not None
    assert after.tags == ("red",)


async def test_a_late_seal_has_no_effect(cell: Database) -> None:
    with pytest.raises(NotFound):
        await cell.write(lambda tx: record_transfer.seal(tx, ID, by(SEAL)))
    await cell.write(lambda tx: cell_servers.record(tx, SERVER, by(1)))
    await cell.write(lambda tx: record_transfer.seal(tx, ID, by(SEAL)))
    await cell.write(lambda tx: record_transfer.unseal(tx, ID, by(UNSEAL)))
    with pytest.raises(Stale):
        await cell.write(lambda tx: record_transfer.seal(tx, ID, by(SEAL)))
    await cell.write(lambda tx: record_transfer.seal(tx, ID, by(SEAL, epoch=2)))
    with pytest.raises(Stale):
        await cell.write(lambda tx: record_transfer.unseal(tx, ID, by(UNSEAL)))
    assert await cell.read(lambda tx: record_transfer.is_sealed(tx, ID))


async def test_a_record_written_over_a_sealed_row_is_unsealed(cell: Database) -> None:
    """A server that goes back to the cell that it left."""
    await cell.write(lambda tx: cell_servers.record(tx, SERVER, by(1)))
    await cell.write(lambda tx: record_transfer.seal(tx, ID, by(SEAL)))
    await cell.write(lambda tx: record_transfer.copy(tx, RECORD, by(COPY, seq=3)))
    assert not await cell.read(lambda tx: record_transfer.is_sealed(tx, ID))


async def test_a_copied_record_equals_its_source(cell: Database) -> None:
    other = action(7, OTHER)
    await cell.write(lambda tx: migrations.put_all(tx, [move(9, OTHER)]))
    await cell.write(lambda tx: actions.write_all(tx, [other]))
    for _ in range(2):
        await cell.write(lambda tx: record_transfer.copy(tx, RECORD, by(COPY)))
    found = await cell.read(lambda tx: record_transfer.read(tx, ID))
    assert found is not None
    assert (found.server.tags, found.server.operation, found.server.op_line) == (("blue",), MOVE, COPY)
    assert found.actions == [action(2), action(1)]
    assert [msgspec.structs.replace(each, number=0) for each in found.migrations] == [move(1), move(2)]
    numbers = [each.number for each in found.migrations]
    assert numbers == sorted(numbers)
    assert len(set(numbers)) == 2
    await cell.write(lambda tx: record_transfer.remove_record(tx, ID, by(UNDO_COPY)))
    assert await cell.read(lambda tx: record_transfer.read(tx, ID)) is None
    assert await cell.read(lambda tx: (actions.of_server(tx, ID), migrations.of_server(tx, ID))) == ([], [])
    assert await cell.read(lambda tx: actions.of_server(tx, OTHER)) == [other]
    assert len(await cell.read(lambda tx: migrations.of_server(tx, OTHER))) == 1
    await cell.write(lambda tx: record_transfer.remove_record(tx, ID, by(UNDO_COPY)))


async def test_a_copy_that_arrives_after_its_removal_writes_nothing(cell: Database) -> None:
    await cell.write(lambda tx: record_transfer.remove_record(tx, ID, by(UNDO_COPY)))
    with pytest.raises(Stale):
        await cell.write(lambda tx: record_transfer.copy(tx, RECORD, by(COPY)))
    assert await cell.read(lambda tx: (actions.of_server(tx, ID), migrations.of_server(tx, ID))) == ([], [])
    await cell.write(lambda tx: record_transfer.copy(tx, RECORD, by(COPY, epoch=2)))
    assert await cell.read(lambda tx: record_transfer.read(tx, ID)) is not None


async def test_a_second_copy_keeps_what_was_written_since_the_first(cell: Database) -> None:
    """The first hung and was tried again; it lands when the server is shown here and has been changed by its owner."""
    copied = await cell.write(lambda tx: record_transfer.copy(tx, RECORD, by(COPY)))
    tagged = msgspec.structs.replace(copied, tags=("blue", "red"))
    assert await cell.write(lambda tx: replace_server(tx, cell_servers.servers, tagged, generation=copied.generation))
    await cell.write(lambda tx: record_transfer.copy(tx, RECORD, by(COPY)))
    found = await cell.read(lambda tx: cell_servers.get(tx, ID))
    assert found is not None
    assert found.tags == ("blue", "red")


async def test_a_removal_that_arrives_after_the_server_came_back_has_no_effect(cell: Database) -> None:
    await cell.write(lambda tx: record_transfer.copy(tx, RECORD, by(COPY, seq=3)))
    with pytest.raises(Stale):
        await cell.write(lambda tx: record_transfer.remove_record(tx, ID, by(LATER, seq=2)))
    found = await cell.read(lambda tx: record_transfer.read(tx, ID))
    assert found is not None
    assert (len(found.actions), len(found.migrations)) == (2, 2)


async def test_lists_leave_hidden_records_out(cell: Database) -> None:
    another = msgspec.structs.replace(SERVER, id=OTHER)
    await cell.write(lambda tx: [cell_servers.record(tx, each, by(1)) for each in (SERVER, another)])

    async def listed(query: ServerQuery) -> list[ServerId]:
        return [row.id for row in await cell.read(lambda tx: cell_lists.page(tx, query))]

    assert await listed(ServerQuery(limit=1)) == [OTHER]
    assert await listed(ServerQuery(limit=1, without=(OTHER,))) == [ID]
    assert await listed(ServerQuery(without=(ID, OTHER))) == []
