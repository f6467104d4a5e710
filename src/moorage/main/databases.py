"""The databases of a region and its cells: opened, and brought to this release's tables."""

import importlib
import pkgutil
from dataclasses import dataclass, replace
from pathlib import Path

import moorage.store.cell as _cell_room
import moorage.store.region as _region_room
import moorage.store.region.placement as _placement_room
from moorage.main.config import Config
from moorage.model.ids import CellId
from moorage.operations.cells import CellDatabase
from moorage.sql import Database, Meter, open_database
from moorage.sql.migrate import Tree, bring_forward
from moorage.store.cell.tables import cell_metadata
from moorage.store.region.placement.tables import placement_metadata
from moorage.store.region.tables import region_metadata

for _room in (_region_room, _cell_room):  # importing a noun's file declares its tables: none can be forgotten
    for _noun in pkgutil.iter_modules(_room.__path__):
        importlib.import_module(f"{_room.__name__}.{_noun.name}")

REGION = Tree("region", region_metadata, Path(_region_room.__path__[0]) / "revisions")
PLACEMENT = Tree("placement", placement_metadata, Path(_placement_room.__path__[0]) / "revisions")
CELL = Tree("cell", cell_metadata, Path(_cell_room.__path__[0]) / "revisions")


@dataclass(frozen=True)
class Databases:
    region: Database
    cells: dict[CellId, Database]

    async def close(self) -> None:
        for database in (self.region, *self.cells.values()):
            await database.close()


async def open_for_lease(config: Config, region: Database, meter: Meter | None = None) -> Database:
    """Where a conductor's lease is renewed: with PostgreSQL over a connection of its own.

    A pool whose connections all hang, or for which hundreds wait, would keep the lease from being renewed when the database is
    back.  SQLite has one writer, which the lease shares.  Raises Unavailable when the database cannot be reached.
    """
    if region.dialect != "postgresql":
        return region
    half_s = config.compute.lease_s / 2
    limits = config.database.limits
    own = replace(
        limits,
        pool_size=1,
        pool_wait_s=half_s,
        connect_s=min(limits.connect_s, half_s),
        statement_s=min(limits.statement_s, half_s),
    )
    return await open_database(config.region_url(), name="region", meter=meter, limits=own)


async def open_databases(config: Config, meter: Meter | None = None) -> Databases:
    """Open all of them; their tables are made, or brought forward from an earlier release."""
    durability = config.region.durability
    limits = config.database.limits
    region = await open_database(config.region_url(), name="region", meter=meter, durability=durability, limits=limits)
    await bring_forward(region, REGION)
    await bring_forward(region, PLACEMENT)
    cells: dict[CellId, Database] = {}
    for cell in config.cells:
        database = await open_database(
            config.cell_url(cell), name=cell.name, meter=meter, durability=durability, limits=limits
        )
        await bring_forward(database, CELL)
        cells[CellId(cell.name)] = CellDatabase(CellId(cell.name), database)
    return Databases(region, cells)
