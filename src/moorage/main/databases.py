"""The databases of a region and its cells: opened, and brought to this release's tables."""

from dataclasses import dataclass

from moorage.main.config import Config
from moorage.model.ids import CellId
from moorage.sql import Database, Meter, open_database
from moorage.store.cell import actions as _actions
from moorage.store.cell import hosts as _hosts
from moorage.store.cell import servers as _cell_servers
from moorage.store.cell.tables import cell_metadata
from moorage.store.region import conductors as _conductors
from moorage.store.region import operations as _operations
from moorage.store.region import servers as _region_servers
from moorage.store.region.placement.tables import placement_metadata
from moorage.store.region.tables import region_metadata

KNOWN_TABLES = (_actions, _hosts, _cell_servers, _conductors, _operations, _region_servers)
"""Importing a noun's file declares its tables; they are named so that none is forgotten."""


@dataclass(frozen=True)
class Databases:
    region: Database
    cells: dict[CellId, Database]

    async def close(self) -> None:
        for database in (self.region, *self.cells.values()):
            await database.close()


async def open_databases(config: Config, meter: Meter | None = None) -> Databases:
    """Open all of them and make what tables are missing."""
    durability = config.region.durability
    region = await open_database(config.region_url(), name="region", meter=meter, durability=durability)
    await region.create(region_metadata)
    await region.create(placement_metadata)
    cells: dict[CellId, Database] = {}
    for cell in config.cells:
        database = await open_database(config.cell_url(cell), name=cell.name, meter=meter, durability=durability)
        await database.create(cell_metadata)
        cells[CellId(cell.name)] = database
    return Databases(region, cells)
