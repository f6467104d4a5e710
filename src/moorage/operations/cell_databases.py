"""The cells' databases: one that is out is left alone for a moment, is a reason to place nothing there, and holds up no other cell.

After `FAILURES_MAX` failures in a row a cell's circuit opens: calls are refused at once, and one at a time is let through to see, after
growing rests.  The cell's conductor writes heartbeats every other second, so somebody always looks.

A cell that does not answer when a process starts is *absent* there: it is out, until it is found to belong to the region and is taken
in (`main/cell_intake.py`).
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
LEFT_ALONE = f"{A_DATABASE} is left alone until an administrator has looked at it"
"""What is told of an absent or barred one to who is not told of cells: their reasons name them."""
CELL_OUT = "cell_out"
"""The code of a host's failure that is its cell's: nothing was written there."""


class AbsentDatabase:
    """`sql.Database` of a cell that has not answered since this process started: whatever is asked of it is Unavailable."""

    def __init__(self, name: str, dialect: str, meter: Meter, why: str) -> None:
        self.name, self.dialect, self.meter = name, dialect, meter
        self.barred = why
        self.tries = 1
        """How often it was tried in vain to take it in."""
        self.again_s = 0.0
        """How long it is left alone after the last try."""

    async def write(self, work: Callable[[Tx], T]) -> T:
        raise Unavailable(self.barred)

    async def read(self, work: Callable[[Tx], T]) -> T:
        raise Unavailable(self.barred)

    async def read_inline(self, work: Callable[[Tx], T]) -> T:
        raise Unavailable(self.barred)

    async def create(self, metadata: Any) -> None:
        raise Unavailable(self.barred)

    async def alter(self, work: Callable[[Any], T]) -> T:
        raise Unavailable(self.barred)

    async def close(self) -> None:
        """There is nothing open."""


class CellDatabase:
    """`sql.Database` of one cell, behind a circuit breaker."""

    def __init__(self, cell: CellId, database: Database, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.name = database.name
        self.dialect = database.dialect
        self.meter = database.meter
        self.inner = database
        """Without the breaker: for who looks after the database itself."""
        self._breaker = Breaker(f"database of {cell}", failures_max=FAILURES_MAX, monotonic=monotonic)

    @property
    def barred(self) -> str:
        """Why nothing may be asked of it for now; empty: it may."""
        return self.inner.barred

    @barred.setter
    def barred(self, why: str) -> None:
        self.inner.barred = why

    @property
    def circuits(self) -> tuple[CircuitSeen, ...]:
        """Open ones; empty: it answers."""
        absent = self.absent
        if absent is not None:
            return (CircuitSeen(self._breaker.name, CALLS, absent.barred, absent.tries, round(absent.again_s, 3)),)
        return self._breaker.open_circuits()

    @property
    def absent(self) -> AbsentDatabase | None:
        """Its place in this process while it is not taken in; None: it is."""
        return self.inner if isinstance(self.inner, AbsentDatabase) else None

    def take_in(self, database: Database) -> None:
        """It answers, and was found to be the right one; its meter is that of this process."""
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

    async def _query(self, ask: Callable[[Callable[[Tx], T]], Awaitable[T]], work: Callable[[Tx], T]) -> T:
        try:
            return await self._guarded(ask, work)
        except Unavailable as out:
            raise self._unnamed(out) from out.__cause__

    def _unnamed(self, out: Unavailable) -> Unavailable:
        """What owners of servers are told does not name the cell; `named` does."""
        if self.barred:
            return out.unnamed(LEFT_ALONE)
        words = re.sub(
            rf"the {re.escape(self.name)} database|database of {re.escape(self.name)}", A_DATABASE, out.public
        )
        return out if words == out.public else out.unnamed(words)

    async def _guarded(self, ask: Callable[[Callable[[Tx], T]], Awaitable[T]], work: Callable[[Tx], T]) -> T:
        if self.absent is not None:
            return await ask(work)
        passage = self._breaker.enter(CALLS)
        try:
            answer = await ask(work)
        except CircuitOpen:
            raise
        except (Unavailable, OSError) as out:
            passage.failed(str(out), reached=False)
            raise
        except Exception:
            passage.answered()  # the work's own refusal: the database is there
            raise
        else:
            passage.answered()
            return answer
        finally:
            passage.left()


class Cells:
    """The cells' databases, by id."""

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
    """Of all cells, for people."""
    return tuple(seen for each in databases.values() if isinstance(each, CellDatabase) for seen in each.circuits)
