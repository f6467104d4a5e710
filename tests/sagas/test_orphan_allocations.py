"""The reconciler of orphan allocations: it releases the claims of servers that no cell has."""

import sqlalchemy as sa
from tests.helpers.reconciled_region import OTHERS, small, with_a_dead_cell

from moorage.conductor.reconcilers.orphan_allocations import OrphanAllocations, OrphanAllocationsDone
from moorage.model.ids import CellId, OperationId
from moorage.store.cell import servers as cell_servers
from moorage.store.region import servers as region_servers
from moorage.store.region.placement.tables import placement_metadata
from moorage_testing.region_fixture import HOSTS, PROJECT, SERVER, SmallRegion

__all__ = ["small"]


async def test_claims_of_an_unreachable_cell_wait_and_others_are_released(small: SmallRegion) -> None:
    _, cell = await with_a_dead_cell(small)
    consumers = placement_metadata.tables["consumers"]
    values = {"uuid": OTHERS, "generation": 1, "project": PROJECT, "user_id": "u", "type": "INSTANCE", "operation": "o",
              "attempt": 0, "updated_at": 0}  # fmt: skip
    await small.region.write(lambda tx: tx.run(consumers.insert().values(values)))
    await small.region.write(lambda tx: region_servers.mark_deleted(tx, SERVER, 1))
    await small.cells[CellId(cell)].write(lambda tx: tx.run(sa.delete(cell_servers.servers)))
    assert await OrphanAllocations(small.context).run() == OrphanAllocationsDone(
        looked_at=2, released=(SERVER,), waiting=1
    )


# -------------------------------------------------------------------------------------------------- stray claims


async def test_orphan_allocations_already_fine(small: SmallRegion) -> None:
    before = await small.held()
    assert await OrphanAllocations(small.context).run() == OrphanAllocationsDone(looked_at=1)
    assert await small.held() == before


async def lose_the_server(small: SmallRegion) -> None:
    """It was deleted, and its rows in the cells are gone; the claim is not."""
    await small.region.write(lambda tx: region_servers.mark_deleted(tx, SERVER, 1))
    for database in small.cells.values():
        await database.write(lambda tx: tx.run(sa.delete(cell_servers.servers)))


async def test_the_claim_of_a_server_on_no_host_is_released(small: SmallRegion) -> None:
    await lose_the_server(small)
    assert (await OrphanAllocations(small.context).run()).released == (SERVER,)
    assert (await small.held())["claims"] == 0
    assert (await small.held())["used"] == 0
    assert await OrphanAllocations(small.context).run() == OrphanAllocationsDone()


async def test_the_claim_of_a_busy_server_is_left_alone(small: SmallRegion) -> None:
    await lose_the_server(small)
    await small.hand_to(OperationId("somebody"))
    assert (await OrphanAllocations(small.context).run()).released == ()
    assert (await small.held())["claims"] > 0


async def test_drifted_counters_are_reported(small: SmallRegion) -> None:
    inventories = sa.table("inventories", sa.column("used"), sa.column("class"))
    wrong = sa.update(inventories).where(inventories.c["class"] == "VCPU").values(used=inventories.c.used + 1)
    await small.region.write(lambda tx: tx.run(wrong))
    assert (await OrphanAllocations(small.context).run()).drifted == len(HOSTS)
