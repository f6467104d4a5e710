"""Opens the databases of a region and its cells, checks that they belong together, and upgrades their tables to this release.

A process starts even if a cell does not answer; the cell is taken in later, when it does (`cell_intake.py`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

import sqlalchemy as sa

from moorage.main.config import Cell, Config
from moorage.main.store_consistency import migrate_all
from moorage.model.errors import Unavailable
from moorage.model.ids import CellId
from moorage.operations.cell_databases import AbsentDatabase, CellDatabase
from moorage.sql import Database, Meter, Tx, open_database

BRINGS_MAX = 3
"""How often tables are upgraded, at most, if a cell fails meanwhile and answers again."""

OpenCell: TypeAlias = Callable[[], Awaitable[Database]]
OpenNamed: TypeAlias = Callable[[str], Awaitable[Database]]
"""Opens the database with this name, which is `region` or that of a cell."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Databases:
    region: Database
    cells: dict[CellId, Database]
    absent: Mapping[CellId, OpenCell] = field(default_factory=dict[CellId, OpenCell])
    """Cells that did not answer when this process started, and how each is opened."""

    @property
    def by_name(self) -> dict[str, Database]:
        """`region`, and the cells."""
        return {"region": self.region, **{str(cell): database for cell, database in self.cells.items()}}

    async def close(self) -> None:
        for database in (self.region, *self.cells.values()):
            await database.close()


async def open_for_lease(config: Config, region: Database, meter: Meter | None = None) -> Database:
    """Open the database for a conductor's lease: on PostgreSQL a connection of its own.

    In a shared pool the renewal would wait behind connections that hang, or behind hundreds of other transactions, when the
    database is back.  SQLite has one writer, which the lease shares.  Raises Unavailable when the database cannot be reached.
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


async def open_databases(config: Config, meter: Meter | None = None, *, opened: OpenNamed | None = None) -> Databases:
    """Open all databases; make their tables, or upgrade them from an earlier release. `opened`: opens one, if not by its URL.

    A cell that cannot be reached is left out and becomes a `CellDatabase` with `absent` set.
    Raises Unavailable when the region's database cannot be reached, and Invalid when those that answer do not belong together or
    one is older than the others know it to be; the message says what to do.
    """
    meter = meter or Meter()
    opened = opened or _by_url(config, meter)
    region = await opened("region")
    reached: dict[CellId, Database] = {}
    out: dict[CellId, Unavailable] = {}
    try:
        openers = {each.name: partial(opened, each.name) for each in config.cells}
        await asyncio.gather(*(_open_or_leave(openers[each.name], each, reached, out) for each in config.cells))
        await _migrate_reachable(region, reached, out)
    except BaseException:
        await Databases(region, reached).close()
        raise
    cells: dict[CellId, Database] = {}
    absent: dict[CellId, OpenCell] = {}
    for each in config.cells:
        cell = CellId(each.name)
        if cell in reached:
            cells[cell] = CellDatabase(cell, reached[cell])
            continue
        why = out[cell]
        logger.error("cell %s is out, and its hosts take nothing until it answers: %s %s", cell, why, why.private)
        dialect = sa.make_url(config.cell_url(each)).get_backend_name()
        cells[cell] = CellDatabase(cell, AbsentDatabase(each.name, dialect, meter, why.public))
        absent[cell] = openers[each.name]
    return Databases(region, cells, absent)


async def connect_databases(
    config: Config, meter: Meter | None = None, *, opened: OpenNamed | None = None
) -> Databases:
    """Open all databases, and read nothing yet. Raises Unavailable when one cannot be reached."""
    opened = opened or _by_url(config, meter or Meter())
    databases = Databases(await opened("region"), {})
    try:
        for cell in config.cells:
            databases.cells[CellId(cell.name)] = await opened(cell.name)
    except BaseException:
        await databases.close()
        raise
    return databases


def _by_url(config: Config, meter: Meter) -> OpenNamed:
    urls = {"region": config.region_url(), **{each.name: config.cell_url(each) for each in config.cells}}
    durability, limits = config.region.durability, config.database.limits

    async def opened(name: str) -> Database:
        return await open_database(urls[name], name=name, meter=meter, durability=durability, limits=limits)

    return opened


async def _open_or_leave(
    opened: OpenCell, each: Cell, reached: dict[CellId, Database], out: dict[CellId, Unavailable]
) -> None:
    try:
        reached[CellId(each.name)] = await opened()
    except Unavailable as why:
        out[CellId(each.name)] = why


async def _migrate_reachable(region: Database, reached: dict[CellId, Database], out: dict[CellId, Unavailable]) -> None:
    """Run `migrate_all`; close and leave out a cell that stops answering meanwhile."""
    for attempt in range(1, BRINGS_MAX + 1):
        try:
            await migrate_all(region, reached)
            return
        except Unavailable:
            await region.read(_ping)  # raises if it is the region's database that does not answer
            silent = await _silent(reached)
            if not silent and attempt == BRINGS_MAX:
                raise
            for cell, why in silent.items():
                out[cell] = why
                await reached.pop(cell).close()
    await migrate_all(region, reached)


async def _silent(cells: Mapping[CellId, Database]) -> dict[CellId, Unavailable]:
    silent: dict[CellId, Unavailable] = {}
    for cell, database in cells.items():
        try:
            await database.read(_ping)
        except Unavailable as why:
            silent[cell] = why
    return silent


def _ping(tx: Tx) -> None:
    tx.row(sa.text("SELECT 1"))
