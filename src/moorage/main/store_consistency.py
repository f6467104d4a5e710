"""Checks that the databases of a region belong together, and that none is older than the others know it to be (RULES §22).

The region and each cell record their own identity, the identities of the others, and a mark that grows while processes run.  A
process that starts refuses a foreign, an empty or an older database before it reads anything from it; a database that was restored on
purpose is adopted with `moorage db adopt`.  While a process runs, `StoreWatch` checks again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from sqlalchemy.engine import Connection

from moorage.main.schemas import CELL, PLACEMENT, REGION
from moorage.model.errors import Invalid
from moorage.model.ids import CellId, ServerId
from moorage.sql import Database
from moorage.sql.migrate import has_table, migrate
from moorage.store.cell import identity as cell_identities
from moorage.store.cell.identity import CellIdentity
from moorage.store.region import identity as region_identities
from moorage.store.region.identity import KnownCell, RegionIdentity
from moorage.store.region.placement.restamp import restamp

LOOKS = 3
"""How often the databases are read before a fault is believed: they are read one after the other while other processes write."""
ADOPT = "if it was restored on purpose, stop every process and run `moorage db adopt`"


@dataclass(frozen=True)
class RegionSeen:
    made: bool
    """Whether the database has Moorage's tables."""
    identity: RegionIdentity | None = None
    cells: Mapping[CellId, KnownCell] = field(default_factory=dict)


@dataclass(frozen=True)
class CellSeen:
    made: bool
    identity: CellIdentity | None = None
    lacks_all: bool = False
    """Whether it has none of the servers that the region has in it (read only if the database has no identity)."""


def refusal(region: RegionSeen, cells: Mapping[CellId, CellSeen]) -> str | None:
    """Say why these databases cannot be used together, and what to do; None: they can be used."""
    for cell, state in cells.items():
        reason = _refused(cell, state, region)
        if reason is not None:
            return reason
    return None


def _refused(cell: CellId, state: CellSeen, region: RegionSeen) -> str | None:
    its, mine = state.identity, region.identity
    known = region.cells.get(cell)
    if its is None:
        if known is not None or state.lacks_all:
            what = (
                "has no identity, and is older than the region"
                if state.made
                else "is empty, and the region knows the cell"
            )
            return (
                f"the database of {cell} {what}: check its URL, or restore it from a backup and run `moorage db adopt` "
                f"(`--empty {cell}` if it is lost for ever)"
            )
        return None
    if mine is None or its.region != mine.uuid:
        whose = "empty" if not region.made else "without identity" if mine is None else f"region {mine.uuid}"
        return (
            f"the database of {cell} belongs to region {its.region}, and the region database is {whose}: look at the URLs of "
            "both, or restore the region's from a backup and run `moorage db adopt`"
        )
    if its.cell != cell:
        return f"the database configured for {cell} is that of {its.cell}: check the URLs of [[cells]]"
    if known is not None and known.uuid != its.uuid:
        return f"the database of {cell} is another one ({its.uuid}) than the region knows ({known.uuid}): check its URL; {ADOPT}"
    if its.epoch != mine.epoch:
        older = f"the database of {cell}" if its.epoch < mine.epoch else "the region database"
        return f"{older} is from before the last restore (epochs {its.epoch} and {mine.epoch}): check its URL; {ADOPT}"
    if known is not None and its.mark < known.mark:
        return f"the database of {cell} is older than the region remembers it ({its.mark} < {known.mark}): {ADOPT}"
    if mine.mark < its.region_mark:
        return f"the region database is older than {cell} remembers it ({mine.mark} < {its.region_mark}): {ADOPT}"
    return None


def _tables_made(connection: Connection) -> tuple[bool, bool]:
    """Whether the database has Moorage's tables, and whether the table of the identity is among them."""
    return has_table(connection, "servers"), has_table(connection, "store_identity")


async def _region_seen(database: Database) -> RegionSeen:
    made, named = await database.alter(_tables_made)
    if not named:
        return RegionSeen(made)
    identity, cells = await database.read(lambda tx: (region_identities.get(tx), region_identities.cells(tx)))
    return RegionSeen(made, identity, cells)


async def _cell_seen(database: Database) -> CellSeen:
    made, named = await database.alter(_tables_made)
    if not named:
        return CellSeen(made)
    return CellSeen(made, await database.read(cell_identities.get))


async def read_identities(
    region: Database, cells: Mapping[CellId, Database]
) -> tuple[RegionSeen, dict[CellId, CellSeen]]:
    """Read the identities and marks of all databases; nothing is written."""
    states = {cell: await _cell_seen(database) for cell, database in cells.items()}
    mine = await _region_seen(region)
    if mine.made:
        for cell, its in states.items():
            if its.identity is None:
                states[cell] = CellSeen(its.made, lacks_all=await _lacks_all(region, cells[cell], cell, its.made))
    return mine, states


async def _lacks_all(region: Database, database: Database, cell: CellId, made: bool) -> bool:
    placed: Sequence[ServerId] = await region.read(lambda tx: region_identities.placed_in(tx, cell))
    if not placed:
        return False
    return not made or not await database.read(lambda tx: cell_identities.recorded(tx, placed))


async def check(region: Database, cells: Mapping[CellId, Database]) -> None:
    """Check that the databases belong together. Raises Invalid when they do not, with a message that says what to do."""
    reason: str | None = None
    for _ in range(LOOKS):
        reason = refusal(*await read_identities(region, cells))
        if reason is None:
            return
    raise Invalid(reason or "")


async def migrate_all(region: Database, cells: Mapping[CellId, Database]) -> None:
    """Check all databases, upgrade their tables, and give an identity to new ones. Raises Invalid when they do not belong together."""
    await check(region, cells)
    await migrate(region, REGION)
    await migrate(region, PLACEMENT)
    for database in cells.values():
        await migrate(database, CELL)
    await identify(region, cells)
    await check(region, cells)
    await region.write(restamp)


async def migrate_cell(region: Database, cell: CellId, database: Database) -> None:
    """Do the same for one cell of a region that is in use. Raises Invalid when the two databases do not belong together."""
    alone = {cell: database}
    await check(region, alone)
    await migrate(database, CELL)
    await identify(region, alone)
    await check(region, alone)


async def identify(region: Database, cells: Mapping[CellId, Database]) -> None:
    """Give an identity to databases that have none, and record the cells' identities in the region.

    A cell's own identity is written first: after a crash in between, a region that knows a cell without identity would be refused.
    """
    identity = await region.read(region_identities.get)
    mine = await region.write(region_identities.make) if identity is None else identity
    known = await region.read(region_identities.cells)
    fresh: dict[CellId, KnownCell] = {}
    for cell, database in cells.items():
        its = await database.read(cell_identities.get)
        if its is None:
            its = await database.write(
                partial(cell_identities.make, cell=cell, region=mine.uuid, epoch=mine.epoch, region_mark=mine.mark)
            )
        if cell not in known:
            fresh[cell] = KnownCell(its.uuid, its.mark)
    if fresh:
        await region.write(lambda tx: region_identities.remember(tx, fresh))
