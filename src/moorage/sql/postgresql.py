"""PostgreSQL: each function is a transaction of its own on a pooled connection, and every wait has a limit."""

import os
import socket
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from moorage.model.errors import Problem, Unavailable, UnknownOutcome
from moorage.sql.failures import STATEMENT_CUT, forget_values, is_timeout, of_postgresql, sqlstate_of
from moorage.sql.guarded_database import check_barred
from moorage.sql.limits import DatabaseLimits, DatabaseLoad
from moorage.sql.meter import Meter, current_label
from moorage.sql.postgresql_tls import take_tls
from moorage.sql.tx import LostRace, TransactionRefused, Tx, Work

T = TypeVar("T")
Ask: TypeAlias = Callable[[str], Sequence[Sequence[Any]]]
"""Runs one plain-text statement on a new connection."""

TRIES_AFTER_DEADLOCK = 10
LOST_RACES = {"40P01", "40001", "55P03"}
"""Deadlock, serialization failure, lock not available in time: run the function again."""
CLIENT_MARGIN_S = 2.0
"""How much longer than the server the client waits: if the server ends the statement, the connection can be kept."""
SESSION = {"application_name": "moorage", "idle_in_transaction_session_timeout": "5000", "lock_timeout": "10000"}
"""In ms. A process that stops in the middle of a transaction must not keep its locks: the server ends its session."""
STALLED_S = 10.0
END_STALLED = sa.text(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND usename = current_user"
    " AND application_name = :ours AND state = 'active' AND wait_event = 'ClientRead'"
    " AND state_change < clock_timestamp() - make_interval(secs => :stalled_s) AND pid <> pg_backend_pid()"
)
"""Ends stalled sessions. If a client stops in the middle of a statement, between preparing and executing it, the server does not treat
the session as idle: no time-out ends it, and its locks would stay as long as the client is frozen."""
KEEPALIVE_IDLE_S, KEEPALIVE_EVERY_S, KEEPALIVES = 15, 5, 3
"""A machine that disappears is noticed within half a minute on both sides, even if nothing is being sent."""
SERVER_KEEPALIVE = {
    "tcp_keepalives_idle": str(KEEPALIVE_IDLE_S),
    "tcp_keepalives_interval": str(KEEPALIVE_EVERY_S),
    "tcp_keepalives_count": str(KEEPALIVES),
    "tcp_user_timeout": str((KEEPALIVE_IDLE_S + KEEPALIVE_EVERY_S * KEEPALIVES) * 1000),
}


class PostgresqlDatabase:
    """A pool of connections to one PostgreSQL database, READ COMMITTED."""

    dialect = "postgresql"

    def __init__(self, url: str, name: str, meter: Meter, limits: DatabaseLimits | None = None) -> None:
        self.name = name
        self.meter = meter
        self.limits = limits or DatabaseLimits()
        self.barred = ""
        """Why the database must not be used at present; empty: it may be used."""
        self.greet: Callable[[Ask], None] | None = None
        """Called with every new connection before it is used; its errors go to the caller that needs the connection."""
        self._calls = 0
        """Number of transactions that have a connection, or wait for one."""
        self._url, self._tls = take_tls(sa.make_url(url).set(drivername="postgresql+asyncpg"), name)
        self._engine: AsyncEngine = create_async_engine(
            self._url,
            pool_size=self.limits.pool_size,
            max_overflow=0,
            pool_timeout=self.limits.pool_wait_s,
            isolation_level="READ COMMITTED",
            hide_parameters=True,
            connect_args={
                **self._tls,
                "timeout": self.limits.connect_s,
                "command_timeout": self.limits.statement_s + CLIENT_MARGIN_S,
                "server_settings": {
                    **SESSION,
                    **SERVER_KEEPALIVE,
                    "statement_timeout": str(int(self.limits.statement_s * 1000)),
                },
            },
        )
        event.listen(self._engine.sync_engine, "connect", self._connected)
        event.listen(self._engine.sync_engine, "handle_error", forget_values)

    @property
    def load(self) -> DatabaseLoad:
        """Return the present load of the pool."""
        in_use = cast("sa.QueuePool", self._engine.pool).checkedout()
        return DatabaseLoad(self.limits.pool_size, in_use, max(0, self._calls - in_use))

    def _connected(self, connection: Any, _record: object) -> None:
        _keep_alive(connection.driver_connection)
        if self.greet is None:
            return

        def query(text: str) -> Sequence[Sequence[Any]]:
            cursor = connection.cursor()
            try:
                cursor.execute(text)
                return cast("Sequence[Sequence[Any]]", cursor.fetchall())
            finally:
                cursor.close()
                connection.rollback()

        self.greet(query)

    async def check(self) -> None:
        """Check that the server answers. Raises Unavailable when it does not."""
        await self._read_once(lambda tx: tx.scalar(sa.text("SELECT 1")))

    async def end_stalled(self) -> int:
        """End Moorage's sessions whose process stopped in the middle of a statement. Returns how many. Raises Unavailable."""
        facts = {"ours": SESSION["application_name"], "stalled_s": STALLED_S}
        return len(await self._read_once(lambda tx: tx.rows(END_STALLED, facts)))

    async def write(self, work: Work[T]) -> T:
        """Run a function in a transaction that writes; see `Database.write`.

        After a deadlock, a lost race, or a pooled connection that was cut long ago, the function is run again.
        Raises Unavailable when the database is out, or when other transactions always come first, and UnknownOutcome
        when the outcome of the commit is unknown.
        """
        check_barred(self)
        tries_after_cut = 1
        for attempt in range(TRIES_AFTER_DEADLOCK + 1):
            try:
                return await self._once(work)
            except UnknownOutcome:
                raise
            except Unavailable as out:  # a pooled connection that was cut long ago: nothing was committed
                if tries_after_cut == 0 or not _was_cut(out):
                    raise
                tries_after_cut -= 1
            except (DBAPIError, LostRace) as lost:
                if isinstance(lost, DBAPIError) and sqlstate_of(lost) not in LOST_RACES:
                    raise
                if attempt == TRIES_AFTER_DEADLOCK:
                    words = f"others were always first in the {self.name} database; try again later"
                    raise Unavailable(words, private=repr(lost)) from lost
        raise AssertionError("unreachable")

    async def _once(self, work: Work[T]) -> T:
        committing = False
        self._calls += 1
        try:
            async with self._engine.connect() as connection:
                wrote = False

                def run(sync: Connection) -> T:
                    nonlocal wrote
                    tx = Tx(sync, self.meter, self.name, self.dialect)
                    answer = work(tx)
                    wrote = tx.wrote
                    return answer

                try:
                    answer = await connection.run_sync(run)
                    committing = True
                    await connection.commit()
                except TransactionRefused as refused:
                    await connection.rollback()
                    return cast("T", refused.value)
                except Exception as failure:
                    await _leave(connection, failure)
                    raise
        except Exception as failure:
            problem = self._problem(failure, committing=committing)
            if problem is None:
                raise
            raise problem from failure
        finally:
            self._calls -= 1
        if wrote:
            self.meter.commits[self.name, current_label()] += 1
        return answer

    async def read(self, work: Work[T]) -> T:
        check_barred(self)
        try:
            return await self._read_once(work)
        except Unavailable as out:
            if not _was_cut(out):
                raise
            return await self._read_once(work)

    async def read_inline(self, work: Work[T]) -> T:
        return await self.read(work)

    async def _read_once(self, work: Work[T]) -> T:
        self._calls += 1
        try:
            async with self._engine.connect() as connection:
                try:
                    return await connection.run_sync(lambda sync: work(Tx(sync, self.meter, self.name, self.dialect)))
                except Exception as failure:
                    await _leave(connection, failure)
                    raise
        except Exception as failure:
            problem = self._problem(failure)
            if problem is None:
                raise
            raise problem from failure
        finally:
            self._calls -= 1

    def _problem(self, failure: Exception, *, committing: bool = False) -> Problem | None:
        if isinstance(failure, Problem):
            return None
        return of_postgresql(self.name, failure, committing=committing, statement_s=self.limits.statement_s)

    async def create(self, metadata: sa.MetaData) -> None:
        await self.alter(metadata.create_all)

    async def alter(self, work: Callable[[Connection], T]) -> T:
        """Run `work` on a connection of its own without time limits, because tables may be large. Raises Unavailable."""
        engine = create_async_engine(
            self._url,
            poolclass=sa.pool.NullPool,
            hide_parameters=True,
            connect_args={**self._tls, "timeout": self.limits.connect_s, "server_settings": SERVER_KEEPALIVE},
        )
        try:
            async with engine.begin() as connection:
                return await connection.run_sync(work)
        except Exception as failure:
            problem = self._problem(failure)
            if problem is None:
                raise
            raise problem from failure
        finally:
            await engine.dispose()

    async def close(self) -> None:
        await self._engine.dispose()


def _was_cut(out: Unavailable) -> bool:
    """Whether only the connection was lost, so that another one may work; false if the server is silent, full or read-only, or the pool is
    in use."""
    cause = out.__cause__
    if cause is None or out.retry_after_s or is_timeout(cause) or isinstance(cause, PoolTimeout):
        return False
    return sqlstate_of(cause)[:2] in {"", "08", "25", "57"} and sqlstate_of(cause) != STATEMENT_CUT


async def _leave(connection: AsyncConnection, failure: Exception) -> None:
    """Drop the connection without a rollback if the server was silent: the rollback would wait again."""
    if is_timeout(failure):
        await connection.invalidate()


def _keep_alive(driver: Any) -> None:
    """Set TCP keepalives, to notice a machine that disappeared or no longer accepts data."""
    transport = getattr(driver, "_transport", None)
    known = None if transport is None else transport.get_extra_info("socket")
    if known is None or known.family not in (socket.AF_INET, socket.AF_INET6):
        return
    with socket.socket(fileno=os.dup(known.fileno())) as ours:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            ("TCP_KEEPIDLE", KEEPALIVE_IDLE_S),
            ("TCP_KEEPINTVL", KEEPALIVE_EVERY_S),
            ("TCP_KEEPCNT", KEEPALIVES),
            ("TCP_USER_TIMEOUT", int(SERVER_KEEPALIVE["tcp_user_timeout"])),
        ):
            if hasattr(socket, option):  # not every system has all of these options
                ours.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
