"""The databases of a region and its cells: opened, found to belong together, and brought to this release's tables."""

from dataclasses import dataclass, replace

from moorage.main.config import Config
from moorage.main.stores import bring_together
from moorage.model.ids import CellId
from moorage.operations.cells import CellDatabase
from moorage.sql import Database, Meter, open_database


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
    """Open all of them; their tables are made, or brought forward from an earlier release.

    Raises Unavailable when one cannot be reached; Invalid when they do not belong together, or one is older than the others
    know it to be: the sentence says what to do.
    """
    opened = await connect_databases(config, meter)
    try:
        await bring_together(opened.region, opened.cells)
    except BaseException:
        await opened.close()
        raise
    cells: dict[CellId, Database] = {cell: CellDatabase(cell, database) for cell, database in opened.cells.items()}
    return Databases(opened.region, cells)


async def connect_databases(config: Config, meter: Meter | None = None) -> Databases:
    """Open all of them, and read nothing yet."""
    durability, limits = config.region.durability, config.database.limits
    region = await open_database(config.region_url(), name="region", meter=meter, durability=durability, limits=limits)
    opened = Databases(region, {})
    try:
        for cell in config.cells:
            opened.cells[CellId(cell.name)] = await open_database(
                config.cell_url(cell), name=cell.name, meter=meter, durability=durability, limits=limits
            )
    except BaseException:
        await opened.close()
        raise
    return opened
