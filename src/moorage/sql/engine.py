"""Databases: a transaction is a plain, synchronous function `(tx) -> result`, so nothing can await inside it (RULES §4).

    database = await open_database("sqlite:////tmp/region.db", name="region")
    made = await database.write(lambda tx: tx.rows(insert(...).returning(...)))

SQLite: one writer thread per file runs the functions, those waiting together share one COMMIT (at most 256), each in its
own SAVEPOINT, so one that raises takes back its own work only.  Reads run on read-only connections in a few threads.
PostgreSQL: each function is a transaction of its own on a pooled connection (the server groups commits by itself);
a deadlock (40P01) or serialization failure (40001) runs the function again.  A server that went away is `Unavailable`, and
`UnknownOutcome` where a COMMIT was on its way.

What a function reads or writes is committed when `write` returns.  `tx.refuse(value)` takes back the function's work and
makes `write` return `value`: a refusal is an answer, not an exception.  `tx.again()` takes it back and runs the function once
more, with `tx.is_again`: for what is tried the short way first.
"""

import asyncio
import contextvars
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, Protocol, TypeAlias, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from moorage.model.errors import Internal, Invalid, Problem, Unavailable, UnknownOutcome
from moorage.sql.meter import Meter, current_label
from moorage.sql.ready import Ready
from moorage.sql.words import Words

T = TypeVar("T")
Params: TypeAlias = Mapping[str, Any] | Sequence[Mapping[str, Any]] | None
Statement: TypeAlias = sa.Executable | Ready
Durability: TypeAlias = Literal["power", "process"]

BATCH_MAX = 256
READERS_SQLITE = 4
READER_CACHE_KIB = 4000
"""Of each; what one reader has not, the system's cache of files has."""
POOL_POSTGRESQL = 16
BUSY_TIMEOUT_MS = 30_000
TRIES_AFTER_DEADLOCK = 10
SESSION_POSTGRESQL = {"idle_in_transaction_session_timeout": "5000", "lock_timeout": "10000"}
"""ms. A process that stops in the middle of a transaction must not keep its locks: the server ends its session."""
LOST_RACES = {"40P01", "40001", "55P03"}
"""Deadlock, serialization failure, lock not had in time: run it again."""
NO_SUCH_CHARACTER = "22021"
"""SQLite keeps NUL in a text; PostgreSQL does not."""
QUEUE_MAX = 20_000


class Refused(Exception):
    """Raised by `tx.refuse`; never leaves this room."""

    def __init__(self, value: object) -> None:
        super().__init__("refused")
        self.value = value


class Again(Exception):
    """Raised by `tx.again`; never leaves this room."""


class LostRace(Exception):
    """Raised by `tx.lost`; never leaves this room."""


class Tx:
    """One open transaction. Statements are SQLAlchemy Core constructs; text is for what Core cannot say, `Words` for the busiest."""

    def __init__(
        self,
        connection: Connection,
        meter: Meter,
        name: str,
        dialect: str,
        raw: sqlite3.Connection | None = None,
        *,
        again: bool = False,
    ) -> None:
        self._connection = connection
        self._meter = meter
        self._name = name
        self._raw = raw
        self.dialect = dialect
        """`sqlite` or `postgresql`."""
        self.wrote = False
        self.is_again = again
        """The function is run a second time, because it asked for that."""

    def _execute(self, statement: sa.Executable, parameters: Params) -> sa.CursorResult[Any]:
        self._meter.statements[self._name, current_label()] += 1
        if not isinstance(statement, sa.Select | sa.CompoundSelect):
            self.wrote = True
        return cast("sa.CursorResult[Any]", self._connection.execute(statement, parameters))

    def found(self, words: Words, parameters: Mapping[str, Any]) -> Sequence[Any]:
        """Every row of a statement in the database's own words, as plain tuples.

        On SQLite the driver's own errors come through: such statements break no constraint.
        """
        self._meter.statements[self._name, current_label()] += 1
        self.wrote |= words.writes
        if self._raw is not None:
            return self._raw.execute(words.sqlite, parameters).fetchall()
        return self._connection.exec_driver_sql(words.numbered, words.values(parameters)).fetchall()

    def each(self, words: Words, rows: Sequence[Sequence[Any]]) -> int:
        """Run one statement of SQLite's for every row of parameters; how many rows it changed.  (PostgreSQL is given arrays.)"""
        if self._raw is None:
            raise Internal("this statement is for SQLite alone")
        self._meter.statements[self._name, current_label()] += 1
        self.wrote |= words.writes
        return self._raw.executemany(words.sqlite, rows).rowcount

    def _ready(self, statement: Ready, parameters: Params, raw: sqlite3.Connection) -> list[Any]:
        self._meter.statements[self._name, current_label()] += 1
        if not statement.reads:
            self.wrote = True
        if isinstance(parameters, Mapping):
            return statement.run(raw, self._connection.dialect, parameters)
        if parameters is None or len(parameters) == 1:
            return statement.run(raw, self._connection.dialect, parameters[0] if parameters else {})
        statement.run_each(raw, self._connection.dialect, parameters)
        return []

    def rows(self, statement: Statement, parameters: Params = None) -> Sequence[Any]:
        """Every row; row counts come from here (`RETURNING`), never from `rowcount`."""
        if isinstance(statement, Ready):
            if self._raw is not None:
                return self._ready(statement, parameters, self._raw)
            statement = statement.statement
        return self._execute(statement, parameters).fetchall()

    def stream(self, statement: sa.Executable, rows: int) -> Iterator[Sequence[sa.Row[Any]]]:
        """Every row, so many at a time, while the database still looks for others."""
        yield from self._execute(statement.execution_options(yield_per=rows), None).partitions()

    def row(self, statement: Statement, parameters: Params = None) -> Any:
        """The first row, or None."""
        if isinstance(statement, Ready):
            if self._raw is not None:
                found = self._ready(statement, parameters, self._raw)
                return found[0] if found else None
            statement = statement.statement
        return self._execute(statement, parameters).fetchone()

    def scalar(self, statement: Statement, parameters: Params = None) -> Any:
        """The first column of the first row, or None."""
        first = self.row(statement, parameters)
        return None if first is None else first[0]

    def run(self, statement: Statement, parameters: Params = None) -> None:
        """For what returns nothing; a list of parameter mappings runs the statement for each."""
        if isinstance(statement, Ready):
            if self._raw is not None:
                self._ready(statement, parameters, self._raw)
                return
            statement = statement.statement
        self._execute(statement, parameters).close()

    def refuse(self, value: object) -> NoReturn:
        """Take back all this function wrote, and make `write` return `value`."""
        raise Refused(value)

    def again(self) -> NoReturn:
        """Take back all this function wrote and run it once more, with `is_again`: the short way in was a dead end."""
        if self.is_again:
            raise Internal("a transaction asked twice to be run again")
        raise Again

    def lost(self) -> NoReturn:
        """Somebody was first where only this shows it: take back all, and run the function again, as after a deadlock.

        Not on SQLite, where one writes at a time.
        """
        raise LostRace


Work: TypeAlias = Callable[[Tx], T]


class Database(Protocol):
    """One database, of either kind."""

    name: str
    dialect: str
    meter: Meter

    async def write(self, work: Work[T]) -> T:
        """Run `work` in a writing transaction and return its answer once that is committed."""
        ...

    async def read(self, work: Work[T]) -> T:
        """Run `work` in a read-only snapshot."""
        ...

    async def glance(self, work: Work[T]) -> T:
        """The same for a row or two found by key: with SQLite on the asker's own thread, where it takes less than asking another."""
        ...

    async def create(self, metadata: sa.MetaData) -> None:
        """Make the tables that are missing."""
        ...

    async def alter(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in one transaction of its own, with the bare connection: for `moorage.sql.migrate` alone."""
        ...

    async def close(self) -> None: ...


async def open_database(
    url: str, *, name: str, meter: Meter | None = None, durability: Durability = "power"
) -> Database:
    """Open `sqlite:///path` or `postgresql://…`; `durability="process"` survives kill -9 but not a power cut (SQLite only).

    Raises Unavailable when the database cannot be reached, Internal when the URL is of no kind we know.
    """
    parsed = sa.make_url(url)
    if parsed.get_backend_name() == "sqlite":
        return SqliteDatabase(url, name, meter or Meter(), durability)
    if parsed.get_backend_name() == "postgresql":
        database = PostgresqlDatabase(url, name, meter or Meter())
        await database.check()
        return database
    raise Internal(f"the database URL of {name} is neither sqlite nor postgresql", private=str(parsed))


# ---------------------------------------------------------------------------------------------------- SQLite


@dataclass
class _Member:
    work: Callable[[Tx], object]
    context: contextvars.Context
    done: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop
    answer: object = None
    failure: BaseException | None = None


def _settle(members: Sequence[_Member]) -> None:
    for member in members:
        if member.done.done():  # the asker was cancelled; its work is committed all the same
            continue
        if member.failure is not None:
            member.done.set_exception(member.failure)
        else:
            member.done.set_result(member.answer)


class SqliteDatabase:
    """One file, one writer thread."""

    dialect = "sqlite"

    def __init__(self, url: str, name: str, meter: Meter, durability: Durability) -> None:
        self.name = name
        self.meter = meter
        self._path = sa.make_url(url).database or ""
        if not self._path or self._path == ":memory:":
            raise Internal(f"the database of {name} needs a file: two connections must see the same data")
        os.makedirs(os.path.dirname(os.path.abspath(self._path)), exist_ok=True)
        self._synchronous = "FULL" if durability == "power" else "NORMAL"
        self._engine = sa.create_engine(
            f"sqlite:///{self._path}", creator=self._connect, poolclass=sa.pool.NullPool, isolation_level="AUTOCOMMIT"
        )
        self._writing = self._engine.connect()
        self._waiting: queue.SimpleQueue[_Member | None] = queue.SimpleQueue()
        self._readers = ThreadPoolExecutor(READERS_SQLITE, thread_name_prefix=f"{name}-read")
        self._reading = threading.local()
        self._open_readers: list[Connection] = []
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name=f"{name}-write", daemon=True)
        self._thread.start()

    def _connect(self) -> sqlite3.Connection:
        raw = sqlite3.connect(
            self._path,
            isolation_level=None,
            check_same_thread=False,
            timeout=BUSY_TIMEOUT_MS / 1000,
            cached_statements=512,
        )
        raw.execute("PRAGMA journal_mode=WAL")
        raw.execute(f"PRAGMA synchronous={self._synchronous}")
        raw.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
        raw.execute("PRAGMA foreign_keys=ON")
        raw.execute("PRAGMA cache_size=-32000")
        return raw

    async def write(self, work: Work[T]) -> T:
        if self._closed:
            raise Unavailable(f"the {self.name} database is closed")
        if self._waiting.qsize() > QUEUE_MAX:
            raise Unavailable(f"the {self.name} database is busy; try again later")
        loop = asyncio.get_running_loop()
        member = _Member(work, contextvars.copy_context(), loop.create_future(), loop)
        self._waiting.put(member)
        return cast("T", await member.done)

    async def read(self, work: Work[T]) -> T:
        if self._closed:
            raise Unavailable(f"the {self.name} database is closed")
        loop = asyncio.get_running_loop()
        member = _Member(work, contextvars.copy_context(), loop.create_future(), loop)
        self._readers.submit(
            self._answer, member
        )  # `run_in_executor` would chain two futures, for longer than a row takes
        return cast("T", await member.done)

    async def glance(self, work: Work[T]) -> T:
        if self._closed:
            raise Unavailable(f"the {self.name} database is closed")
        return self._read(work)

    async def create(self, metadata: sa.MetaData) -> None:
        await self.alter(metadata.create_all)

    async def alter(self, work: Callable[[Connection], T]) -> T:
        return await self.write(lambda tx: work(tx._connection))  # pyright: ignore[reportPrivateUsage]

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._waiting.put(None)
        await asyncio.to_thread(self._thread.join)
        self._readers.shutdown(wait=True)
        for connection in self._open_readers:
            connection.close()
        self._writing.close()
        self._engine.dispose()

    def _answer(self, member: _Member) -> None:
        try:
            member.answer = member.context.run(self._read, member.work)
        except BaseException as failure:  # noqa: BLE001  handed to the asker
            member.failure = failure
        if not member.loop.is_closed():
            member.loop.call_soon_threadsafe(_settle, (member,))

    def _read(self, work: Work[T]) -> T:
        connection: Connection | None = getattr(self._reading, "connection", None)
        if connection is None:
            connection = self._engine.connect()
            connection.exec_driver_sql("PRAGMA query_only=ON")
            connection.exec_driver_sql(f"PRAGMA cache_size=-{READER_CACHE_KIB}")
            self._reading.connection = connection
            self._open_readers.append(connection)
        raw = cast("sqlite3.Connection", connection.connection.driver_connection)
        raw.execute("BEGIN")
        try:
            return work(Tx(connection, self.meter, self.name, self.dialect, raw))
        finally:
            raw.execute("ROLLBACK")

    def _serve(self) -> None:
        raw = cast("sqlite3.Connection", self._writing.connection.driver_connection)
        while (first := self._waiting.get()) is not None:
            members, ends = [first], False
            while len(members) < BATCH_MAX and not self._waiting.empty():
                following = self._waiting.get()
                if following is None:
                    ends = True
                    break
                members.append(following)
            self._tell_together(raw, members)
            loops = {member.loop for member in members}
            for loop in loops:
                mine = [member for member in members if member.loop is loop]
                if not loop.is_closed():
                    loop.call_soon_threadsafe(_settle, mine)
            if ends:
                return

    def _tell_together(self, raw: sqlite3.Connection, members: Sequence[_Member]) -> None:
        try:
            raw.execute("BEGIN IMMEDIATE")
            alone = len(members) == 1
            wrote = [self._tell(raw, member, alone) for member in members]
            if raw.in_transaction:  # one that was alone and refused has taken back all of it
                raw.execute("COMMIT")
        except BaseException as failure:  # noqa: BLE001  nobody's work is kept, and everybody must hear why
            if raw.in_transaction:
                raw.execute("ROLLBACK")
            for member in members:
                member.failure = Unavailable(f"the {self.name} database could not commit", private=repr(failure))
            return
        writers = [member for member, did in zip(members, wrote, strict=True) if did]
        if writers:
            self.meter.commits[self.name, writers[0].context.run(current_label)] += 1

    def _tell(self, raw: sqlite3.Connection, member: _Member, alone: bool) -> bool:
        """Run one member in its savepoint; an exception is its own and takes back its own work only.

        One that is alone needs none: the transaction is its own.
        """
        if not alone:
            raw.execute("SAVEPOINT member")
        tx = Tx(self._writing, self.meter, self.name, self.dialect, raw)
        try:
            try:
                member.answer = member.context.run(member.work, tx)
            except Again:
                for statement in ("ROLLBACK", "BEGIN IMMEDIATE") if alone else ("ROLLBACK TO member",):
                    raw.execute(statement)
                tx = Tx(self._writing, self.meter, self.name, self.dialect, raw, again=True)
                member.answer = member.context.run(member.work, tx)
        except BaseException as failure:  # noqa: BLE001  handed to the asker
            raw.execute("ROLLBACK" if alone else "ROLLBACK TO member")
            if isinstance(failure, Refused):
                member.answer = failure.value
            else:
                member.failure = failure
            if not alone:
                raw.execute("RELEASE member")
            return False
        if not alone:
            raw.execute("RELEASE member")
        return tx.wrote


# ------------------------------------------------------------------------------------------------ PostgreSQL


def _is_lost_race(failure: DBAPIError) -> bool:
    return bool({getattr(failure.orig, "sqlstate", None), getattr(failure.orig, "pgcode", None)} & LOST_RACES)


def _is_lost_server(failure: BaseException) -> bool:
    """The server went away, is starting or stopping, or could not be reached: asking again later may help."""
    if isinstance(failure, OSError | TimeoutError | PoolTimeout):
        return True
    if not isinstance(failure, DBAPIError):
        return False
    state = str(getattr(failure.orig, "sqlstate", None) or "")
    refused = state[:2] == "08" or state[:3] in {"57P", "533"}  # no connection, shut down, too many connections
    return failure.connection_invalidated or isinstance(failure, InterfaceError) or refused


class PostgresqlDatabase:
    """A pool of connections to one PostgreSQL database, READ COMMITTED."""

    dialect = "postgresql"

    def __init__(self, url: str, name: str, meter: Meter) -> None:
        self.name = name
        self.meter = meter
        parsed = sa.make_url(url).set(drivername="postgresql+asyncpg")
        self._engine: AsyncEngine = create_async_engine(
            parsed,
            pool_size=POOL_POSTGRESQL,
            max_overflow=0,
            pool_timeout=30,
            isolation_level="READ COMMITTED",
            connect_args={"server_settings": SESSION_POSTGRESQL},
        )

    async def check(self) -> None:
        try:
            async with self._engine.connect() as connection:
                await connection.execute(sa.text("SELECT 1"))
        except (OSError, DBAPIError, OperationalError) as failure:
            raise Unavailable(f"the {self.name} database does not answer", private=repr(failure)) from failure

    async def write(self, work: Work[T]) -> T:
        tries_after_cut = 1
        again = False
        for attempt in range(TRIES_AFTER_DEADLOCK + 1):
            try:
                return await self._once(work, again)
            except Again:
                again = True
            except UnknownOutcome:
                raise
            except Unavailable:  # a pooled connection that was cut long ago: nothing was committed
                if tries_after_cut == 0:
                    raise
                tries_after_cut -= 1
            except (DBAPIError, LostRace) as lost:
                if isinstance(lost, DBAPIError) and not _is_lost_race(lost):
                    raise
                if attempt == TRIES_AFTER_DEADLOCK:
                    words = f"others were always first in the {self.name} database; try again later"
                    raise Unavailable(words, private=repr(lost)) from lost
        raise AssertionError("unreachable")

    async def _once(self, work: Work[T], again: bool) -> T:
        committing = False
        try:
            async with self._engine.connect() as connection:
                wrote = False

                def tell(sync: Connection) -> T:
                    nonlocal wrote
                    tx = Tx(sync, self.meter, self.name, self.dialect, again=again)
                    answer = work(tx)
                    wrote = tx.wrote
                    return answer

                try:
                    answer = await connection.run_sync(tell)
                except Refused as refused:
                    await connection.rollback()
                    return cast("T", refused.value)
                committing = True
                await connection.commit()
        except Exception as failure:
            problem = self._problem(failure, UnknownOutcome if committing else Unavailable)
            if problem is None:
                raise
            raise problem from failure
        if wrote:
            self.meter.commits[self.name, current_label()] += 1
        return answer

    async def read(self, work: Work[T]) -> T:
        try:
            return await self._read_once(work)
        except Unavailable:
            return await self._read_once(work)

    async def glance(self, work: Work[T]) -> T:
        return await self.read(work)

    async def _read_once(self, work: Work[T]) -> T:
        try:
            async with self._engine.connect() as connection:
                return await connection.run_sync(lambda sync: work(Tx(sync, self.meter, self.name, self.dialect)))
        except Exception as failure:
            problem = self._problem(failure, Unavailable)
            if problem is None:
                raise
            raise problem from failure

    def _problem(self, failure: Exception, lost: type[Unavailable]) -> Problem | None:
        """In our words: `lost` for a server that went away, Invalid for a text that PostgreSQL cannot hold."""
        if _is_lost_server(failure):
            return lost(f"the {self.name} database does not answer", private=repr(failure))
        if isinstance(failure, DBAPIError) and getattr(failure.orig, "sqlstate", None) == NO_SUCH_CHARACTER:
            return Invalid("A text may not contain the character NUL.", private=repr(failure))
        return None

    async def create(self, metadata: sa.MetaData) -> None:
        await self.alter(metadata.create_all)

    async def alter(self, work: Callable[[Connection], T]) -> T:
        async with self._engine.begin() as connection:
            return await connection.run_sync(work)

    async def close(self) -> None:
        await self._engine.dispose()
