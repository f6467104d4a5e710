"""A small region's world that is prepared once and restored for each case of a proof.

Booting, shelving or moving a server before every case takes longer than most cases. So the first world is made by
executing the operations, and its result is kept: the rows of every table, and the contents of the services' dicts. Each
later world is restored from it in half a millisecond.

Providers stay unchanged: no case changes them, and the scheduler's cache tracks them by stamps that only grow.
"""

import pickle
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from moorage_testing.inline_database import InlineDatabase
from moorage_testing.region_fixture import SmallRegion

STAYS = frozenset(
    {
        "gone",
        "placement_counter",
        "placement_hosts",
        "provider_aggregates",
        "provider_traits",
        "providers",
        "resource_classes",
        "traits",
    }
)
"""Tables of what providers are."""
INVENTORIES = "inventories"
"""Of them, only what is used is put back."""


class PreparedRegion:
    """The same world again and again: `prove(saga, asked, PreparedRegion(small, lambda: booted(small)))`.

    For regions in memory, whose preparation puts no packages of its own in the place of theirs.
    """

    def __init__(self, small: SmallRegion, make: Callable[[], Awaitable[Any]]) -> None:
        self._small, self._make = small, make
        self._rows: list[dict[str, list[Any]]] = []
        self._services = b""
        self._held: dict[str, Any] | None = None
        self._proved = False

    async def __call__(self) -> SmallRegion:
        """Made, or put back; the first that is put back must hold what the made one did."""
        small = self._small
        if self._held is None:
            await self._make()
            self._rows = [_rows_of(raw) for raw in self._databases()]
            self._services = pickle.dumps(self._settings())
            self._held = await small.held()
            return small
        for raw, rows in zip(self._databases(), self._rows, strict=True):
            _put_back(raw, rows)
        small.put_back(*pickle.loads(self._services))
        if not self._proved:
            held = await small.held()
            assert held == self._held, f"the world was {self._held}, and is put back as {held}"
            self._proved = True
        return small

    def _settings(self) -> tuple[Any, ...]:
        small = self._small
        watched = {
            "watches_moves": small.watches_moves,
            "watches_addresses": small.watches_addresses,
            "watches_cells": small.watches_cells,
            "fails_to_error": small.fails_to_error,
            "charged_meanwhile": small.charged_meanwhile,
        }
        return small.network, small.images, small.volumes, small.hosts, watched

    def _databases(self) -> list[sqlite3.Connection]:
        every = (self._small.region, *self._small.cells.values())
        return [cast("InlineDatabase", each).raw() for each in every]


def _rows_of(raw: sqlite3.Connection) -> dict[str, list[Any]]:
    """Of every table that a case may write to."""
    tables = raw.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'").fetchall()
    found = {name: raw.execute(f'SELECT * FROM "{name}"').fetchall() for (name,) in tables if name not in STAYS}
    if INVENTORIES in found:
        used = f"SELECT used, provider, class FROM {INVENTORIES} WHERE used <> 0"
        found[INVENTORIES] = raw.execute(used).fetchall()
    return found


def _put_back(raw: sqlite3.Connection, kept: dict[str, list[Any]]) -> None:
    raw.execute("BEGIN IMMEDIATE")
    raw.execute("PRAGMA defer_foreign_keys = ON")
    for table, rows in kept.items():
        if table == INVENTORIES:
            raw.execute(f"UPDATE {INVENTORIES} SET used = 0 WHERE used <> 0")
            raw.executemany(f"UPDATE {INVENTORIES} SET used = ? WHERE provider = ? AND class = ?", rows)
            continue
        raw.execute(f'DELETE FROM "{table}"')
        if rows:
            raw.executemany(f'INSERT INTO "{table}" VALUES ({_marks(rows[0])})', rows)
    raw.execute("COMMIT")


def _marks(row: Sequence[Any]) -> str:
    return ", ".join("?" * len(row))
