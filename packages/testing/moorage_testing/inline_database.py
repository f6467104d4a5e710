"""A database in memory, whose transactions run where they are asked for: for proofs that run thousands of sagas.

It says no and takes back as the real ones do.  What it leaves out is threads, files, and rivals: those have tests of their own.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from functools import cache
from typing import TypeVar, cast

import sqlalchemy as sa

from moorage.sql import Meter, Tx, current_label
from moorage.sql.tx import TransactionRefused, Work

T = TypeVar("T")


@cache
def _script(metadata: sa.MetaData) -> str:
    """All its tables and indexes. SQLAlchemy puts that together in five times as long as SQLite needs to execute it."""
    scratch = sa.create_engine("sqlite://", poolclass=sa.pool.StaticPool)
    with scratch.connect() as connection:
        metadata.create_all(connection)
        made = connection.exec_driver_sql("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid")
        script = ";\n".join(made.scalars())
    scratch.dispose()
    return script


class InlineDatabase:
    """`sql.Database`, on one SQLite connection in memory."""

    dialect = "sqlite"

    def __init__(self, name: str) -> None:
        self.name = name
        self.meter = Meter()
        self.barred = ""
        self._engine = sa.create_engine(
            "sqlite://", creator=self._connect, poolclass=sa.pool.StaticPool, isolation_level="AUTOCOMMIT"
        )
        self._connection = self._engine.connect()

    @staticmethod
    def _connect() -> sqlite3.Connection:
        raw = sqlite3.connect(":memory:", isolation_level=None, cached_statements=512)
        raw.execute("PRAGMA foreign_keys=ON")
        return raw

    async def write(self, work: Work[T]) -> T:
        await asyncio.sleep(0)  # others have their turn here, as where a database is waited for
        raw = self.raw()
        tx = Tx(self._connection, self.meter, self.name, self.dialect, raw)
        raw.execute("BEGIN IMMEDIATE")
        try:
            answer = work(tx)
        except BaseException as failure:
            raw.execute("ROLLBACK")
            if isinstance(failure, TransactionRefused):
                return cast("T", failure.value)
            raise
        raw.execute("COMMIT")
        if tx.wrote:
            self.meter.commits[self.name, current_label()] += 1
        return answer

    async def read(self, work: Work[T]) -> T:
        await asyncio.sleep(0)
        raw = self.raw()
        raw.execute("BEGIN")
        try:
            return work(Tx(self._connection, self.meter, self.name, self.dialect, raw))
        finally:
            raw.execute("ROLLBACK")

    async def read_inline(self, work: Work[T]) -> T:
        return await self.read(work)

    async def create(self, metadata: sa.MetaData) -> None:
        await asyncio.sleep(0)
        self.raw().executescript(_script(metadata))

    async def alter(self, work: Callable[[sa.Connection], T]) -> T:
        return await self.write(lambda tx: work(tx._connection))  # pyright: ignore[reportPrivateUsage]

    async def close(self) -> None:
        self._connection.close()
        self._engine.dispose()
        await asyncio.sleep(0)

    def raw(self) -> sqlite3.Connection:
        """The one connection."""
        return cast("sqlite3.Connection", self._connection.connection.dbapi_connection)
