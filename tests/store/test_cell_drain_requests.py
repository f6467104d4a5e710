"""Only one drain of a cell at a time, with concurrent requests; and who writes it has read it."""

import asyncio

import msgspec

from moorage.model.cell_drain import CellDrain, CellDrainRequest, HostPart, RecordRow
from moorage.model.drain import DrainProgress, DrainStatus
from moorage.model.ids import CellId, ServerId
from moorage.sql import Database
from moorage.store.region import cell_drains
from moorage.store.region.tables import region_metadata

changed = msgspec.structs.replace


def a_drain(id: str, cell: str, at: int = 1) -> CellDrain:
    asked = CellDrainRequest(hosts=3, live=False)
    return CellDrain(id, CellId(cell), at, "admin", "admins", asked, DrainStatus.WAITING)


async def refusal(region: Database, id: str, cell: str) -> str:
    """Why it is not begun; empty: it is."""
    refused = await region.write(lambda tx: cell_drains.ask(tx, a_drain(id, cell)))
    return "" if refused is None else refused.public


async def test_of_concurrent_requests_for_a_cell_drain_one_succeeds(database: Database) -> None:
    await database.create(region_metadata)
    said = await asyncio.gather(*(refusal(database, f"id-{n}", "cell1") for n in range(6)))
    (won,) = (n for n, why in enumerate(said) if not why)
    others = [why for n, why in enumerate(said) if n != won]
    assert others == [f"Cell cell1 is being emptied already, by drain id-{won}."] * 5
    for number in range(1, cell_drains.OPEN_MAX):
        assert await refusal(database, f"more-{number}", f"c{number}") == ""
    assert "at most so many" in await refusal(database, "more", "one-more")
    assert await database.read(lambda tx: cell_drains.get(tx, "more")) is None


async def test_a_write_needs_the_version_that_was_read(database: Database) -> None:
    await database.create(region_metadata)
    await database.write(lambda tx: cell_drains.ask(tx, a_drain("1", "cell1")))
    (first,) = await database.read(cell_drains.open_ones)
    assert first == a_drain("1", "cell1")
    now = changed(
        first,
        status=DrainStatus.RUNNING,
        began_at=2,
        hosts=(HostPart("h", "d", DrainProgress.MOVING, {"moving": 2}),),
        records=(RecordRow(ServerId("s"), "s", "cell2", DrainProgress.LEFT, 1, 2, "why"),),
        records_gone=7,
        why="w",
    )
    assert await database.write(lambda tx: cell_drains.write(tx, now))
    assert not await database.write(lambda tx: cell_drains.write(tx, now)), "another process wrote it"
    (second,) = await database.read(cell_drains.open_ones)
    assert second == changed(now, version=1)
    assert second.counts() == {"waiting": 0, "moving": 2, "confirming": 0, "done": 7, "left": 1}
    assert await database.write(lambda tx: cell_drains.cancel(tx, "1"))
    assert not await database.write(lambda tx: cell_drains.write(tx, second)), "it was cancelled meanwhile"
    (third,) = await database.read(cell_drains.open_ones)
    assert third.cancel
    ended = changed(third, status=DrainStatus.CANCELLED, ended_at=9)
    assert await database.write(lambda tx: cell_drains.write(tx, ended))
    assert not await database.write(lambda tx: cell_drains.cancel(tx, "1"))
    assert await database.read(cell_drains.open_ones) == []
    assert await refusal(database, "2", "cell1") == ""
    listed = await database.read(lambda tx: cell_drains.listed(tx, "cell1", 10))
    assert {each.id for each in listed} == {"1", "2"}
    assert await database.read(lambda tx: cell_drains.listed(tx, "cell2", 10)) == []
