"""The table of planted leaks, and what plants them: writes to a small region that leave behind what a bug or a crash may."""

import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import sqlalchemy as sa

from moorage.model.ids import CellId, OperationId, ProviderId, ServerId
from moorage.model.network import Port
from moorage.model.server import Server, Shelved, VmState
from moorage.operations.steps import servers as records
from moorage.sql import Tx
from moorage.store.cell import servers as cell_servers
from moorage.store.cell.servers import Fence
from moorage.store.region import servers as region_servers
from moorage.store.region.placement import claim_statements
from moorage.store.region.placement.claim_statements import Owner
from moorage.store.region.placement.tables import allocations, inventories
from moorage_testing.region_fixture import CELLS, PROJECT, SERVER, SmallRegion, a_server

OTHER = ServerId("0d0c0b0a-0000-4000-8000-0000000000ff")
LONG_AGO = 1_000_000
Plant = Callable[[SmallRegion], Awaitable[None]]
PLANTS: dict[str, Plant] = {}


def plants(*kinds: str) -> Callable[[Plant], Plant]:
    def keep(plant: Plant) -> Plant:
        for kind in kinds:
            PLANTS[kind] = plant
        return plant

    return keep


async def record(small: SmallRegion, server: ServerId = SERVER) -> Server:
    found = (await records.find(small.context, server)).server
    assert found is not None
    return found


async def change(small: SmallRegion, **changes: Any) -> None:
    """The record says something else from now on."""
    row = await record(small)
    assert row.cell is not None
    at = Fence(OperationId("x"), row.op_epoch // cell_servers.EPOCHS_PER_OPERATION, 900_000, row.op_line)
    await small.cells[row.cell].write(lambda tx: cell_servers.write(tx, msgspec.structs.replace(row, **changes), at))


async def here(small: SmallRegion) -> CellId:
    found = (await record(small)).cell
    assert found is not None
    return found


def elsewhere(cell: CellId) -> CellId:
    return next(each for each in CELLS if each != cell)


async def in_region(small: SmallRegion, statement: Any) -> None:
    await small.region.write(lambda tx: tx.run(statement))


async def change_claim(small: SmallRegion, resource: str, **values: Any) -> None:
    a = allocations.c
    await in_region(small, sa.update(allocations).where(a.consumer == SERVER, a["class"] == resource).values(values))
    await sum_up(small)


async def drop_claim(small: SmallRegion, resource: str) -> None:
    a = allocations.c
    await in_region(small, sa.delete(allocations).where(a.consumer == SERVER, a["class"] == resource))
    await sum_up(small)


async def sum_up(small: SmallRegion) -> None:
    """Counters say what the allocations say, so that nothing else is planted."""
    a, i = allocations.c, inventories.c
    held = sa.select(sa.func.coalesce(sa.func.sum(a.used), 0)).where(a.provider == i.provider, a["class"] == i["class"])
    await in_region(small, sa.update(inventories).values(used=held.scalar_subquery()))


async def claim_for(small: SmallRegion, consumer: str, **owner: Any) -> None:
    provider = str((await record(small)).provider)
    named = Owner(consumer, PROJECT, "user-1", operation="boot", **owner)
    await small.region.write(lambda tx: claim_statements.write(tx, named, {(ProviderId(provider), "VCPU"): 1}, 1))
    await sum_up(small)


def a_port(small: SmallRegion) -> Port:
    """The first one of the server's that is ours."""
    return next(each for each in small.network.ports.values() if each.device_id == SERVER and each.ours)


def change_port(small: SmallRegion, **changes: Any) -> None:
    port = a_port(small)
    small.network.ports[port.id] = msgspec.structs.replace(port, revision=port.revision + 1, **changes)


async def long_ago_but_not_long(small: SmallRegion) -> None:
    now = int(time.time() * 1e6)

    def work(tx: Tx) -> None:
        region_servers.insert(tx, [a_server(id=OTHER, deleted_at=now, vm_state=VmState.DELETED)])
        tx.run(
            region_servers.servers.update().where(region_servers.servers.c.id == OTHER).values(operation=None, doc=None)
        )

    await small.region.write(work)


@plants("shelved_holds_host")
async def shelved_and_holding(small: SmallRegion) -> None:
    guest = next(iter(small.hosts.guests))
    del small.hosts.guests[guest]
    await change(small, vm_state=VmState.SHELVED_OFFLOADED, host=None, provider=None, shelved=Shelved(at=1))
    for key, port in small.network.ports.items():
        small.network.ports[key] = msgspec.structs.replace(port, host="")
