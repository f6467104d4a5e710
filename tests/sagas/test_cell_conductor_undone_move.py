"""What a host gets about a server whose move is undone while its conductor reads: the guest there is the only one."""

from typing import Any

import pytest
import sqlalchemy as sa
from tests.helpers.cell_conductor import BOOT, ON, CellUnderTest, at

from moorage.bus.host_messages import ServersOfHost
from moorage.model.ids import OperationId
from moorage.model.migration import MigrationStatus, MigrationType
from moorage.sql import Tx
from moorage.store.cell import migrations as cell_migrations
from moorage.store.region import operations
from moorage.store.region import servers as region_servers
from moorage.store.region.placement.tables import consumers
from moorage_testing.fake_server_service import a_migration
from moorage_testing.region_fixture import SERVER

__all__ = ["at"]


class TornRegion:
    """The region's database, in which the move goes back as soon as it was read for the first time."""

    def __init__(self, at: CellUnderTest, type: MigrationType, *, ended: bool) -> None:
        self.at, self.type, self.ended = at, type, ended
        self.reads = 0

    async def move(self, status: MigrationStatus) -> None:
        elsewhere = next(name for name in ("host1", "host3") if name != self.at.host)
        move = a_migration(1, self.type, status, server=SERVER, source_host=self.at.host, dest_host=elsewhere)
        await self.at.small.cells[self.at.cell].write(lambda tx: cell_migrations.put(tx, move))

    async def claim(self, host: str, by: OperationId | None) -> None:
        world = self.at.small.engine.world()
        claimed = sa.update(consumers).values(operation=by, attempt=1, host=world.host_ids[world.slots_by_name[host]])
        await self.at.small.region.write(lambda tx: tx.run(claimed))

    async def begins(self) -> None:
        """Its claim is elsewhere, and nothing was sent."""
        await self.at.held()
        await self.at.small.region.write(lambda tx: tx.run(sa.update(operations.operations).values(seq=2)))
        await self.move(MigrationStatus.PREPARING)
        await self.claim(next(name for name in ("host1", "host3") if name != self.at.host), BOOT)

    async def read(self, work: Any) -> Any:
        answer = await self.at.small.region.read(work)
        self.reads += 1
        if self.reads == 1:
            await self.claim(self.at.host, None)
            await self.move(MigrationStatus.ERROR)
            if self.ended:
                await self.at.small.region.write(lambda tx: self._let_go(tx))
        return answer

    @staticmethod
    def _let_go(tx: Tx) -> None:
        region_servers.release(tx, SERVER, BOOT, drop_order=True)


@pytest.mark.parametrize("ended", [False, True], ids=["going-back", "ended"])
@pytest.mark.parametrize("type", [MigrationType.LIVE_MIGRATION, MigrationType.RESIZE, MigrationType.EVACUATION])
async def test_a_move_that_unwinds_between_two_reads_is_not_judged(
    at: CellUnderTest, type: MigrationType, ended: bool
) -> None:
    region = TornRegion(at, type, ended=ended)
    await region.begins()
    at.conductor._belonging._region = region  # type: ignore[assignment]
    at.heard(ServersOfHost)
    await at.say(at.report(ON))
    assert at.heard(ServersOfHost) == [], "no word takes the only guest"
    assert region.reads >= 2
    (told,) = await at.conductor.servers_of(at.host, (SERVER,))
    assert told.here, "the next comparison sees that it belongs there"
