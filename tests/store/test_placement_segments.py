"""Addresses of a segment have one counter: Neutron's if it reports them itself, otherwise Moorage's."""

from collections.abc import AsyncIterator
from functools import partial

import pytest

from moorage.model.ids import CellId, HostId, SegmentId
from moorage.model.resources import Inventory
from moorage.placement.engine import Engine
from moorage.placement.inventory import HostInventory, SegmentReport, segment_aggregate
from moorage.placement.service import provider_changes
from moorage.scheduler.profile import Profile
from moorage.scheduler.rank import rank
from moorage.sql import Database, Tx
from moorage.store.region.placement import placement_metadata, provider_statements

SEGMENT = SegmentId("5e9a1f60-7f0e-4d6b-8f0a-2f4f3c7f0b11")
REPORT = SegmentReport(segment=SEGMENT, name="ours", total=7, reserved=3, hosts=("h1",))


@pytest.fixture
async def engine(database: Database) -> AsyncIterator[Engine]:
    await database.create(placement_metadata)
    engine = Engine(database, partial(rank, profile=Profile()))
    await engine.start()
    yield engine
    await engine.close()


async def _host(engine: Engine) -> HostId:
    return await engine.report_host(HostInventory(host="h1", cell=CellId("c"), inventories={"VCPU": Inventory(4)}))


async def _aggregates(database: Database, provider: str) -> frozenset[str]:
    return await database.read(lambda tx: provider_statements.aggregates_of(tx, provider))


async def test_segments_reported_by_neutron_are_not_counted_again(engine: Engine, database: Database) -> None:
    host, theirs = await _host(engine), Inventory(14, reserved=2, max_unit=1)

    def reported(tx: Tx) -> None:
        provider_changes.create(tx, SEGMENT, f"Neutron segment id {SEGMENT}", None)
        provider_changes.set_inventories(tx, SEGMENT, {"IPV4_ADDRESS": theirs}, 0)

    await database.write(reported)
    await engine.report_segments([REPORT])
    have = await database.read(lambda tx: provider_statements.inventories_of(tx, SEGMENT))
    assert have == {"IPV4_ADDRESS": (theirs, 0)}
    assert await _aggregates(database, host) == await _aggregates(database, SEGMENT) == frozenset()
    assert await engine.drop_segment(SEGMENT)
    assert await database.read(lambda tx: provider_statements.find(tx, SEGMENT)) is not None


async def test_hosts_are_unlinked_when_another_process_deleted_the_segment(engine: Engine, database: Database) -> None:
    host = await _host(engine)
    await engine.report_segments([REPORT])
    assert await _aggregates(database, host) == {segment_aggregate(SEGMENT)}
    await database.write(lambda tx: provider_changes.delete(tx, SEGMENT))
    assert await engine.drop_segment(SEGMENT)
    assert await _aggregates(database, host) == frozenset()
