"""SQLite: one writer thread for each file, whose functions share commits; readers have connections of their own."""

import asyncio
import contextvars
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from moorage.model.errors import Internal, Unavailable, UnknownOutcome
from moorage.model.private_files import private_database
from moorage.sql.failures import of_sqlite
from moorage.sql.guarded_database import check_barred
from moorage.sql.limits import DatabaseLimits, DatabaseLoad, Durability
from moorage.sql.meter import Meter, current_label
from moorage.sql.tx import TransactionRefused, Tx, Work

T = TypeVar("T")

BATCH_MAX = 256
READERS_SQLITE = 4
READER_CACHE_KIB = 4000
"""Cache of each reader; other pages are in the system's file cache."""
BUSY_TIMEOUT_MS = 30_000
QUEUE_MAX = 20_000


@dataclass
class _Member:
    work: Callable[[Tx], object]
    context: contextvars.Context
    done: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop
    given_up: bool = False
    """Whether the caller has stopped waiting."""
    answer: object = None
    failure: BaseException | None = None


def _settle(members: Sequence[_Member]) -> None:
    for member in members:
        if member.done.done():  # the caller was cancelled; its work is committed nevertheless
            continue
        if member.failure is not None:
            member.done.set_exception(member.failure)
        else:
            member.done.set_result(member.answer)


class SqliteDatabase:
    """One file, one writer thread."""

    dialect = "sqlite"

    def __init__(
        self, url: str, name: str, meter: Meter, durability: Durability, limits: DatabaseLimits | None = None
    ) -> None:
        self.name = name
        self.limits = limits or DatabaseLimits()
        self.barred = ""
        """Why the database must not be used at present; empty: it may be used."""
        self.meter = meter
        self.path = sa.make_url(url).database or ""
        if not self.path or self.path == ":memory:":
            raise Internal(f"the database of {name} needs a file: two connections must see the same data")
        try:
            private_database(Path(self.path))
        except OSError as failure:
            raise Unavailable(f"the {name} database cannot be opened: {failure}") from failure
        self._synchronous = "FULL" if durability == "power" else "NORMAL"
        self._engine = sa.create_engine(
            f"sqlite:///{self.path}",
            creator=self._connect,
            poolclass=sa.pool.NullPool,
            isolation_level="AUTOCOMMIT",
            hide_parameters=True,
        )
        self._writing = self._opened()
        self._waiting: queue.SimpleQueue[_Member | None] = queue.SimpleQueue()
        self._calls = 0
        """Number of transactions that run, or wait for their turn."""
        self._readers = ThreadPoolExecutor(READERS_SQLITE, thread_name_prefix=f"{name}-read")
        self._reading = threading.local()
        self._open_readers: list[Connection] = []
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name=f"{name}-write", daemon=True)
        self._thread.start()

    @property
    def load(self) -> DatabaseLoad:
        """Return the present load; the connections are the writer and the readers."""
        waiting = self._waiting.qsize() + self._readers._work_queue.qsize()
        return DatabaseLoad(1 + READERS_SQLITE, max(0, self._calls - waiting), waiting)

    def _connect(self) -> sqlite3.Connection:
        raw = sqlite3.connect(
            self.path,
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

    def _opened(self) -> Connection:
        try:
            return self._engine.connect()
        except Exception as failure:
            problem = of_sqlite(self.name, failure)
            if problem is None:
                raise
            raise problem from failure

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable(f"the {self.name} database is closed")
        check_barred(self)

    async def write(self, work: Work[T]) -> T:
        """Run a function in a transaction that writes; see `Database.write`.

        Raises Unavailable when too much work waits or the database is out, and UnknownOutcome when the outcome of the
        commit is unknown.
        """
        self._check_open()
        if self._waiting.qsize() > QUEUE_MAX:
            raise Unavailable(f"the {self.name} database is busy; try again later")
        loop = asyncio.get_running_loop()
        member = _Member(work, contextvars.copy_context(), loop.create_future(), loop)
        self._waiting.put(member)
        return cast("T", await self._answered(member, UnknownOutcome))

    async def read(self, work: Work[T]) -> T:
        self._check_open()
        loop = asyncio.get_running_loop()
        member = _Member(work, contextvars.copy_context(), loop.create_future(), loop)
        self._readers.submit(
            self._answer, member
        )  # `run_in_executor` would chain two futures, for longer than a row takes
        return cast("T", await self._answered(member, Unavailable))

    async def _answered(self, member: _Member, kind: type[Unavailable]) -> object:
        """The function's result; raises an error if there is none for too long: a disk that hangs blocks the thread, but not the caller."""

        def give_up() -> None:
            member.given_up = True
            if not member.done.done():
                text = f"the {self.name} database has not answered for {self.limits.file_wait_s:.0f} s: its disk hangs, or is slow"
                member.done.set_exception(kind(text))

        patience = member.loop.call_later(self.limits.file_wait_s, give_up)
        self._calls += 1
        try:
            return await member.done
        finally:
            self._calls -= 1
            patience.cancel()

    async def read_inline(self, work: Work[T]) -> T:
        self._check_open()
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
        except BaseException as failure:  # noqa: BLE001  handed to the caller
            member.failure = failure
        if not member.loop.is_closed():
            member.loop.call_soon_threadsafe(_settle, (member,))

    def _read(self, work: Work[T]) -> T:
        connection: Connection | None = getattr(self._reading, "connection", None)
        if connection is None:
            connection = self._opened()
            connection.exec_driver_sql("PRAGMA query_only=ON")
            connection.exec_driver_sql(f"PRAGMA cache_size=-{READER_CACHE_KIB}")
            self._reading.connection = connection
            self._open_readers.append(connection)
        raw = cast("sqlite3.Connection", connection.connection.driver_connection)
        try:
            raw.execute("BEGIN")
            return work(Tx(connection, self.meter, self.name, self.dialect, raw))
        except Exception as failure:
            problem = of_sqlite(self.name, failure)
            if problem is None:
                raise
            raise problem from failure
        finally:
            if raw.in_transaction:
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
            self._run_together(raw, members)
            loops = {member.loop for member in members}
            for loop in loops:
                mine = [member for member in members if member.loop is loop]
                if not loop.is_closed():
                    loop.call_soon_threadsafe(_settle, mine)
            if ends:
                return

    def _run_together(self, raw: sqlite3.Connection, members: Sequence[_Member]) -> None:
        members = [member for member in members if not member.given_up]
        if not members:
            return
        committing = False
        try:
            raw.execute("BEGIN IMMEDIATE")
            alone = len(members) == 1
            wrote = [self._run_member(raw, member, alone) for member in members]
            if raw.in_transaction:  # a single function that refused has rolled back everything
                committing = True
                raw.execute("COMMIT")
        except BaseException as failure:  # noqa: BLE001  nobody's work is kept, and everybody must hear why
            with suppress(sqlite3.Error):
                if raw.in_transaction:
                    raw.execute("ROLLBACK")
            for member in members:
                member.failure = of_sqlite(self.name, failure, committing=committing) or Unavailable(
                    f"the {self.name} database could not commit", private=repr(failure)
                )
            return
        labels = [member.context.run(current_label) for member, did in zip(members, wrote, strict=True) if did]
        self.meter.commits.update((self.name, each) for each in labels[:1])
        self.meter.shared.update((self.name, each) for each in labels[1:])

    def _run_member(self, raw: sqlite3.Connection, member: _Member, alone: bool) -> bool:
        """Run one member in its savepoint; an exception rolls back only its own work.

        A single member needs no savepoint, because the transaction is its own.
        """
        if not alone:
            raw.execute("SAVEPOINT member")
        tx = Tx(self._writing, self.meter, self.name, self.dialect, raw)
        try:
            member.answer = member.context.run(member.work, tx)
        except BaseException as failure:
            if not raw.in_transaction:  # a full or failing disk rolled back everything, also the others' work
                if not alone:
                    raise
            else:
                raw.execute("ROLLBACK" if alone else "ROLLBACK TO member")
            if isinstance(failure, TransactionRefused):
                member.answer = failure.value
            else:
                member.failure = of_sqlite(self.name, failure) or failure
            if not alone:
                raw.execute("RELEASE member")
            return False
        if not alone:
            raw.execute("RELEASE member")
        return tx.wrote
