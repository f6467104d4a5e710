"""Servers with records in two cells, in a small region: what is held of them, and what is amiss; for proofs."""

from collections.abc import Mapping
from typing import Any

from moorage.model.ids import CellId, ServerId
from moorage.model.migration import MigrationStatus
from moorage.model.resources import Inventory
from moorage.placement.engine import Engine
from moorage.placement.inventory import HostInventory
from moorage.sql import Database
from moorage.store.cell import record_transfer
from moorage.store.region import hidden_records
from moorage.store.region import servers as region_servers
from moorage_testing.region_guarantees import devices_of

FAR_HOSTS = (("host5", CellId("cell2")), ("host6", CellId("cell2")))
"""Two hosts more in the second cell, where a server that comes from the first one may have to try another."""
CAME_TO_NOTHING = frozenset({MigrationStatus.ERROR, MigrationStatus.FAILED, MigrationStatus.CANCELLED})


async def wire_far_hosts(engine: Engine) -> None:
    """They stay for the worlds after this one."""
    for host, cell in FAR_HOSTS:
        inventories = {"VCPU": Inventory(8), "MEMORY_MB": Inventory(8192), "DISK_GB": Inventory(100)}
        await engine.report_host(HostInventory(host=host, cell=cell, inventories=inventories))
        await engine.report_devices(devices_of(host))


async def records_held(region: Database, cells: Mapping[CellId, Database], server: ServerId) -> dict[str, Any]:
    """Which cell's record is shown, where others are, what each has (actions that went well, moves), and which are sealed.

    `amiss`: what must never be, whoever died: a shown record that is sealed or not there, another one that the region does not name,
    a row of the region about a cell that has none.
    """
    where = await region.read(lambda tx: region_servers.find(tx, server))
    opened = await region.read(lambda tx: hidden_records.open_of(tx, [server]))
    hidden = opened.get(server, frozenset())
    shown = None if where is None else where.recorded_in
    found: dict[CellId, tuple[int, int]] = {}
    amiss: list[str] = []
    for cell, database in cells.items():
        copy = await database.read(lambda tx: record_transfer.read(tx, server))
        sealed = await database.read(lambda tx: record_transfer.is_sealed(tx, server))
        if copy is not None:
            well = [each for each in copy.actions if each.finished_at is not None and each.message is None]
            found[cell] = len(well), sum(each.status not in CAME_TO_NOTHING for each in copy.migrations)
            if copy.server.cell != cell and not copy.server.deleted:
                amiss.append(f"the record in {cell} says that it is in {copy.server.cell}")
        if cell == shown and (copy is None or sealed or cell in hidden):
            amiss.append(f"the record of {cell} is not shown")
        if cell != shown and copy is not None and shown is not None and cell not in hidden:
            amiss.append(f"the record of {cell} is shown too")
        if cell in hidden and copy is None:
            amiss.append(f"{cell} has no record that were hidden")
    if shown is not None and any(each > found.get(shown, each) for each in found.values()):
        amiss.append(f"actions or moves were not copied to {shown}")
    return {
        "shown in": shown,
        "records": sorted(found),
        "hidden in": sorted(hidden),
        "amiss": amiss,
        "left rows": sorted(await _rows_left(cells, server, found)),
    }


async def _rows_left(cells: Mapping[CellId, Database], server: ServerId, found: Mapping[CellId, object]) -> list[str]:
    """Cells that have actions or moves of the server, and no record."""
    left: list[str] = []
    for cell, database in cells.items():
        if cell not in found and await database.read(lambda tx: record_transfer.has_rows(tx, server)):
            left.append(cell)
    return left
