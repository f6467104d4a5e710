"""Databases of a simulated cloud: SQLite in memory, one for all processes, behind a network that can fail.

A transaction is a plain function, so it happens at one instant; the request before it and the answer after it can each
be slow, cut or hung. The caller gets the errors of the real engines: `Unavailable` when nothing was done,
`UnknownOutcome` when a commit was under way.
"""

import asyncio
import contextvars
import random
import sqlite3
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from moorage.model.errors import Unavailable, UnknownOutcome
from moorage.sql import Meter, TransactionRefused, Tx, Work, current_label
from moorage.sql.guarded_database import check_barred
from moorage_testing.simulation.clock import MachineProcess, SimulatedMachine
from moorage_testing.simulation.loop import PROCESS, SimulatedProcess, VirtualLoop, context_of
from moorage_testing.simulation.trace import Trace

T = TypeVar("T")

WAY_S = (0.0002, 0.002)
"""To the database and back, both ways together."""
UNREACHED_S = 3.0
"""How long a client tries to connect before it says that the database does not answer."""
STATEMENT_TIMEOUT_S = 20.0
"""A statement that hangs longer is given up by its client."""
SAME_PER_SECOND_MAX = 100
"""Requests under one label by one process."""
JULIAN_DAY_OF_1970 = 2440587.5


def _connect() -> sqlite3.Connection:
    raw = sqlite3.connect(":memory:", isolation_level=None, cached_statements=512)
    raw.execute("PRAGMA foreign_keys=ON")
    return raw


_ENGINE = sa.create_engine("sqlite://", creator=_connect, poolclass=sa.pool.NullPool, isolation_level="AUTOCOMMIT")
"""Of all simulations: what SQLAlchemy compiled once stays compiled."""


@dataclass(eq=False)
class _Request:
    work: Callable[[Tx], Any]
    writes: bool
    context: contextvars.Context
    done: "asyncio.Future[Any]"
    process: SimulatedProcess | None
    name: str


class SimulatedDatabaseServer:
    """One database server, and everything that can be wrong with it."""

    def __init__(
        self, loop: VirtualLoop, name: str, machine: SimulatedMachine, dice: random.Random, trace: Trace
    ) -> None:
        self.name = name
        self.machine = machine
        self.meter = Meter()
        self.far_s = 0.0
        """Each way, always."""
        self.slow_s = (0.0, 0.0)
        """Added to each way."""
        self.hung = False
        """Statements are taken, and nothing comes back."""
        self.refuses_writes = ""
        """`full` or `read-only`: why nothing can be written; empty: it can."""
        self.answers_lost = 0
        """So many of the next commits are done, and nobody hears of it."""
        self.cut: set[str] = set()
        """Processes that cannot reach it, by name."""
        self.after_commit: list[Callable[[sqlite3.Connection, str], None]] = []
        """Told of each commit that wrote, with the label of who asked."""
        self.busy: set[str] = set()
        """(process, label) of who asked more often than anybody should."""
        self._second, self._asked = 0, Counter[str]()
        self._loop = loop
        self.dice = dice
        self._trace = trace
        self._process = MachineProcess(f"database-{name}", machine)
        self._context = context_of(self._process)
        self._waiting: list[_Request] = []
        self._connection = _ENGINE.connect()
        self.raw = cast("sqlite3.Connection", self._connection.connection.dbapi_connection)
        self.raw.create_function("julianday", -1, self._julianday)

    def _julianday(self, *said: object) -> float:
        if said != ("now",):
            raise ValueError(f"julianday{said} is not simulated")
        return self.machine.now() / 86_400.0 + JULIAN_DAY_OF_1970

    # ------------------------------------------------------------------------------------------------- contents

    def load(self, whole: bytes) -> None:
        """Become this."""
        self.raw.deserialize(whole)

    def become(self, whole: bytes) -> None:
        """It is restored, with nobody connected to it; what hung is gone."""
        self._waiting.clear()
        source = sqlite3.connect(":memory:")
        try:
            source.deserialize(whole)
            source.backup(self.raw)  # page by page: statements that were made for it are made again
        finally:
            source.close()

    def dump(self) -> bytes:
        """All of it, to be loaded later."""
        return self.raw.serialize()

    def close(self) -> None:
        """It is not read any more."""
        self._connection.close()

    def inspect(self, work: Work[T]) -> T:
        """Read outside of all time and trouble: for checks."""
        tx = Tx(self._connection, self.meter, self.name, "sqlite", self.raw)
        answer = work(tx)  # an instant: nothing else happens meanwhile, so it needs no transaction
        if tx.wrote:
            raise AssertionError(f"what was to read the {self.name} database has written in it")
        return answer

    def serves(self, process: str) -> bool:
        """Whether that process can write in it, in a time that everybody must be content with."""
        well = not self.hung and not self.refuses_writes and not self.slow_s[1] and not self.answers_lost
        return well and process not in self.cut

    # ------------------------------------------------------------------------------------------------- requests

    async def ask(self, work: Work[T], *, writes: bool) -> T:
        """From a process, over the network."""
        process = PROCESS.get()
        done = self._loop.create_future()
        request = _Request(work, writes, contextvars.copy_context(), done, process, current_label())
        if process is not None and process.name in self.cut:
            self._later(UNREACHED_S, self._fail, request, Unavailable(f"the {self.name} database does not answer"))
        else:
            self._later(self._way_s(), self._arrive, request)
        return cast("T", await done)

    def _later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> None:
        self._loop.call_later(delay_s, callback, *args, context=self._context)

    def _way_s(self) -> float:
        return 2 * self.far_s + self.dice.uniform(*WAY_S) + (self.dice.uniform(*self.slow_s) if self.slow_s[1] else 0.0)

    def _arrive(self, request: _Request) -> None:
        if self.hung:
            self._waiting.append(request)
            self._later(STATEMENT_TIMEOUT_S, self._give_up, request)
            return
        process = request.process
        if process is not None and (process.dead or process.frozen) and self.dice.random() < 0.5:
            lost = Unavailable(f"the {self.name} database closed the connection")
            self._fail(request, lost)  # it had begun and did not commit
            return
        if request.writes and self.refuses_writes:
            why = f"the {self.name} database cannot be written: it is {self.refuses_writes}"
            self._fail(request, Unavailable(why))
            return
        self._carry_out(request)

    def _carry_out(self, request: _Request) -> None:
        self._trace.seen("database", f"{self.name} {request.name} {request.process}")
        self._count(request)
        try:
            answer, wrote = request.context.run(self._transact, request.work, request.writes)
        except Exception as failure:  # noqa: BLE001  handed to whoever asked
            self._fail(request, failure)
            return
        if wrote:
            self.meter.commits[self.name, request.name] += 1
            for each in self.after_commit:
                each(self.raw, request.name)
            if self.answers_lost:
                self.answers_lost -= 1
                self._trace.note("fault", f"the answer to a commit ({request.name}) in {self.name} is lost")
                lost = UnknownOutcome(f"the {self.name} database does not answer")
                self._later(self.dice.uniform(0.0, 2.0), self._fail, request, lost)
                return
        if not request.done.done():
            request.done.set_result(answer)

    def _count(self, request: _Request) -> None:
        """Who asks the same again and again without a pause is found out."""
        second, key = int(self._loop.now), f"{request.process} {request.name}"
        if second != self._second:
            self._second, self._asked = second, Counter()
        self._asked[key] += 1
        if self._asked[key] > SAME_PER_SECOND_MAX:
            self.busy.add(key)

    def _give_up(self, request: _Request) -> None:
        if request in self._waiting:
            if self.dice.random() < 0.5:
                self._waiting.remove(request)  # the server hears that nobody waits; else it does it when it wakes
            lost = UnknownOutcome if request.writes else Unavailable
            self._fail(request, lost(f"the {self.name} database does not answer"))

    @staticmethod
    def _fail(request: _Request, failure: Exception) -> None:
        if not request.done.done():
            request.done.set_exception(failure)

    def wake(self) -> None:
        """No longer hung: what waits is done now, in its order."""
        self.hung = False
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            self._later(self._way_s(), self._arrive, request)

    def heal(self) -> None:
        """Nothing is wrong with it any more."""
        self.slow_s, self.refuses_writes, self.answers_lost = (0.0, 0.0), "", 0
        self.cut.clear()
        self.wake()

    # ------------------------------------------------------------------------------------------------- transactions

    def _transact(self, work: Callable[[Tx], Any], writes: bool) -> tuple[Any, bool]:
        raw = self.raw
        if not writes:
            return self.inspect(work), False
        raw.execute("BEGIN IMMEDIATE")
        tx = Tx(self._connection, self.meter, self.name, "sqlite", raw)
        try:
            answer = work(tx)
        except BaseException as failure:
            raw.execute("ROLLBACK")
            if isinstance(failure, TransactionRefused):
                return failure.value, False
            raise
        raw.execute("COMMIT")
        return answer, tx.wrote


class SimulatedDatabase:
    """`sql.Database`, as one process sees a store."""

    dialect = "sqlite"

    def __init__(self, store: SimulatedDatabaseServer) -> None:
        self.store = store
        self.name = store.name
        self.meter = store.meter
        self.barred = ""
        self._closed = False

    async def write(self, work: Work[T]) -> T:
        self._refuse_closed()
        check_barred(self)
        return await self.store.ask(work, writes=True)

    async def read(self, work: Work[T]) -> T:
        self._refuse_closed()
        check_barred(self)
        return await self.store.ask(work, writes=False)

    async def read_inline(self, work: Work[T]) -> T:
        return await self.read(work)

    async def create(self, metadata: sa.MetaData) -> None:
        await self.alter(metadata.create_all)

    async def alter(self, work: Callable[[Connection], T]) -> T:
        return await self.write(lambda tx: work(tx._connection))  # pyright: ignore[reportPrivateUsage]

    async def close(self) -> None:
        self._closed = True

    def _refuse_closed(self) -> None:
        if self._closed:
            raise Unavailable(f"the {self.name} database is closed")
