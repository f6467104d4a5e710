"""A host reports only what it has itself: no report may change, or add to, what belongs to another host."""

from functools import partial

import pytest
import sqlalchemy as sa

from moorage.model.errors import Conflict
from moorage.model.ids import CellId, HostId, ProviderId, SegmentId
from moorage.model.resources import Inventory
from moorage.placement import inventory
from moorage.placement.engine import Engine
from moorage.placement.inventory import DeviceReport, HostInventory, SegmentReport
from moorage.scheduler.profile import Profile
from moorage.scheduler.rank import rank
from moorage.sql import Database
from moorage.store.region.placement import provider_statements
from moorage.store.region.placement.tables import placement_metadata, providers

C1, C2 = CellId("c1"), CellId("c2")


def report(host: str, node: str = "", cell: CellId = C1, vcpus: int = 4) -> HostInventory:
    return HostInventory(host=host, node=node, cell=cell, inventories={"VCPU": Inventory(vcpus)})


@pytest.fixture
async def region(database: Database) -> Database:
    await database.create(placement_metadata)
    return database


async def says(region: Database, told: HostInventory) -> HostId:
    return await region.write(lambda tx: inventory.report_host(tx, told))


async def count(region: Database) -> int:
    return int(await region.read(lambda tx: tx.scalar(sa.select(sa.func.count()).select_from(providers))))


@pytest.mark.parametrize("cell", [C1, C2])
async def test_a_host_cannot_take_anothers_node(region: Database, cell: CellId) -> None:
    victim = await says(region, report("victim", "victim.example.org"))
    with pytest.raises(Conflict, match=r"reports node victim\.example\.org, which is host victim's"):
        await says(region, report("thief", "victim.example.org", cell, vcpus=100_000))
    row = await region.read(lambda tx: provider_statements.host_row(tx, victim))
    stock = await region.read(lambda tx: provider_statements.inventories_of(tx, victim))
    assert row is not None
    assert (row["host"], row["cell"], stock["VCPU"][0].total) == ("victim", C1, 4)


async def test_a_host_cannot_be_a_device_or_a_segment(region: Database) -> None:
    engine = Engine(region, partial(rank, profile=Profile()))
    await engine.start()
    try:
        await says(region, report("victim"))
        device = DeviceReport(
            hypervisor="victim", id=ProviderId("6f1a8a0e-8f4d-4b43-9c0b-6d2f4f6f9e11"), name="victim:bridge"
        )
        await region.write(lambda tx: inventory.report_device(tx, device))
        segment = SegmentReport(segment=SegmentId("0c9c2f35-52c1-4d7e-8f57-3a9d4d0f7b52"), name="wire", total=9)
        await region.write(lambda tx: inventory.report_segment(tx, segment))
        before = await count(region)
        for node in ("victim:bridge", "wire"):
            with pytest.raises(Conflict, match="which is no host's provider"):
                await says(region, report("thief", node))
        assert await count(region) == before
    finally:
        await engine.close()


async def test_a_host_has_one_node(region: Database) -> None:
    """Else one that lies would have as many providers as it makes up names."""
    await says(region, report("thief", "node1"))
    with pytest.raises(Conflict, match="has node node1 already"):
        await says(region, report("thief", "node2"))
    assert await count(region) == 1
    await says(region, report("thief", "node1", vcpus=8))


async def test_a_host_may_move_to_another_cell(region: Database) -> None:
    await says(region, report("host1", "node1"))
    found = await says(region, report("host1", "node1", C2))
    row = await region.read(lambda tx: provider_statements.host_row(tx, found))
    assert row is not None
    assert row["cell"] == C2


async def test_two_conductors_store_the_first_report_of_a_host_concurrently(
    region: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one looked before the first had committed: the node that is there by then is the host's own."""
    found = await says(region, report("host1", "node1"))
    with monkeypatch.context() as earlier:
        earlier.setattr(provider_statements, "host_row", lambda tx, uuid: None)
        assert await says(region, report("host1", "node1")) == found
    assert await count(region) == 1
