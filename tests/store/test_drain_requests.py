"""Only one drain of a host at a time, with concurrent requests, and a limit of concurrent drains."""

import asyncio

from moorage.model.drain import Drain, DrainRequest, DrainStatus
from moorage.model.ids import CellId
from moorage.sql import Database
from moorage.store.region import drains
from moorage.store.region.tables import region_metadata


async def refusal(region: Database, id: str, host: str) -> str:
    """Why it is not begun; empty: it is."""
    asked, waiting = DrainRequest(), DrainStatus.WAITING
    new = Drain(id, host, CellId("c"), asked_at=1, asked_by="admin", project="admin", asked=asked, status=waiting)
    refused = await region.write(lambda tx: drains.ask(tx, new))
    return "" if refused is None else refused.public


async def test_of_concurrent_requests_for_a_drain_one_succeeds(database: Database) -> None:
    await database.create(region_metadata)
    for turn in range(5):
        said = await asyncio.gather(*(refusal(database, f"{turn}-{n}", f"host{turn}") for n in range(6)))
        (won,) = (n for n, why in enumerate(said) if not why)
        assert [why for n, why in enumerate(said) if n != won] == [
            f"Host host{turn} is being emptied already, by drain {turn}-{won}."
        ] * 5


async def test_a_drain_beyond_the_limit_is_refused(database: Database) -> None:
    """It would wait for the end of another without anybody being told."""
    await database.create(region_metadata)
    for number in range(drains.OPEN_MAX):
        assert await refusal(database, str(number), f"host{number}") == ""
    assert "at most so many" in await refusal(database, "more", "one-more")
    assert len(await database.read(drains.open_ones)) == drains.OPEN_MAX
    assert await database.read(lambda tx: drains.get(tx, "more")) is None
