"""The cells' databases. When one does not answer, nothing is placed in its cell, and the other cells go on.

After `FAILURES_MAX` failures in a row a cell's circuit opens: calls are refused at once, and single calls are tried
after growing pauses. The cell's conductor writes heartbeats every other second, so there is always a call that tries.

A cell that does not answer when a process starts is *absent* in that process. It stays out until the process finds that
the database belongs to the region and takes it in (`main/cell_intake.py`).
"""

import re
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from moorage.clients.circuit_breaker import Breaker
from moorage.model.errors import CircuitOpen, Internal, Unavailable
from moorage.model.ids import CellId
from moorage.model.service_health import CircuitSeen
from moorage.sql import Database, Meter, Tx

T = TypeVar("T")
FAILURES_MAX = 3
CALLS = "all calls"
A_DATABASE = "the database of the server's cell"
LEFT_ALONE = f"{A_DATABASE} is not used until an administrator has checked it"
"""The reason given to callers who may not learn cells' names; the reasons for operators name the cell."""
CELL_OUT = "cell_out"
"""The code of a host's failure that its cell's database caused: nothing was written there."""


class AbsentDatabase:
    """Stands for the `sql.Database` of a cell that has not answered since this process started.

    Its methods raise Unavailable.
    """

    def __init__(self, name: str, dialect: str, meter: Meter, why: str) -> None:
        self.name, self.dialect, self.meter = name, dialect, meter
        self.barred = why
        self.tries = 1
        """How many attempts to take it in have failed."""
        self.again_s = 0.0
        """Seconds until the next attempt to take it in."""

    async def write(self, work: Callable[[Tx], T]) -> T:
        """Raises Unavailable."""
        raise Unavailable(self.barred)

    async def read(self, work: Callable[[Tx], T]) -> T:
        """Raises Unavailable."""
        raise Unavailable(self.barred)

    async def read_inline(self, work: Callable[[Tx], T]) -> T:
        """Raises Unavailable."""
        raise Unavailable(self.barred)

    async def create(self, metadata: Any) -> None:
        """Raises Unavailable."""
        raise Unavailable(self.barred)

    async def alter(self, work: Callable[[Any], T]) -> T:
        """Raises Unavailable."""
        raise Unavailable(self.barred)

    async def close(self) -> None:
        """Does nothing: no connection is open."""


class CellDatabase:
    """The `sql.Database` of one cell, behind a circuit breaker.

    Reads and writes raise Unavailable when the database does not answer, and CircuitOpen (an Unavailable) while its
    circuit is open.
    """

    def __init__(self, cell: CellId, database: Database, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.name = database.name
        self.dialect = database.dialect
        self.meter = database.meter
        self.inner = database
        """The database without the breaker, for code that maintains the database itself."""
        self._breaker = Breaker(f"database of {cell}", failures_max=FAILURES_MAX, monotonic=monotonic)

    @property
    def barred(self) -> str:
        """Why the database may not be used for now; empty when it may be used."""
        return self.inner.barred

    @barred.setter
    def barred(self, why: str) -> None:
        self.inner.barred = why

    @property
    def circuits(self) -> tuple[CircuitSeen, ...]:
        """The open circuits; empty when the database answers."""
        absent = self.absent
        if absent is not None:
            return (CircuitSeen(self._breaker.name, CALLS, absent.barred, absent.tries, round(absent.again_s, 3)),)
        return self._breaker.open_circuits()

    @property
    def absent(self) -> AbsentDatabase | None:
        """The stand-in for a database that this process has not taken in yet; None once it is taken in."""
        return self.inner if isinstance(self.inner, AbsentDatabase) else None

    def take_in(self, database: Database) -> None:
        """Use this database from now on. The caller has checked that it answers and is the right one; its meter is this
        process's.
        """
        self.name, self.dialect, self.meter = database.name, database.dialect, database.meter
        self.inner = database

    async def write(self, work: Callable[[Tx], T]) -> T:
        return await self._query(self.inner.write, work)

    async def read(self, work: Callable[[Tx], T]) -> T:
        return await self._query(self.inner.read, work)

    async def read_inline(self, work: Callable[[Tx], T]) -> T:
        return await self._query(self.inner.read_inline, work)

    async def create(self, metadata: Any) -> None:
        await self.inner.create(metadata)

    async def alter(self, work: Callable[[Any], T]) -> T:
        return await self.inner.alter(work)

    async def close(self) -> None:
        await self.inner.close()

    async def _query(self, query: Callable[[Callable[[Tx], T]], Awaitable[T]], work: Callable[[Tx], T]) -> T:
        try:
            return await self._guarded(query, work)
        except Unavailable as out:
            raise self._unnamed(out) from out.__cause__

    def _unnamed(self, out: Unavailable) -> Unavailable:
        """The error without the cell's name, for owners of servers; its `named` attribute still has the name."""
        if self.barred:
            return out.unnamed(LEFT_ALONE)
        words = re.sub(
            rf"the {re.escape(self.name)} database|database of {re.escape(self.name)}", A_DATABASE, out.public
        )
        return out if words == out.public else out.unnamed(words)

    async def _guarded(self, query: Callable[[Callable[[Tx], T]], Awaitable[T]], work: Callable[[Tx], T]) -> T:
        if self.absent is not None:
            return await query(work)
        passage = self._breaker.enter(CALLS)
        try:
            answer = await query(work)
        except CircuitOpen:
            raise
        except (Unavailable, OSError) as out:
            passage.failed(str(out), reached=False)
            raise
        except Exception:
            passage.answered()  # the database answered: the refusal is the work's own
            raise
        else:
            passage.answered()
            return answer
        finally:
            passage.left()


class Cells:
    """The cells' databases, by the cell's id.

    Looking up a cell that is not configured raises Internal.
    """

    def __init__(self, databases: Mapping[CellId, Database]) -> None:
        self._databases = dict(databases)

    def __getitem__(self, cell: CellId) -> Database:
        try:
            return self._databases[cell]
        except KeyError:
            raise Internal(
                "there is no such cell in the configuration; the operator's log names it", private=f"cell {cell}"
            ) from None

    @property
    def ids(self) -> tuple[CellId, ...]:
        return tuple(self._databases)

    def out(self) -> tuple[CellId, ...]:
        """Cells whose databases do not answer, as far as this process knows."""
        return tuple(cell for cell, each in self._databases.items() if isinstance(each, CellDatabase) and each.circuits)


def circuits_of(databases: Mapping[CellId, Database]) -> tuple[CircuitSeen, ...]:
    """The open circuits of all cells, for operators."""
    return tuple(circuit for each in databases.values() if isinstance(each, CellDatabase) for circuit in each.circuits)
