"""Reads values that only a database knows for the metrics listener: seldom, one read of a database at a time, with a short wait.

A database that is out delays one scrape by `PATIENCE_S`: the read goes on in the background, and the last values are shown until they
are too old.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from moorage.model.errors import Problem
from moorage.sql import Database, Tx, label
from moorage.store.cell import notifications as of_cell
from moorage.store.region import counts, debts, waiting
from moorage.store.region import notifications as of_region
from moorage.store.region.counts import Backlog, OpenOperations
from moorage.store.region.debts import DebtCount
from moorage.store.region.waiting import CauseCount

logger = logging.getLogger(__name__)

PATIENCE_S = 1.0
SHOWN_S = 60.0
REGION = "region"


@dataclass(frozen=True)
class DatabaseReading:
    """The values that one database gave."""

    operations: tuple[OpenOperations, ...] = ()
    inbox: Backlog | None = None
    outbox: Backlog | None = None
    waiting: Mapping[str, CauseCount] = field(default_factory=dict[str, CauseCount])
    """Servers that wait for a host, by what they lack."""
    debts: DebtCount | None = None
    """What hosts owe."""


@dataclass
class CachedRead:
    """The last values of one database, and the read that is under way."""

    read: Callable[[Tx], DatabaseReading]
    database: Database
    last: DatabaseReading | None = None
    seen_at: float = float("-inf")
    began_at: float = float("-inf")
    answers: bool = True
    """Whether the last read was answered in time."""
    under_way: "asyncio.Task[None] | None" = None


def _read_queues(tx: Tx, *, region: bool, conducts: bool, outboxes: bool) -> DatabaseReading:
    outbox = of_region.OUTBOX if region else of_cell.OUTBOX
    return DatabaseReading(
        counts.open_operations(tx) if region and conducts else (),
        counts.inbox_backlog(tx) if region and conducts else None,
        counts.outbox_backlog(tx, outbox) if outboxes and conducts else None,
        waiting.by_cause(tx) if region and conducts else {},
        debts.counted(tx) if region and conducts else None,
    )


def _is_there(tx: Tx) -> DatabaseReading:
    counts.is_there(tx)
    return DatabaseReading()


@dataclass
class CachedReads:
    """One for each database of a process."""

    kept_s: float
    """The shortest time between two reads."""
    monotonic: Callable[[], float] = time.monotonic
    of: dict[str, CachedRead] = field(default_factory=dict[str, CachedRead])

    def at(self, databases: Mapping[str, Database], *, conducts: bool, outboxes: bool) -> None:
        """Read these databases from now on: their queues if this process `conducts`, else only whether they answer."""
        for name, database in databases.items():
            read = (
                partial(_read_queues, region=name == REGION, conducts=True, outboxes=outboxes)
                if conducts and (name == REGION or outboxes)
                else _is_there
            )
            known = self.of.get(name)
            if known is None or known.database is not database:
                self.of[name] = CachedRead(read, database)
            else:
                known.read = read

    async def refresh(self, patience_s: float = PATIENCE_S) -> None:
        """Read the databases whose last values are old again, and wait at most `patience_s` for the answers."""
        now = self.monotonic()
        for name, cached in self.of.items():
            if cached.under_way is None and now - cached.began_at >= self.kept_s:
                cached.began_at = now
                cached.under_way = asyncio.create_task(self._once(name, cached), name=f"read-{name}")
        if waited := [cached.under_way for cached in self.of.values() if cached.under_way is not None]:
            await asyncio.wait(waited, timeout=patience_s)
        for cached in self.of.values():
            cached.answers = cached.answers and cached.under_way is None

    async def _once(self, name: str, cached: CachedRead) -> None:
        try:
            with label("metrics"):
                cached.last = await cached.database.read(cached.read)
            cached.seen_at, cached.answers = self.monotonic(), True
        except (Problem, OSError) as out:
            cached.answers = False
            logger.debug("the %s database could not be read: %s", name, out)
        except Exception:
            cached.answers = False
            logger.exception("the %s database could not be read", name)
        finally:
            cached.under_way = None

    def shown(self) -> dict[str, DatabaseReading]:
        """The values that are young enough to be shown."""
        now = self.monotonic()
        return {
            name: cached.last
            for name, cached in self.of.items()
            if cached.last is not None and now - cached.seen_at <= max(SHOWN_S, self.kept_s)
        }

    async def close(self) -> None:
        tasks = [cached.under_way for cached in self.of.values() if cached.under_way is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
