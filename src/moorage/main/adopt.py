"""`moorage db adopt`: after one or several databases were restored on purpose, what they say now is what holds.

Every process is stopped.  The epoch is raised in all databases, so that none of before the restore is taken back by mistake, and
marks go on above the highest that anybody remembers.  What one database knows by a word of its own is told the other: servers that
were deleted since the backup are deleted, those accepted since are listed again.  A server that the region has in a cell whose
database does not know it is only said: it stays, as missing (RULES §22).
"""

import time
from collections.abc import Collection, Mapping, Sequence

from moorage.main.config import Config
from moorage.main.databases import connect_databases
from moorage.main.lock import DataLock
from moorage.main.stores import CellSeen, RegionSeen, identify, look
from moorage.main.trees import CELL, PLACEMENT, REGION
from moorage.model.errors import Conflict, Internal, Invalid
from moorage.model.ids import CellId
from moorage.operations.missing import missing_in
from moorage.sql import Database, Tx
from moorage.sql.migrate import bring_forward
from moorage.store.cell import identity as cell_identities
from moorage.store.cell import servers as cell_servers
from moorage.store.cell.identity import CellIdentity, Recorded
from moorage.store.cell.servers import EPOCHS_PER_OPERATION
from moorage.store.region import conductors
from moorage.store.region import identity as region_identities
from moorage.store.region.identity import KnownCell, RegionIdentity
from moorage.store.region.placement.restamp import restamp

PAGE_ROWS = 500
NAMED_MAX = 20
"""Missing servers that are named; the others are counted."""


async def adopt(config: Config, empty: Collection[str] = ()) -> list[str]:
    """What was found and done, a line each. `empty`: cells whose databases are lost for ever and start as empty ones.

    Raises Conflict while a process runs; Invalid for databases that no restore can explain.
    """
    lock = DataLock(config.data) if config.holds_region else None
    databases = await connect_databases(config)
    try:
        region, cells = await look(databases.region, databases.cells)
        check_adoptable(region, cells, frozenset(empty))
        await bring_forward(databases.region, REGION)
        await bring_forward(databases.region, PLACEMENT)
        for database in databases.cells.values():
            await bring_forward(database, CELL)
        if lock is None:  # who has the data directory's lock is alone, whatever leases say
            await _check_stopped(databases.region)
        await identify(databases.region, databases.cells)
        said = await _raise(databases.region, databases.cells)
        now = time.time_ns() // 1000
        for cell, database in databases.cells.items():
            said += await _compare(databases.region, cell, database, now)
        stamped = await databases.region.write(restamp)
        if stamped:
            said.append(f"placement: {stamped} rows of another PostgreSQL cluster were stamped anew")
        return said
    finally:
        await databases.close()
        if lock is not None:
            lock.release()


def check_adoptable(region: RegionSeen, cells: Mapping[CellId, CellSeen], empty: frozenset[str]) -> None:
    """Raises Invalid for what is no restored database of this region, but another one, or none."""
    if not region.made:
        raise Invalid("the region database is empty: look at its URL, or restore it first")
    for cell, seen in cells.items():
        its = seen.identity
        if not seen.made and cell not in empty and (cell in region.cells or seen.lacks_all):
            raise Invalid(
                f"the database of {cell} is empty: look at its URL, or restore it first; if it is lost for ever, "
                f"`moorage db adopt --empty {cell}`"
            )
        if its is not None and its.cell != cell:
            raise Invalid(f"the database configured for {cell} is that of {its.cell}: look at the URLs of [[cells]]")
        if its is not None and region.identity is not None and its.region != region.identity.uuid:
            raise Invalid(f"the database of {cell} belongs to another region ({its.region}): look at its URL")


async def _check_stopped(region: Database) -> None:
    living = await region.read(conductors.living)
    if living:
        names = ", ".join(sorted(str(each[0]) for each in living))
        raise Conflict(f"conductors are running ({names}): stop every process first; a killed one counts for 15 s")


async def _raise(region: Database, cells: Mapping[CellId, Database]) -> list[str]:
    """One epoch above all, and marks above all that is remembered; the cells first, so that a crash leaves a refusal."""
    mine = await region.read(region_identities.get)
    known = await region.read(region_identities.cells)
    if mine is None:
        raise Internal("the region has no identity")
    found: dict[CellId, CellIdentity] = {}
    for cell, database in cells.items():
        its = await database.read(cell_identities.get)
        if its is None:
            raise Internal(f"{cell} has no identity")
        found[cell] = its
    epoch = max(mine.epoch, *(its.epoch for its in found.values())) + 1
    mark = max(mine.mark, *(its.region_mark for its in found.values())) + 1
    said = [f"region{'':14} epoch {mine.epoch} -> {epoch}" + _behind(mine.mark, mark - 1)]
    kept: dict[CellId, KnownCell] = {}
    for cell, its in found.items():
        remembered = known[cell].mark if cell in known and known[cell].uuid == its.uuid else 0
        after = CellIdentity(its.uuid, epoch, max(its.mark, remembered) + 1, cell, mine.uuid, mark)
        await cells[cell].write(lambda tx, after=after: cell_identities.adopt(tx, after))  # type: ignore[misc]
        kept[cell] = KnownCell(its.uuid, after.mark)
        said.append(f"{cell:20} epoch {its.epoch} -> {epoch}" + _behind(its.mark, remembered))
    await region.write(lambda tx: region_identities.adopt(tx, RegionIdentity(mine.uuid, epoch, mark), kept))
    return said


def _behind(mark: int, remembered: int) -> str:
    return f"; it is older than the others remember it ({mark} < {remembered})" if mark < remembered else ""


async def _compare(region: Database, cell: CellId, database: Database, now_us: int) -> list[str]:
    """Tell each what only the other has a word of, and say what is missing."""
    deleted = again = 0
    after = ""
    while page := await database.read(lambda tx, after=after: cell_identities.records(tx, after, PAGE_ROWS)):  # type: ignore[misc]
        after = page[-1].id
        deleted += await _tell_of_deletes(region, database, page, now_us)
        again += await _list_again(region, cell, database, page)
    missing = await missing_in(region, cell, database)
    said = []
    if deleted:
        said.append(f"{cell}: {deleted} servers were deleted after its backup, and are deleted now")
    if again:
        said.append(
            f"{cell}: {again} servers were accepted after the region's backup, and are listed again; their claims are not"
        )
    if missing:
        named = ", ".join(missing[:NAMED_MAX]) + (" ..." if len(missing) > NAMED_MAX else "")
        said.append(
            f"{cell}: {len(missing)} servers of the region are missing; their guests, ports and claims stay: {named}"
        )
    return said


async def _tell_of_deletes(region: Database, database: Database, page: Sequence[Recorded], now_us: int) -> int:
    living = [each.id for each in page if not each.deleted]
    known = await region.read(lambda tx: region_identities.known(tx, living))
    gone = [each for each, says in known.items() if says.deleted]
    if gone:
        await database.write(lambda tx: cell_identities.mark_deleted(tx, gone, now_us))
    return len(gone)


async def _list_again(region: Database, cell: CellId, database: Database, page: Sequence[Recorded]) -> int:
    known = await region.read(lambda tx: region_identities.known(tx, [each.id for each in page]))
    turns = {each.id: each.rank // EPOCHS_PER_OPERATION + 1 for each in page}
    lost = [each.id for each in page if each.id not in known and not each.deleted]
    found = await database.read(lambda tx: [cell_servers.get(tx, each) for each in lost])
    low = {each: turn for each, turn in turns.items() if each in known and known[each].seq < turn - 1}

    def work(tx: Tx) -> None:
        region_identities.raise_turns(tx, low)
        region_identities.list_again(tx, [each for each in found if each is not None], cell, turns)

    if lost or low:
        await region.write(work)
    return len(lost)
