"""Every conductor of a cell receives every report: two of them write the first one of a host at the same moment."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from moorage.model.host import Host
from moorage.model.ids import CellId, HostId
from moorage.model.resources import Inventory
from moorage.placement import inventory
from moorage.placement.inventory import HostInventory
from moorage.sql import Database, Tx, open_database
from moorage.store.cell import hosts as cell_hosts
from moorage.store.cell.tables import cell_metadata
from moorage.store.region.placement.tables import placement_metadata

pytestmark = pytest.mark.postgres

CELL = CellId("c1")
HOSTS = 100
CONDUCTORS = 6


@pytest.fixture
async def conductors(postgres_url: str) -> AsyncIterator[list[Database]]:
    """Each with connections of its own to one database."""
    opened = [await open_database(postgres_url, name="region") for _ in range(CONDUCTORS)]
    for metadata in (placement_metadata, cell_metadata):
        await opened[0].create(metadata)
    yield opened
    for each in opened:
        await each.close()


async def at_once(conductors: list[Database], work: Callable[[Tx, int], object]) -> None:
    """All of them write the same, host after host. Raises what any of them met."""
    for number in range(HOSTS):
        await asyncio.gather(*(each.write(lambda tx, number=number: work(tx, number)) for each in conductors))


async def test_in_placement(conductors: list[Database]) -> None:
    def work(tx: Tx, number: int) -> HostId:
        told = HostInventory(
            host=f"host{number}",
            node=f"node{number}",
            cell=CELL,
            inventories={"VCPU": Inventory(8), "MEMORY_MB": Inventory(8)},
            traits=("COMPUTE_NODE", "HW_CPU_X86_AVX"),
        )
        return inventory.report_host(tx, told)

    await at_once(conductors, work)


async def test_in_the_cell(conductors: list[Database]) -> None:
    def work(tx: Tx, number: int) -> Host:
        host = f"host{number}"
        told = Host(
            number=0, id=inventory.host_id(host), service="", host=host, node=host, cell=CELL, zone="nova", level=1, version="1",
            hypervisor_type="QEMU", hypervisor_version=1, cpu_info={}, address="", inventory={}, traits=(), physical_networks=(),
            agent="life", set_aside=(), up_since=0,
        )  # fmt: skip
        return cell_hosts.report(tx, told, 1)

    await at_once(conductors, work)
