"""What only a database knows, read for those who scrape: seldom, one look at a time, and never waited for for long.

A database that is out costs a scrape `PATIENCE_S` once: the look goes on by itself, and what was seen before is shown until it is too old to
be shown at all.
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
from moorage.store.region import counts
from moorage.store.region import notifications as of_region
from moorage.store.region.counts import Backlog, OpenOperations

logger = logging.getLogger(__name__)

PATIENCE_S = 1.0
SHOWN_S = 60.0
REGION = "region"


@dataclass(frozen=True)
class Seen:
    """What one database said."""

    operations: tuple[OpenOperations, ...] = ()
    inbox: Backlog | None = None
    outbox: Backlog | None = None


@dataclass
class Look:
    """At one database."""

    read: Callable[[Tx], Seen]
    database: Database
    seen: Seen | None = None
    seen_at: float = float("-inf")
    began_at: float = float("-inf")
    answers: bool = True
    """Whether the last look was answered, and in time."""
    under_way: "asyncio.Task[None] | None" = None


def _ask(tx: Tx, *, region: bool, conducts: bool, outboxes: bool) -> Seen:
    outbox = of_region.OUTBOX if region else of_cell.OUTBOX
    return Seen(
        counts.open_operations(tx) if region and conducts else (),
        counts.inbox_backlog(tx) if region and conducts else None,
        counts.outbox_backlog(tx, outbox) if outboxes and conducts else None,
    )


def _is_there(tx: Tx) -> Seen:
    counts.is_there(tx)
    return Seen()


@dataclass
class Looks:
    """One for each database of a process."""

    kept_s: float
    """No look sooner after the last one."""
    monotonic: Callable[[], float] = time.monotonic
    of: dict[str, Look] = field(default_factory=dict[str, Look])

    def at(self, databases: Mapping[str, Database], *, conducts: bool, outboxes: bool) -> None:
        """Look at these from now on: what waits in them where this process `conducts`, and else only whether they answer."""
        for name, database in databases.items():
            read = (
                partial(_ask, region=name == REGION, conducts=True, outboxes=outboxes)
                if conducts and (name == REGION or outboxes)
                else _is_there
            )
            known = self.of.get(name)
            if known is None or known.database is not database:
                self.of[name] = Look(read, database)
            else:
                known.read = read

    async def look(self, patience_s: float = PATIENCE_S) -> None:
        """Look where the last look is old, and wait a moment for the answers."""
        now = self.monotonic()
        for name, look in self.of.items():
            if look.under_way is None and now - look.began_at >= self.kept_s:
                look.began_at = now
                look.under_way = asyncio.create_task(self._once(name, look), name=f"look-{name}")
        if waited := [look.under_way for look in self.of.values() if look.under_way is not None]:
            await asyncio.wait(waited, timeout=patience_s)
        for look in self.of.values():
            look.answers = look.answers and look.under_way is None

    async def _once(self, name: str, look: Look) -> None:
        try:
            with label("metrics"):
                look.seen = await look.database.read(look.read)
            look.seen_at, look.answers = self.monotonic(), True
        except (Problem, OSError) as out:
            look.answers = False
            logger.debug("the %s database could not be looked at: %s", name, out)
        except Exception:
            look.answers = False
            logger.exception("the %s database could not be looked at", name)
        finally:
            look.under_way = None

    def shown(self) -> dict[str, Seen]:
        """What is young enough to be shown."""
        now = self.monotonic()
        return {
            name: look.seen
            for name, look in self.of.items()
            if look.seen is not None and now - look.seen_at <= max(SHOWN_S, self.kept_s)
        }

    async def close(self) -> None:
        tasks = [look.under_way for look in self.of.values() if look.under_way is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
