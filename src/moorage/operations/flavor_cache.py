"""Caches flavors for boots in memory, for a short time; every write of this process empties the cache.

Every boot reads one flavor, and flavors change rarely. A change by another process is visible here after `KEPT_S` at
the latest. A boot is never refused because of a cached flavor: the flavor is read again first.
"""

import time
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from moorage.model.flavor import Flavor
from moorage.sql import Database, label
from moorage.store.region import flavors

KEPT_S = 1.0
KEPT_MAX = 1000


@dataclass
class _Shelf:
    """The cached flavors of one region. `writes` counts changes, so that a reader notices that its read is stale."""

    rows: dict[str, tuple[float, Flavor]] = field(default_factory=dict[str, tuple[float, Flavor]])
    writes: int = 0


_shelves: WeakKeyDictionary[Database, _Shelf] = WeakKeyDictionary()


def forget(region: Database) -> None:
    """Empty the cache. To be called after every commit that changed a flavor."""
    shelf = _shelves.get(region)
    if shelf is not None:
        shelf.rows.clear()
        shelf.writes += 1


def cached(region: Database, flavor: str) -> Flavor | None:
    """Return the flavor if it was read a moment ago, else None."""
    shelf = _shelves.get(region)
    row = None if shelf is None else shelf.rows.get(flavor)
    return row[1] if row is not None and time.monotonic() < row[0] else None


async def read(region: Database, flavor: str) -> Flavor | None:
    """Read the flavor from the database and cache it."""
    shelf = _shelves.setdefault(region, _Shelf())
    writes = shelf.writes
    until = time.monotonic() + KEPT_S
    with label("accept"):
        row = await region.read(lambda tx: flavors.get(tx, flavor))
    if row is not None and writes == shelf.writes:
        if len(shelf.rows) >= KEPT_MAX:
            shelf.rows.clear()
        shelf.rows[flavor] = (until, row)
    return row
