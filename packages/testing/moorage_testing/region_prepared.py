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

INVENTORIES = "inventories"
STAYS = frozenset(
    {
        "gone",
        INVENTORIES,
        "placement_counter",
        "placement_hosts",
        "provider_aggregates",
        "provider_traits",
        "providers",
        "resource_classes",
        "traits",
    }
)
"""Tables of what providers are; of inventories, what is used is put back."""


class KeptRows:
    """The rows of one database at one moment, of every table that a case may write to.

    Rows of other tables refer to rows of providers only, which stay: so tables can be emptied and filled in any order.
    """

    def __init__(self, raw: sqlite3.Connection) -> None:
        tables = _tables(raw)
        self._with_rows = " UNION ALL ".join(
            f"SELECT '{name}' WHERE EXISTS (SELECT 1 FROM \"{name}\")" for name in tables
        )
        self._rows = {name: rows for name in tables if (rows := raw.execute(f'SELECT * FROM "{name}"').fetchall())}
        self._used: list[tuple[int, str, str]] = []
        self._has_inventories = INVENTORIES in _tables(raw, of_providers=True)
        if self._has_inventories:
            used = f"SELECT used, provider, class FROM {INVENTORIES} WHERE used <> 0"
            self._used = raw.execute(used).fetchall()

    def put_back(self, raw: sqlite3.Connection) -> None:
        """Most tables are empty before and after a case; they are left alone."""
        raw.execute("BEGIN IMMEDIATE")
        for (name,) in raw.execute(self._with_rows).fetchall():
            raw.execute(f'DELETE FROM "{name}"')
        for name, rows in self._rows.items():
            raw.executemany(f'INSERT INTO "{name}" VALUES ({_marks(rows[0])})', rows)
        if self._has_inventories:
            raw.execute(f"UPDATE {INVENTORIES} SET used = 0 WHERE used <> 0")
            raw.executemany(f"UPDATE {INVENTORIES} SET used = ? WHERE provider = ? AND class = ?", self._used)
        raw.execute("COMMIT")


class PreparedRegion:
    """The same world again and again: `prove(saga, asked, PreparedRegion(small, lambda: booted(small)))`.

    For regions in memory, whose preparation puts no packages of its own in the place of theirs.
    """

    def __init__(self, small: SmallRegion, make: Callable[[], Awaitable[Any]]) -> None:
        self._small, self._make = small, make
        self._rows: list[KeptRows] = []
        self._services = b""
        self._held: dict[str, Any] | None = None
        self._proved = False

    async def __call__(self) -> SmallRegion:
        """Made, or put back; the first that is put back must hold what the made one did."""
        small = self._small
        if self._held is None:
            await self._make()
            self._rows = [KeptRows(raw) for raw in self._databases()]
            self._services = pickle.dumps(self._settings())
            self._held = await small.held()
            return small
        for raw, rows in zip(self._databases(), self._rows, strict=True):
            rows.put_back(raw)
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


def _tables(raw: sqlite3.Connection, *, of_providers: bool = False) -> list[str]:
    found = raw.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'").fetchall()
    return [name for (name,) in found if (name in STAYS) is of_providers]


def _marks(row: Sequence[Any]) -> str:
    return ", ".join("?" * len(row))
