"""The record of an offloaded server moves to another cell: when this may begin, and what remains while a cell is down."""

import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import pytest

from moorage.model.errors import Conflict, Invalid, NotFound, Unavailable
from moorage.model.ids import CellId, ConductorId, OperationId
from moorage.model.operation import Accepted
from moorage.operations.context import SagaContext
from moorage.operations.registry import SAGAS
from moorage.operations.shelve import move_record
from moorage.saga import MemoryJournal, Run, Saga, Unwound, execute, first_lines
from moorage.store.cell import record_transfer
from moorage.store.region import processes
from moorage.store.region import servers as region_servers
from moorage.store.region.processes import ProcessRecord
from moorage_testing.region_cells import records_held
from moorage_testing.region_fixture import CELLS, SERVER, SmallRegion
from moorage_testing.region_shelved import moving_record, recorded_elsewhere, shelved
from moorage_testing.saga_proof import PROVED_OPERATION

SAGA = SAGAS["move_record/1"]


@pytest.fixture
async def small() -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open()
    yield region
    await region.close()


async def held(small: SmallRegion) -> dict[str, Any]:
    return await records_held(small.region, small.cells, SERVER)


async def test_a_copy_that_cannot_be_removed_stays_hidden(small: SmallRegion, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other cell goes out right after the copy: the server is as it was, and nobody waits."""
    await recorded_elsewhere(small)

    async def refused(run: Run[Any, Any]) -> None:
        def down(*_: object) -> None:
            raise Unavailable("the cell's database does not answer")

        monkeypatch.setattr(record_transfer, "remove_record", down)
        raise Conflict("planted")

    steps = [each.but(do=refused) if each.name == "show_there" else each for each in SAGA.steps]
    broken = Saga("move_record/1", move_record.MoveRecord, *steps, ended=SAGA.ended)
    with pytest.raises(Unwound):
        await execute(
            broken, PROVED_OPERATION, moving_record(), small.context, MemoryJournal(first_lines(broken), small.transact)
        )
    left = await held(small)
    assert (left["shown in"], left["hidden in"], left["records"], left["amiss"]) == (
        CELLS[0],
        [CELLS[1]],
        list(CELLS),
        [],
    )


async def test_a_cell_lost_after_show_there_does_not_block_the_operation(
    small: SmallRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    await recorded_elsewhere(small)

    def down(*_: object) -> None:
        raise Unavailable("the cell's database does not answer")

    monkeypatch.setattr(record_transfer, "remove_record", down)
    await execute(
        SAGA, PROVED_OPERATION, moving_record(), small.context, MemoryJournal(first_lines(SAGA), small.transact)
    )
    left = await held(small)
    assert (left["shown in"], left["hidden in"], left["amiss"]) == (CELLS[1], [CELLS[0]], [])
    where = await small.region.read(lambda tx: region_servers.find(tx, SERVER))
    assert where is not None
    assert where.operation is None


class RecordingDispatcher:
    """Keeps what is accepted."""

    def __init__(self) -> None:
        self.told: list[Accepted] = []

    async def choose(self, saga: str) -> ConductorId:
        return ConductorId("conductor1")

    async def begun(self, accepted: Accepted) -> None:
        self.told.append(accepted)


@pytest.fixture
async def context(small: SmallRegion) -> SagaContext:
    await shelved(small, offload=True)
    await small.region.write(lambda tx: region_servers.release(tx, SERVER, PROVED_OPERATION))
    return dataclasses.replace(small.context, dispatcher=RecordingDispatcher())  # type: ignore[arg-type]


async def begun(context: SagaContext, to: CellId = CELLS[1]) -> OperationId:
    return await move_record.begin(context, SERVER, to, "admin", "admins", request_id="req-move")


async def test_the_move_of_a_record_is_accepted_for_an_offloaded_server(
    small: SmallRegion, context: SagaContext
) -> None:
    with pytest.raises(Invalid, match="no cell elsewhere"):
        await begun(context, CellId("elsewhere"))
    with pytest.raises(Invalid, match="in cell cell1 already"):
        await begun(context, CELLS[0])
    operation = await begun(context)
    where = await small.region.read(lambda tx: region_servers.find(tx, SERVER))
    assert where is not None
    assert where.operation == operation
    with pytest.raises(Conflict, match="another action is in progress"):
        await begun(context)


async def test_the_move_of_a_record_is_refused_for_a_server_on_a_host(small: SmallRegion) -> None:
    await shelved(small, offload=False)
    await small.region.write(lambda tx: region_servers.release(tx, SERVER, PROVED_OPERATION))
    context = dataclasses.replace(small.context, dispatcher=RecordingDispatcher())  # type: ignore[arg-type]
    with pytest.raises(Conflict, match="not shelved offloaded"):
        await begun(context)
    await small.region.write(lambda tx: tx.run(region_servers.servers.delete()))
    with pytest.raises(NotFound):
        await begun(context)


@pytest.mark.parametrize(
    ("role", "release", "refused"),
    [
        ("api", "0.1.0", True),
        ("up", "", True),
        ("api", "0.2.0", False),
        ("api", "0.10.1", False),
        ("conductor", "0.1.0", False),
    ],
)
async def test_records_do_not_move_while_an_earlier_releases_api_runs(
    small: SmallRegion, context: SagaContext, role: str, release: str, refused: bool
) -> None:
    await small.region.write(lambda tx: processes.report(tx, ProcessRecord("p1", role, "box1", release), 600.0))
    if refused:
        with pytest.raises(Unavailable, match="are of this release"):
            await begun(context)
        await small.region.write(lambda tx: processes.leave(tx, "p1"))
    assert await begun(context)
    await small.region.write(lambda tx: processes.leave(tx, "p1"))
