"""Checks, while a process runs, that its databases are still those that it started with, and raises their marks.

Each new connection to PostgreSQL is checked at once.  Every few seconds all databases are checked on open connections: a dump may
have been loaded into a database in use, or a SQLite file replaced.  A database that is another one, or older than it was, is barred:
all work waits, as for a database that is out, and nothing is concluded from its data (RULES §22).

On PostgreSQL the same check ends sessions whose process was frozen in the middle of a statement, so that their locks are released.
"""

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from moorage.model.clock import Clock
from moorage.model.errors import Problem, Unavailable
from moorage.model.ids import CellId
from moorage.operations.cell_databases import CellDatabase
from moorage.sql import Database, Tx, label
from moorage.sql.failures import sqlstate_of
from moorage.sql.guarded_database import examining
from moorage.sql.postgresql import Ask, PostgresqlDatabase
from moorage.sql.sqlite import SqliteDatabase
from moorage.store.cell import identity as cell_identities
from moorage.store.region import identity as region_identities
from moorage.store.region.identity import KnownCell

logger = logging.getLogger(__name__)

EVERY_S = 5.0
NO_SUCH_TABLE = "42P01"
WHO = "SELECT uuid, epoch, mark FROM store_identity WHERE id = 1"
_IDENTITY = sa.table("store_identity", *map(sa.column, ("id", "uuid", "epoch", "mark")))
_WHO = sa.select(_IDENTITY.c.uuid, _IDENTITY.c.epoch, _IDENTITY.c.mark).where(_IDENTITY.c.id == sa.literal(1))


class _Watched:
    """One database, with its identity at the start of this process."""

    def __init__(self, database: Database, uuid: str, epoch: int, mark: int) -> None:
        self.database, self.uuid, self.epoch, self.mark = database, uuid, epoch, mark
        self.file = _file_of(database)
        self.pools: list[Database] = []
        """All connection pools of this process to the database."""
        self.add(database)

    def add(self, pool: Database) -> None:
        """Check new connections of this pool too, and bar it together with the others."""
        pool.barred = self.database.barred
        self.pools.append(pool)
        if isinstance(pool, PostgresqlDatabase):
            pool.greet = self.greet

    def bar(self, reason: str) -> None:
        for pool in self.pools:
            pool.barred = reason

    def fault(self, row: Sequence[Any] | None) -> str | None:
        """Say what is wrong with the database that answers; `row` is its row of WHO, or None."""
        name = f"the {self.database.name} database"
        if row is None or row[0] != self.uuid:
            return (
                f"{name} is another one than this process started with: nothing is read from it; restore it, or restart"
            )
        if row[1] != self.epoch:
            return f"{name} was restored and adopted since this process started: restart this process"
        if row[2] < self.mark:
            return (
                f"{name} is older than it was ({row[2]} < {self.mark}): nothing is read from it; if it was restored on purpose, "
                "stop every process and run `moorage db adopt`"
            )
        return None

    def greet(self, ask: Ask) -> None:
        """Check a new connection to PostgreSQL."""
        try:
            rows = ask(WHO)
        except Exception as failure:
            if sqlstate_of(failure) != NO_SUCH_TABLE:
                raise
            rows = []
        reason = self.fault(rows[0] if rows else None)
        if reason is not None:
            raise Unavailable(reason)


def _file_of(database: Database) -> tuple[int, int] | None:
    """The identity of the file at a SQLite database's path; None for PostgreSQL, or if there is no file."""
    if not isinstance(database, SqliteDatabase):
        return None
    try:
        status = os.stat(database.path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _read_mark(tx: Tx) -> Sequence[Any] | None:
    row: Sequence[Any] | None = tx.row(_WHO)
    return row


async def end_stalled(database: Database) -> None:
    """End sessions of frozen processes, so that their locks do not last as long as the process is frozen."""
    if not isinstance(database, PostgresqlDatabase):
        return
    try:
        ended = await database.end_stalled()
    except Problem as out:  # the next user of the database reports it
        logger.debug("sessions in the %s database could not be checked: %s", database.name, out)
        return
    if ended:
        logger.warning(
            "the %s database: %d sessions were ended whose process stopped in the middle of a statement",
            database.name,
            ended,
        )


def _inner(database: Database) -> Database:
    return database.inner if isinstance(database, CellDatabase) else database


class StoreWatch:
    """Watches the databases of one process."""

    def __init__(
        self, region: Database, cells: Mapping[CellId, Database], clock: Clock, every_s: float = EVERY_S
    ) -> None:
        self._region_database = region
        self._cells = cells
        self._clock = clock
        self._every_s = every_s
        self._watched: dict[str, _Watched] = {}
        self._life: asyncio.Task[None] | None = None
        self.keeps_marks = False
        """Whether this process raises the marks: a conductor does; an API process only checks."""

    async def start(self) -> None:
        """Begin to watch databases that were just found to belong together. Absent cells are watched from the moment they are taken in."""
        mine = await self._region_database.read(region_identities.get)
        if mine is not None:
            self._watched["region"] = _Watched(self._region_database, mine.uuid, mine.epoch, mine.mark)
        for cell, database in self._cells.items():
            if not (isinstance(database, CellDatabase) and database.absent):
                await self.watch(cell, _inner(database))
        self._life = asyncio.create_task(self._watching(), name="store-watch")

    async def watch(self, cell: CellId, database: Database) -> None:
        """Watch this database, and compare it with what the region knows of the cell. Raises Unavailable when the region's database is out."""
        mine, known = await self._region_database.read(
            lambda tx: (region_identities.get(tx), region_identities.cells(tx))
        )
        if mine is not None and cell in known:
            self._watched[f"cell {cell}"] = _Watched(database, known[cell].uuid, mine.epoch, known[cell].mark)

    async def also(self, pool: Database) -> None:
        """Watch another pool of connections to the region's database too, such as that of a lease.

        Raises Unavailable when another database answers there, or an older one.
        """
        region = self._watched.get("region")
        if region is None or pool is region.database:
            return
        region.add(pool)
        try:
            row = await pool.read(_read_mark)  # it has a connection already
        except DBAPIError:  # its tables are gone
            row = None
        reason = region.fault(row)
        if reason is not None:
            raise Unavailable(reason)

    async def stop(self) -> None:
        if self._life is not None:
            self._life.cancel()
            await asyncio.gather(self._life, return_exceptions=True)

    async def _watching(self) -> None:
        while True:
            await self._clock.sleep(self._every_s)
            try:
                await self.round()
            except Exception as failure:  # noqa: BLE001  if this task ended, nothing would be checked any more
                logger.warning("the databases could not be checked: %r", failure)

    async def round(self) -> None:
        """Check all databases and raise the marks of the right ones: first the cells' own, then what the region knows of them."""
        region = self._watched.get("region")
        if region is None:
            return
        marks: dict[CellId, KnownCell] = {}
        with label("stores"), examining():
            for each in self._watched.values():
                await end_stalled(each.database)
            for cell in self._cells:
                its = self._watched.get(f"cell {cell}")
                if its is not None and await self._check(its, cell_identities.remember, region.mark):
                    marks[cell] = KnownCell(its.uuid, its.mark)
            await self._check(region, region_identities.remind, marks)

    async def _check(self, each: _Watched, remember: Any, of_others: object) -> bool:
        """Whether it is the right database; raise its mark if this process does that."""
        database = each.database

        def work(tx: Tx) -> tuple[str | None, int]:
            row = _read_mark(tx)
            reason = each.fault(row)
            if reason is not None or row is None:
                tx.refuse((reason, each.mark))
            return None, (remember(tx, of_others) if self.keeps_marks else row[2])

        def check_again(tx: Tx) -> tuple[str | None, int]:
            row = _read_mark(tx)
            return each.fault(row), (each.mark if row is None else row[2])

        reason: str | None
        if each.file is not None and _file_of(database) not in (None, each.file):
            reason = f"another file stands in the place of the {database.name} database: restart this process"
        else:
            try:
                reason, mark = await (database.write(work) if self.keeps_marks else database.read(check_again))
            except DBAPIError as failure:  # its tables are gone
                reason, mark = each.fault(None), each.mark
                logger.warning("the %s database: %r", database.name, failure)
            except Problem as out:  # it is out, which its users notice
                logger.warning("the %s database could not be checked: %s", database.name, out)
                return False
            if reason is None:
                each.mark = max(each.mark, mark)
        if (reason or "") != database.barred:
            logger.error("%s", reason) if reason else logger.warning(
                "the %s database is the right one again", database.name
            )
            each.bar(reason or "")
        return reason is None
