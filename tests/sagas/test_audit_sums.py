"""A counter that is recomputed during a claim has the right value afterwards; PostgreSQL needs a lock for that."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import sqlalchemy as sa
from sqlalchemy.util import await_only

from moorage.main.schemas import PLACEMENT, REGION
from moorage.model.ids import CellId, ProviderId
from moorage.model.resources import Inventory
from moorage.placement import healing
from moorage.placement.inventory import HostInventory, report_host
from moorage.sql import Database, Tx, open_database
from moorage.sql.migrate import migrate
from moorage.store.region.placement import claim_statements
from moorage.store.region.placement.claim_statements import InventoryDelta
from moorage.store.region.placement.tables import allocations, inventories, stamp

pytestmark = pytest.mark.postgres
BLOCKED = sa.text(
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
)
DEADLINE_S = 180.0


@pytest.fixture
async def region(postgres_url: str) -> AsyncIterator[Database]:
    database = await open_database(postgres_url, name="region")
    for tree in (REGION, PLACEMENT):
        await migrate(database, tree)
    host = HostInventory(host="host1", cell=CellId("cell1"), inventories={"VCPU": Inventory(8)})
    await database.write(lambda tx: report_host(tx, host))
    yield database
    await database.close()


async def test_a_claim_made_during_a_recount_is_counted(region: Database) -> None:
    provider = ProviderId(await region.read(lambda tx: str(tx.scalar(sa.select(inventories.c.provider)))))
    claimed, go = asyncio.Event(), asyncio.Event()

    def claim(tx: Tx) -> None:
        assert claim_statements.take(tx, [InventoryDelta(provider, "VCPU", 3, 1, 8, 1)], stamp(tx))
        row = {"consumer": "c", "provider": provider, "class": "VCPU", "used": 3}
        tx.run(sa.insert(allocations).values(row))
        claimed.set()
        await_only(go.wait())

    claiming = asyncio.create_task(region.write(claim))
    async with asyncio.timeout(DEADLINE_S):
        await claimed.wait()
        summing = asyncio.create_task(region.write(lambda tx: healing.sum_again(tx, provider, "VCPU")))
        while not summing.done() and not await region.read(lambda tx: bool(tx.scalar(BLOCKED))):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        go.set()
        await claiming
        rows = await summing
    assert [row.used for row in rows] == [3]
    assert await region.read(claim_statements.drift) == []
