"""Databases: a transaction is a plain, synchronous function `(tx) -> result`, so nothing can await inside it (RULES §4).

    database = await open_database("sqlite:////tmp/region.db", name="region")
    made = await database.write(lambda tx: tx.rows(insert(...).returning(...)))

SQLite: one writer thread per file runs the functions, those waiting together share one COMMIT (at most 256), each in its
own SAVEPOINT, so one that raises takes back its own work only.  Reads run on read-only connections in a few threads.
PostgreSQL: each function is a transaction of its own on a pooled connection (the server groups commits by itself);
a deadlock (40P01) or serialization failure (40001) runs the function again.  A database that went away, hangs, is full,
read-only or damaged is `Unavailable`, and `UnknownOutcome` where a COMMIT was on its way (`failures.py`).

A function's work is committed when `write` returns.  `tx.refuse(value)` rolls the function's work back and makes `write` return
`value`: a refusal is an answer, not an exception.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import ArgumentError

from moorage.model.errors import Internal, Invalid
from moorage.sql.limits import DatabaseLimits, Durability
from moorage.sql.meter import Meter
from moorage.sql.postgresql import PostgresqlDatabase
from moorage.sql.sqlite import SqliteDatabase
from moorage.sql.tx import Work

T = TypeVar("T")


class Database(Protocol):
    """One database, of either kind."""

    name: str
    dialect: str
    meter: Meter

    @property
    def barred(self) -> str:
        """Why the database must not be used at present, as a sentence (`guarded_database.py`); empty: it may be used."""
        ...

    @barred.setter
    def barred(self, why: str) -> None: ...

    async def write(self, work: Work[T]) -> T:
        """Run `work` in a writing transaction, and return its result after the commit.

        Raises Unavailable when the database is out, and UnknownOutcome when the outcome of the commit is not known.
        """
        ...

    async def read(self, work: Work[T]) -> T:
        """Run `work` in a read-only snapshot. Raises Unavailable when the database is out."""
        ...

    async def read_inline(self, work: Work[T]) -> T:
        """Run `work`, which reads a few rows by key: with SQLite on the caller's own thread, which is faster than another thread."""
        ...

    async def create(self, metadata: sa.MetaData) -> None:
        """Make the tables that are missing."""
        ...

    async def alter(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in one transaction with the bare connection; only for `moorage.sql.migrate`."""
        ...

    async def close(self) -> None: ...


async def open_database(
    url: str,
    *,
    name: str,
    meter: Meter | None = None,
    durability: Durability = "power",
    limits: DatabaseLimits | None = None,
) -> Database:
    """Open `sqlite:///path` or `postgresql://…`; `durability="process"` survives kill -9 but not a power cut (SQLite only).

    Raises Unavailable when the database cannot be reached, Invalid when the URL is not valid, Internal when its kind is not known.
    """
    try:
        parsed = sa.make_url(url)
    except (ArgumentError, ValueError):  # the error may contain a password
        raise Invalid(f"the database URL of {name} cannot be read") from None
    if parsed.get_backend_name() == "sqlite":
        return SqliteDatabase(url, name, meter or Meter(), durability, limits)
    if parsed.get_backend_name() == "postgresql":
        database = PostgresqlDatabase(url, name, meter or Meter(), limits)
        await database.check()
        return database
    raise Internal(f"the database URL of {name} is neither sqlite nor postgresql", private=str(parsed))
