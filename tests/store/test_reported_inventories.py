"""A host's report and what an operator set through Placement: only what the host has a setting for is the host's."""

import pytest

from moorage.drivers.capacity import inventory as reported
from moorage.drivers.fault_injection import FaultSettings
from moorage.model.guest import ResourceInventory
from moorage.model.ids import CellId, HostId
from moorage.model.resources import Inventory
from moorage.placement.inventory import HostInventory, report_host
from moorage.sql import Database
from moorage.store.region.placement import provider_statements
from moorage.store.region.placement.tables import placement_metadata, stamp


@pytest.fixture
async def region(database: Database) -> Database:
    await database.create(placement_metadata)
    return database


def report(of_host: ResourceInventory) -> HostInventory:
    return HostInventory(
        host="host1",
        cell=CellId("c1"),
        inventories={"VCPU": Inventory(of_host.total, of_host.reserved, of_host.allocation_ratio)},
        initial={"VCPU": of_host.initial},
    )


async def stock(region: Database, host: HostId) -> dict[str, Inventory]:
    have = await region.read(lambda tx: provider_statements.inventories_of(tx, host))
    return {name: inventory for name, (inventory, *_) in have.items()}


async def test_what_was_set_through_placement_outlives_a_report(region: Database) -> None:
    host = await region.write(lambda tx: report_host(tx, report(reported(8, None, None, usual=(0, 4.0)))))
    assert (await stock(region, host))["VCPU"] == Inventory(8, 0, 4.0)
    for name, changed in (("VCPU", Inventory(8, 2, 9.5)), ("CUSTOM_LICENSE", Inventory(3))):
        await region.write(
            lambda tx, name=name, changed=changed: provider_statements.put_inventory(tx, host, name, changed, stamp(tx))
        )
    await region.write(lambda tx: report_host(tx, report(reported(16, None, None, usual=(0, 4.0)))))
    assert await stock(region, host) == {"VCPU": Inventory(16, 2, 9.5), "CUSTOM_LICENSE": Inventory(3)}
    await region.write(lambda tx: report_host(tx, report(reported(16, 1, 2.0))))
    assert (await stock(region, host))["VCPU"] == Inventory(16, 1, 2.0)


async def test_an_older_hosts_report_decides_all(region: Database) -> None:
    """It does not say which of its values are only initial."""
    old = ResourceInventory(8, 0, 4.0)
    host = await region.write(lambda tx: report_host(tx, report(old)))
    await region.write(lambda tx: provider_statements.put_inventory(tx, host, "VCPU", Inventory(8, 2, 9.5), stamp(tx)))
    await region.write(lambda tx: report_host(tx, report(old)))
    assert (await stock(region, host))["VCPU"] == Inventory(8, 0, 4.0)


def test_a_setting_of_the_host_is_forced() -> None:
    assert FaultSettings().vcpu_ratio is None
    assert reported(8, 1, None).initial == ("allocation_ratio",)
    assert reported(8, None, 2.0).initial == ("reserved",)
    assert reported(8, 1, 2.0).initial == ()
