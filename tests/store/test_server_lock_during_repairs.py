"""Decisions of reconcilers about a server without an operation are valid until they are written; PostgreSQL needs a lock for that.

Without one an operation could take the server between the look and the write, claim an address, and lose it again.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import sqlalchemy as sa
from sqlalchemy.util import await_only

from moorage.conductor.reconcilers.orphan_allocations import OrphanAllocations
from moorage.main.schemas import PLACEMENT, REGION
from moorage.model.ids import NetworkId, OperationId, PortId, ProviderId
from moorage.model.server import Address, Nic
from moorage.operations.interfaces import port_sync
from moorage.sql import Database, Tx, open_database
from moorage.sql.migrate import migrate
from moorage.store.region import servers as region_servers
from moorage.store.region.placement.tables import consumers
from moorage_testing.region_fixture import SERVER, a_server

pytestmark = pytest.mark.postgres
ATTACH = OperationId("attach")
SEGMENT = ProviderId("11111111-0000-4000-8000-000000000001")
BLOCKED = sa.text(
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
)


@pytest.fixture
async def region(postgres_url: str) -> AsyncIterator[Database]:
    database = await open_database(postgres_url, name="region")
    for tree in (REGION, PLACEMENT):
        await migrate(database, tree)
    await database.write(lambda tx: region_servers.insert(tx, [a_server()]))
    owner = {"uuid": str(SERVER), "generation": 1, "project": "p", "user_id": "u"}
    await database.write(lambda tx: tx.run(sa.insert(consumers).values(owner)))
    yield database
    await database.close()


class SlowClaims:
    """Placement, whose work in the mending transaction is not done before it is let."""

    def __init__(self) -> None:
        self.began, self.go = asyncio.Event(), asyncio.Event()

    def correct(self, *_: Any) -> tuple[()]:
        self.began.set()
        await_only(self.go.wait())
        return ()

    release = correct

    def settle(self, rows: Any) -> None:
        assert rows == ()


def mend_claim(context: Any) -> Awaitable[object]:
    nic = Nic(
        0, NetworkId("network"), "network", PortId("port"), addresses=(Address("subnet", "10.0.0.2"),), segment=SEGMENT
    )
    return port_sync._correct_claim(context, a_server(nics=(nic,)), 1, {}, {}, guarantees=False)


def release_stray(context: Any) -> Awaitable[object]:
    return OrphanAllocations(context)._release(SERVER, 1)


@pytest.mark.parametrize("mend", [mend_claim, release_stray])
async def test_no_operation_takes_the_server_during_a_repair(
    region: Database, mend: Callable[[Any], Awaitable[object]]
) -> None:
    claims = SlowClaims()
    mending = asyncio.ensure_future(mend(cast("Any", SimpleNamespace(region=region, placement=claims))))
    async with asyncio.timeout(180.0):
        await claims.began.wait()
        taking = asyncio.create_task(region.write(lambda tx: region_servers.take(tx, SERVER, ATTACH, None)))
        while not taking.done() and not await region.read(blocked):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert not taking.done(), "it was taken in the middle of what presumes that nobody has it"
        claims.go.set()
        await mending
        held = await taking
    assert held is not None
    assert held.holder is None


def blocked(tx: Tx) -> bool:
    return bool(tx.scalar(BLOCKED))
