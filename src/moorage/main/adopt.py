"""`moorage db adopt`: after one or several databases were restored on purpose, what they contain now is accepted as the truth.

Every process must be stopped.

* The epoch is raised in all databases, so that a database from before the restore cannot be used again by mistake. Marks continue
  above the highest mark that any database remembers.
* What only one database records is copied to the other: servers that were deleted since the backup are deleted, and servers that
  were accepted since the backup are listed again.
* If the region is older than its cells, claims are made again from the cells' servers, and operations that were open at the backup
  are compared with the cells.
* If two cells have a record of a server, one of the records is shown (`adopt_records.py`).
* A server whose record is older than its last operation is reported and stays doubtful (RULES §26): claim, guest and record stay as
  they are, until an audit that asks the hosts is told to repair it, or a person accepts its record (`adopt_doubts.py`).
* A server that the region has in a cell whose database does not know it is reported and stays missing (RULES §22), unless the region
  keeps a copy of it (`adopt_copies.py`).
"""

import time
from collections.abc import Collection, Mapping, Sequence

from moorage.main.adopt_claims import Reclaimed, claim_again, know_hosts
from moorage.main.adopt_copies import record_again
from moorage.main.adopt_doubts import accept_records
from moorage.main.adopt_moves import record_moves_again
from moorage.main.adopt_operations import know_more, settle_operations
from moorage.main.adopt_records import settle_records
from moorage.main.config import Config
from moorage.main.data_dir_lock import DataLock
from moorage.main.databases import Databases, connect_databases
from moorage.main.schemas import CELL, PLACEMENT, REGION
from moorage.main.store_consistency import CellSeen, RegionSeen, identify, read_identities
from moorage.model.errors import Conflict, Internal, Invalid
from moorage.model.ids import CellId
from moorage.model.server import Fault
from moorage.operations.doubtful_servers import doubtful_in
from moorage.operations.missing_servers import missing_in
from moorage.sql import Database, Tx
from moorage.sql.migrate import migrate
from moorage.store.cell import identity as cell_identities
from moorage.store.cell import servers as cell_servers
from moorage.store.cell.identity import CellIdentity, ComparedRecord
from moorage.store.cell.servers import EPOCHS_PER_OPERATION
from moorage.store.region import conductors
from moorage.store.region import identity as region_identities
from moorage.store.region import servers as region_servers
from moorage.store.region.identity import KnownCell, RegionIdentity
from moorage.store.region.placement.restamp import restamp

PAGE_ROWS = 500
NAMED_MAX = 20
"""At most this many missing servers are named; the others are only counted."""


async def adopt(config: Config, empty: Collection[str] = (), as_recorded: Collection[str] = ()) -> list[str]:
    """Adopt the restored databases of a region. Returns one line for each thing that was found or done.

    `empty`: cells whose databases are lost for ever and start as empty ones. `as_recorded`: doubtful servers whose records are right
    as they stand.
    Raises Conflict while a process runs, and Invalid for databases that no restore can explain.
    """
    lock = DataLock(config.data) if config.holds_region else None
    try:
        copies = config.region.record_copies_s > 0
        return await adopt_opened(
            await connect_databases(config), empty, alone=lock is not None, copies=copies, as_recorded=as_recorded
        )
    finally:
        if lock is not None:
            lock.release()


async def adopt_opened(
    databases: Databases,
    empty: Collection[str] = (),
    *,
    alone: bool = False,
    copies: bool = False,
    as_recorded: Collection[str] = (),
) -> list[str]:
    """Adopt databases that are open, and close them. Returns one line for each thing that was found or done.

    `alone`: no other process can use them, even if a lease has not ended.
    `copies`: the region keeps copies of records, and lost records are restored from them. Where it is not set, copies may be left
    from an earlier time; they are too old to be used.
    `as_recorded`: as in `adopt`.
    Raises Conflict while a conductor runs, and Invalid for databases that no restore can explain.
    """
    try:
        region, cells = await read_identities(databases.region, databases.cells)
        check_adoptable(region, cells, frozenset(empty))
        await migrate(databases.region, REGION)
        await migrate(databases.region, PLACEMENT)
        for database in databases.cells.values():
            await migrate(database, CELL)
        if not alone:
            await _check_stopped(databases.region)
        await identify(databases.region, databases.cells)
        behind, now = await _is_behind(databases.region, databases.cells), time.time_ns() // 1000
        behind = behind or await know_more(databases.region, databases.cells)
        notes: list[str] = []  # everything here may be done again, so the epoch is raised last
        if behind:
            notes += await _operations(databases.region, databases.cells, now)
        notes += (await settle_records(databases.region, databases.cells, behind=behind)).describe()
        for cell, database in (
            databases.cells.items() if behind else ()
        ):  # first: a move has claims on a host of another cell
            await know_hosts(databases.region, cell, database)
        for cell, database in databases.cells.items() if copies else ():
            notes += await record_again(databases.region, cell, database, now)
        for cell, database in databases.cells.items():
            notes += await accept_records(databases.region, cell, database, as_recorded)
            notes += await _compare(databases.region, cell, database, now, behind=behind)
        await settle_records(
            databases.region, databases.cells, behind=False
        )  # again, for the servers that are listed again
        notes += await record_moves_again(databases.region, databases.cells)
        lines = await _raise(databases.region, databases.cells) + notes
        stamped = await databases.region.write(restamp)
        if stamped:
            lines.append(f"placement: {stamped} rows of another PostgreSQL cluster were stamped anew")
        return lines
    finally:
        await databases.close()


def check_adoptable(region: RegionSeen, cells: Mapping[CellId, CellSeen], empty: frozenset[str]) -> None:
    """Check that each database is empty on purpose or is a restored one of this region. Raises Invalid when one is not."""
    if not region.made:
        raise Invalid("the region database is empty: check its URL, or restore it first")
    for cell, state in cells.items():
        its = state.identity
        if not state.made and cell not in empty and (cell in region.cells or state.lacks_all):
            raise Invalid(
                f"the database of {cell} is empty: check its URL, or restore it first; if it is lost, "
                f"`moorage db adopt --empty {cell}`"
            )
        if its is not None and its.cell != cell:
            raise Invalid(f"the database configured for {cell} is that of {its.cell}: check the URLs of [[cells]]")
        if its is not None and region.identity is not None and its.region != region.identity.uuid:
            raise Invalid(f"the database of {cell} belongs to another region ({its.region}): check its URL")


async def _check_stopped(region: Database) -> None:
    living = await region.read(conductors.living)
    if living:
        names = ", ".join(sorted(str(each.id) for each in living))
        raise Conflict(f"conductors are running ({names}): stop every process first; a killed one counts for 15 s")


async def _is_behind(region: Database, cells: Mapping[CellId, Database]) -> bool:
    """Tell whether the region's database is older than a cell remembers it."""
    mine = await region.read(region_identities.get)
    remembered = [await database.read(cell_identities.get) for database in cells.values()]
    return mine is not None and any(its is not None and its.region_mark > mine.mark for its in remembered)


async def _operations(region: Database, cells: Mapping[CellId, Database], now_us: int) -> list[str]:
    going, ended = await settle_operations(region, cells, now_us)
    lines = [f"{going} operations were open at the region's backup, and go on"] if going else []
    if len(ended) > NAMED_MAX:
        ended = [*ended[:NAMED_MAX], f"and {len(ended) - NAMED_MAX} others were ended: `moorage operation list`"]
    return lines + ended


async def _raise(region: Database, cells: Mapping[CellId, Database]) -> list[str]:
    """Raise the epoch above all epochs and the marks above all that are remembered.

    The cells come first: after a crash in between, processes refuse to start, and the command can be run again.
    """
    mine = await region.read(region_identities.get)
    known = await region.read(region_identities.cells)
    if mine is None:
        raise Internal("the region has no identity")
    identities: dict[CellId, CellIdentity] = {}
    for cell, database in cells.items():
        its = await database.read(cell_identities.get)
        if its is None:
            raise Internal(f"{cell} has no identity")
        identities[cell] = its
    epoch = max(mine.epoch, *(its.epoch for its in identities.values())) + 1
    mark = max(mine.mark, *(its.region_mark for its in identities.values())) + 1
    lines = [f"region{'':14} epoch {mine.epoch} -> {epoch}" + _behind(mine.mark, mark - 1)]
    kept: dict[CellId, KnownCell] = {}
    for cell, its in identities.items():
        remembered = known[cell].mark if cell in known and known[cell].uuid == its.uuid else 0
        after = CellIdentity(its.uuid, epoch, max(its.mark, remembered) + 1, cell, mine.uuid, mark)
        await cells[cell].write(lambda tx, after=after: cell_identities.adopt(tx, after))  # type: ignore[misc]
        kept[cell] = KnownCell(its.uuid, after.mark)
        lines.append(f"{cell:20} epoch {its.epoch} -> {epoch}" + _behind(its.mark, remembered))
    await region.write(lambda tx: region_identities.adopt(tx, RegionIdentity(mine.uuid, epoch, mark), kept))
    return lines


def _behind(mark: int, remembered: int) -> str:
    return f"; it is older than the others remember it ({mark} < {remembered})" if mark < remembered else ""


async def _compare(region: Database, cell: CellId, database: Database, now_us: int, *, behind: bool) -> list[str]:
    """Copy to each database what only the other one records, claim what the cell has on hosts, and report what is missing."""
    deleted = again = settled = 0
    claimed = Reclaimed()
    after = ""
    while page := await database.read(lambda tx, after=after: cell_identities.records(tx, after, PAGE_ROWS)):  # type: ignore[misc]
        after = page[-1].id
        page = [each for each in page if not each.sealed]  # the record of another cell is the server's
        deleted += await _propagate_deletes(region, database, page, now_us)
        again += await _list_again(region, cell, database, page)
        await claim_again(region, cell, database, page, claimed, behind=behind)
        if behind:
            settled += await _settle(region, database, page, now_us)
    missing = await missing_in(region, cell, database)
    doubtful = await doubtful_in(region, cell, database)
    lines = []
    if deleted:
        lines.append(f"{cell}: {deleted} servers were deleted after its backup, and are deleted now")
    if again:
        lines.append(f"{cell}: {again} servers were accepted after the region's backup, and are listed again")
    if claimed.made:
        lines.append(f"{cell}: the claims of {claimed.made} servers were made again, as the cell has them")
    if claimed.in_part:
        lines.append(
            f"{cell}: of {len(claimed.in_part)} of them a part could not be claimed (virtual functions, suffixed groups of flavors, "
            f"providers that have not reported): {_named(claimed.in_part)}"
        )
    if settled:
        lines.append(
            f"{cell}: nothing is under way any more with {settled} servers; those that were being built are in ERROR"
        )
    if missing:
        lines.append(
            f"{cell}: {len(missing)} servers of the region are missing; their guests, ports and claims stay: {_named(missing)}"
        )
    if doubtful:
        lines.append(
            f"{cell}: {len(doubtful)} servers are doubtful, because their records are older than their last operations; nothing is done "
            f"to them until `moorage audit --kind server_doubtful` is asked to: {_named([each.server for each in doubtful])}"
        )
    return lines


def _named(servers: Sequence[str]) -> str:
    return ", ".join(servers[:NAMED_MAX]) + (" ..." if len(servers) > NAMED_MAX else "")


async def _settle(region: Database, database: Database, page: Sequence[ComparedRecord], now_us: int) -> int:
    """Reset servers on which operations were under way that the region does not know: nobody continues them."""
    known = await region.read(lambda tx: region_identities.known(tx, [each.id for each in page]))
    gone = [each.id for each in page if each.deleted and each.id in known and not known[each.id].deleted]

    def mark_deleted(tx: Tx) -> None:
        for each in gone:
            region_servers.mark_deleted(tx, each, now_us)

    if gone:
        await region.write(mark_deleted)
    idle = [each.id for each in page if not each.deleted and each.id in known and not known[each.id].busy]
    fault = Fault(500, "The region's database was restored while this server was being built.", now_us)
    return await database.write(lambda tx: cell_identities.settle(tx, idle, fault)) if idle else 0


async def _propagate_deletes(region: Database, database: Database, page: Sequence[ComparedRecord], now_us: int) -> int:
    living = [each.id for each in page if not each.deleted]
    known = await region.read(lambda tx: region_identities.known(tx, living))
    gone = [each for each, row in known.items() if row.deleted]
    if gone:
        await database.write(lambda tx: cell_identities.mark_deleted(tx, gone, now_us))
    return len(gone)


async def _list_again(region: Database, cell: CellId, database: Database, page: Sequence[ComparedRecord]) -> int:
    known = await region.read(lambda tx: region_identities.known(tx, [each.id for each in page]))
    turns = {each.id: each.rank // EPOCHS_PER_OPERATION + 1 for each in page}
    lost = [each.id for each in page if each.id not in known and not each.deleted]
    records = await database.read(lambda tx: [cell_servers.get(tx, each) for each in lost])
    low = {each: turn for each, turn in turns.items() if each in known and known[each].seq < turn - 1}

    def work(tx: Tx) -> None:
        region_identities.raise_turns(tx, low)
        region_identities.list_again(tx, [each for each in records if each is not None], cell, turns)

    if lost or low:
        await region.write(work)
    return len(lost)
